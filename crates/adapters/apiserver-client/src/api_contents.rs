//! ConfigMaps, Secrets and tokens over the API server: the port of what pods take from it.
//!
//! Rule: one call, one request; decodes only. Data that cannot be decoded is an error that names
//! the object and the key, never the value.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ports::cluster_api::{ObjectPath, ObjectWatch, Resource, StoredObject};
use ports::{
    ApiTime, ClusterApi, ClusterApiError, ContentData, ContentError, ContentKind, ContentName,
    ContentObject, ContentWatch, IssuedToken, PodContents, PortFuture, TokenDemand,
};
use serde::Deserialize;
use serde_json::json;

#[cfg(test)]
mod tests;

pub struct ApiContents {
    api: Arc<dyn ClusterApi>,
}

impl ApiContents {
    pub fn new(api: Arc<dyn ClusterApi>) -> Self {
        Self { api }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ApiContent {
    data: Option<BTreeMap<String, String>>,
    binary_data: Option<BTreeMap<String, String>>,
    immutable: Option<bool>,
    #[serde(rename = "type")]
    secret_type: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ApiToken {
    spec: ApiTokenSpec,
    status: ApiTokenStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ApiTokenSpec {
    expiration_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ApiTokenStatus {
    token: String,
    expiration_timestamp: String,
}

fn path(name: &ContentName) -> ObjectPath {
    let resource = match name.kind {
        ContentKind::ConfigMap => Resource::CONFIG_MAPS,
        ContentKind::Secret => Resource::SECRETS,
    };
    ObjectPath::namespaced(resource, &name.namespace, &name.name)
}

fn object(name: &ContentName, stored: StoredObject) -> Result<ContentObject, ContentError> {
    // The position of an error says nothing of the content, its text may.
    let read: ApiContent = serde_json::from_slice(&stored.json).map_err(|error| {
        ContentError::Failed(format!(
            "{name}: not such an object, at line {} column {}",
            error.line(),
            error.column()
        ))
    })?;
    let of_data = read.data.unwrap_or_default();
    let (data, binary_data) = match name.kind {
        ContentKind::Secret => (decoded(name, of_data)?, ContentData::default()),
        ContentKind::ConfigMap => {
            let texts = of_data.into_iter().map(|(key, text)| (key, text.into_bytes()));
            (ContentData(texts.collect()), decoded(name, read.binary_data.unwrap_or_default())?)
        }
    };
    Ok(ContentObject {
        uid: stored.uid,
        resource_version: stored.resource_version,
        immutable: read.immutable == Some(true),
        secret_type: read.secret_type,
        data,
        binary_data,
    })
}

fn decoded(
    name: &ContentName,
    encoded: BTreeMap<String, String>,
) -> Result<ContentData, ContentError> {
    let mut data = BTreeMap::new();
    for (key, text) in encoded {
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| ContentError::Failed(format!("{name}: key {key:?} is not base64")))?;
        data.insert(key, bytes);
    }
    Ok(ContentData(data))
}

fn content_error(error: ClusterApiError) -> ContentError {
    match error {
        ClusterApiError::NotFound { .. } => ContentError::NotFound,
        ClusterApiError::Refused { status: 403, message, .. } => ContentError::Forbidden(message),
        error => ContentError::Failed(error.to_string()),
    }
}

struct ApiContentWatch {
    name: ContentName,
    objects: Box<dyn ObjectWatch>,
}

impl ContentWatch for ApiContentWatch {
    fn next(&mut self) -> PortFuture<'_, Result<ContentObject, ContentError>> {
        Box::pin(async move {
            let stored = self.objects.next().await.map_err(content_error)?;
            object(&self.name, stored)
        })
    }
}

impl PodContents for ApiContents {
    fn read<'a>(
        &'a self,
        wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentObject, ContentError>> {
        Box::pin(async move {
            let stored = self.api.read(&path(wanted)).await.map_err(content_error)?;
            object(wanted, stored)
        })
    }

    fn watch(&self, wanted: &ContentName) -> Box<dyn ContentWatch> {
        let objects = self.api.watch_object(&path(wanted));
        Box::new(ApiContentWatch { name: wanted.clone(), objects })
    }

    fn token<'a>(
        &'a self,
        demand: &'a TokenDemand,
    ) -> PortFuture<'a, Result<IssuedToken, ContentError>> {
        Box::pin(async move {
            let account = ObjectPath::service_account(&demand.namespace, &demand.service_account);
            let body = token_request(demand);
            let answer = self.api.create_subresource(&account, "token", body).await;
            let stored = answer.map_err(|error| match error {
                ClusterApiError::NotFound { .. } => ContentError::Failed(format!(
                    "serviceaccounts {:?} not found",
                    demand.service_account
                )),
                error => content_error(error),
            })?;
            issued(demand, &stored)
        })
    }
}

fn token_request(demand: &TokenDemand) -> Vec<u8> {
    let audiences: Vec<&str> = demand.audience.as_deref().into_iter().collect();
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": demand.expiration_seconds,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": demand.pod_name,
                "uid": demand.pod_uid,
            },
        },
    });
    body.to_string().into_bytes()
}

fn issued(demand: &TokenDemand, stored: &StoredObject) -> Result<IssuedToken, ContentError> {
    let of = || format!("the token of {}/{}", demand.namespace, demand.service_account);
    let read: ApiToken = serde_json::from_slice(&stored.json)
        .map_err(|_| ContentError::Failed(format!("{}: not a TokenRequest", of())))?;
    let ApiTokenStatus { token, expiration_timestamp } = read.status;
    let expires_at = ApiTime::parse(&expiration_timestamp)
        .filter(|_| !token.is_empty())
        .ok_or_else(|| ContentError::Failed(format!("{}: no token, or no expiry", of())))?;
    let lifetime_seconds =
        read.spec.expiration_seconds.or(demand.expiration_seconds).unwrap_or(3600);
    Ok(IssuedToken { token, expires_at, lifetime_seconds })
}
