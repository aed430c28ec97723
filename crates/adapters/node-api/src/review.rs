//! Asks the API server who a token belongs to and what a caller may read.
//!
//! Rule: no answer is a refusal: where the API server cannot be asked nobody gets in who is not
//! known. Answers are remembered for the times given; tokens appear in no message.
//! upstream: apiserver plugin/pkg/{authenticator/token,authorizer}/webhook

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ports::cluster_api::{ObjectPath, Resource};
use ports::{ClusterApi, ClusterApiError};
use serde::Deserialize;
use serde_json::json;
use tracing::warn;

use crate::caller::Caller;
use crate::remembered::Remembered;

const TOKEN_REVIEWS: Resource =
    Resource { group: "authentication.k8s.io", version: "v1", plural: "tokenreviews" };
const ACCESS_REVIEWS: Resource =
    Resource { group: "authorization.k8s.io", version: "v1", plural: "subjectaccessreviews" };
/// Longer texts are no tokens.
const LONGEST_TOKEN: usize = 64 * 1024;

/// How long answers are remembered.
#[derive(Debug, Clone, Copy)]
pub struct ReviewTimes {
    pub token: Duration,
    pub allowed: Duration,
    pub refused: Duration,
}

/// The API server as a judge.
pub struct Reviews {
    authentication: Option<Arc<dyn ClusterApi>>,
    authorization: Option<Arc<dyn ClusterApi>>,
    times: ReviewTimes,
    tokens: Remembered<Option<Caller>>,
    permissions: Remembered<bool>,
}

#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
}

impl Reviews {
    /// Without an API server for one of the two, nobody is known by a token, or nobody may read.
    pub fn new(
        authentication: Option<Arc<dyn ClusterApi>>,
        authorization: Option<Arc<dyn ClusterApi>>,
        times: ReviewTimes,
    ) -> Self {
        let (tokens, permissions) = (Remembered::new(), Remembered::new());
        Self { authentication, authorization, times, tokens, permissions }
    }

    /// Whose token this is; none for nobody's.
    pub(crate) async fn token(&self, token: &str) -> Option<Caller> {
        let api = self.authentication.as_ref()?;
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return None;
        }
        if let Some(known) = self.tokens.get(&token) {
            return known;
        }
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token},
        });
        let status: TokenStatus = match ask(api.as_ref(), TOKEN_REVIEWS, &question).await {
            Ok(status) => status,
            Err(error) => {
                warn!(err = %error, "Unable to authenticate the request: no review of its token");
                return None;
            }
        };
        let User { username: name, uid, groups, extra } = status.user;
        let caller = (status.authenticated && !name.is_empty()).then_some(Caller {
            name,
            uid,
            groups,
            extra,
        });
        self.tokens.put(&token, caller.clone(), self.times.token);
        caller
    }

    /// Whether a caller may do this (`get`, as a rule) with a path.
    pub(crate) async fn may(&self, caller: &Caller, verb: &str, path: &str) -> bool {
        let Some(api) = self.authorization.as_ref() else { return false };
        if let Some(known) = self.permissions.get(&(caller, verb, path)) {
            return known;
        }
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": caller.name,
                "uid": caller.uid,
                "groups": caller.groups,
                "extra": caller.extra,
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        });
        let allowed = match ask::<AccessStatus>(api.as_ref(), ACCESS_REVIEWS, &question).await {
            Ok(status) => status.allowed && !status.denied,
            Err(error) => {
                warn!(err = %error, user = caller.name, path, "Nobody can say whether this is allowed");
                return false;
            }
        };
        let lasts = if allowed { self.times.allowed } else { self.times.refused };
        self.permissions.put(&(caller, verb, path), allowed, lasts);
        allowed
    }
}

async fn ask<S: for<'de> Deserialize<'de>>(
    api: &dyn ClusterApi,
    resource: Resource,
    question: &serde_json::Value,
) -> Result<S, ClusterApiError> {
    // Reviews have no names; the path wants one, and sends it nowhere.
    let path = ObjectPath { resource, namespace: None, name: "review".to_owned() };
    let answer = api.create(&path, question.to_string().into_bytes()).await?;
    let review: Review<S> = serde_json::from_slice(&answer.json).map_err(|error| {
        // The reader's own words might show what it found.
        let cause = format!("line {} is not what a review looks like", error.line());
        ClusterApiError::Unreadable { request: format!("POST {}", resource.plural), cause }
    })?;
    Ok(review.status)
}
