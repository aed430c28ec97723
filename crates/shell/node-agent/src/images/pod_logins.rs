//! The logins that a pod brings: those of its `imagePullSecrets`.
//!
//! Rules: read at each attempt, so that a Secret that appears later is used. One that is missing or
//! cannot be used is left out, and the pull goes on without it. No part of a login is logged.
//!
//! upstream: pkg/credentialprovider/secrets, pkg/credentialprovider/keyring.go

use crate::contents::PodContentStore;
use node_policy::image_access::{CredentialOwner, PullSecret};
use node_policy::registry_logins::RegistryLogins;
use pod_model::pod::Pod;
use ports::runtime_objects::RegistryLogin;
use ports::{ContentKind, ContentName, ContentObject, PullRecords};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

#[cfg(test)]
mod tests;

/// For all Secrets of a pod together.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct PodLogins {
    contents: PodContentStore,
    records: Arc<dyn PullRecords>,
}

/// A login of a pod, to be tried before those of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodLogin {
    pub(super) login: RegistryLogin,
    pub(super) owner: CredentialOwner,
}

/// A pod's logins for an image.
#[derive(Debug, Default)]
pub(super) struct PodCredentials {
    pub(super) logins: Vec<PodLogin>,
    /// Names of Secrets that could not be read.
    pub(super) missing: Vec<String>,
}

impl PodLogins {
    pub(crate) fn new(contents: PodContentStore, records: Arc<dyn PullRecords>) -> Self {
        Self { contents, records }
    }

    pub(super) async fn for_image(&self, pod: &Pod, image: &str) -> PodCredentials {
        let until = Instant::now() + READ_TIMEOUT;
        let mut found = PodCredentials::default();
        for reference in pod.spec.image_pull_secrets.iter().filter(|it| !it.name.is_empty()) {
            let name = ContentName {
                kind: ContentKind::Secret,
                namespace: pod.metadata.namespace.to_string(),
                name: reference.name.to_string(),
            };
            match tokio::time::timeout_at(until, self.contents.read(&name)).await {
                Ok(Ok(secret)) => self.add(&name, &secret, image, &mut found.logins),
                Ok(Err(error)) => {
                    warn!(secret = %name, err = %error, "Cannot read a Secret for image pulls");
                    found.missing.push(name.name);
                }
                Err(_) => found.missing.push(name.name),
            }
        }
        found
    }

    fn add(
        &self,
        name: &ContentName,
        secret: &ContentObject,
        image: &str,
        logins: &mut Vec<PodLogin>,
    ) {
        let parsed = match parse(secret) {
            Ok(parsed) => parsed,
            Err(why) => {
                warn!(secret = %name, err = why, "Cannot use a Secret for image pulls");
                return;
            }
        };
        for login in parsed.matching(image) {
            let owner = CredentialOwner::Secret(PullSecret {
                namespace: name.namespace.clone(),
                name: name.name.clone(),
                uid: secret.uid.clone(),
                credential_hash: self.records.digest(hashed_form(&login).as_bytes()),
            });
            logins.push(PodLogin { login, owner });
        }
    }
}

/// The logins of a Secret; none if it is of another type.
fn parse(secret: &ContentObject) -> Result<RegistryLogins, String> {
    let text = |key: &str| {
        let bytes = secret.data.0.get(key).filter(|bytes| !bytes.is_empty());
        bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned()))
    };
    let parsed = match secret.secret_type.as_str() {
        "kubernetes.io/dockerconfigjson" => {
            text(".dockerconfigjson").map(|text| text.map(RegistryLogins::parse))
        }
        "kubernetes.io/dockercfg" => {
            text(".dockercfg").map(|text| text.map(RegistryLogins::parse_old))
        }
        _ => None,
    };
    match parsed {
        None => Ok(RegistryLogins::default()),
        Some(Ok(Ok(logins))) => Ok(logins),
        Some(Ok(Err(error))) => Err(error.to_string()),
        Some(Err(why)) => Err(why),
    }
}

/// The text of which records hold the hash: Go's JSON of a login.
fn hashed_form(login: &RegistryLogin) -> String {
    let fields = [
        ("username", &login.username),
        ("password", &login.password),
        ("auth", &login.auth),
        ("serveraddress", &login.server_address),
        ("identitytoken", &login.identity_token),
        ("registrytoken", &login.registry_token),
    ];
    let fields = fields.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| {
        let quoted = serde_json::Value::from(value.as_str()).to_string();
        let quoted = quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        format!("{name:?}:{quoted}")
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}
