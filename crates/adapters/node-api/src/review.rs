//! Asks the API server whose a token is and what a caller may read (TokenReview,
//! SubjectAccessReview).
//!
//! Rule: fails closed: while the API server cannot be reached, no caller is admitted without a
//! cached result. Results are cached for the configured times; tokens appear in no message.
//! upstream: apiserver plugin/pkg/{authenticator/token,authorizer}/webhook

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http_server::WorkPermits;
use ports::cluster_api::{ObjectPath, Resource};
use ports::{ClusterApi, ClusterApiError};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::caller::Caller;
use crate::kubelet_port::attributes::NodeAttributes;
use crate::ttl_cache::TtlCache;

const TOKEN_REVIEWS: Resource =
    Resource { group: "authentication.k8s.io", version: "v1", plural: "tokenreviews" };
const ACCESS_REVIEWS: Resource =
    Resource { group: "authorization.k8s.io", version: "v1", plural: "subjectaccessreviews" };
/// A longer string is no token.
const MAX_TOKEN_BYTES: usize = 64 * 1024;
/// Reviews of the node's port in flight; one more is rejected. Cached results need none.
const MAX_IN_FLIGHT: usize = 128;
/// For one review with its retries.
const REVIEW_TIME: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_ATTEMPTS: u32 = 4;

/// How long results are cached.
#[derive(Debug, Clone, Copy)]
pub struct ReviewTimes {
    pub token: Duration,
    pub allowed: Duration,
    pub refused: Duration,
}

/// Reviews by the API server.
pub struct Reviews {
    authentication: Option<Arc<dyn ClusterApi>>,
    authorization: Option<Arc<dyn ClusterApi>>,
    times: ReviewTimes,
    tokens: TtlCache<Option<Caller>>,
    permissions: TtlCache<bool>,
    in_flight: WorkPermits,
}

/// Why a review failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewError {
    /// No API server is configured for it.
    #[error("there is no API server to ask")]
    NoApiServer,
    #[error("{MAX_IN_FLIGHT} reviews are in flight already")]
    TooMany,
    #[error("no answer within {} s", REVIEW_TIME.as_secs())]
    TooSlow,
    #[error("{0}")]
    Api(ClusterApiError),
}

#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: ReviewUser,
    error: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewUser {
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
    /// Without an API server for tokens no caller is authenticated by one; without one for access
    /// no caller is authorized.
    pub fn new(
        authentication: Option<Arc<dyn ClusterApi>>,
        authorization: Option<Arc<dyn ClusterApi>>,
        times: ReviewTimes,
    ) -> Self {
        let (tokens, permissions) = (TtlCache::new(), TtlCache::new());
        let in_flight = WorkPermits::new(MAX_IN_FLIGHT);
        Self { authentication, authorization, times, tokens, permissions, in_flight }
    }

    /// The caller that a token belongs to; `None` if it is not valid.
    pub(crate) async fn token(&self, token: &str) -> Option<Caller> {
        match self.token_review(token).await {
            Ok(caller) => caller,
            Err(ReviewError::NoApiServer) => None,
            Err(error) => {
                warn!(err = %error, "Unable to authenticate the request: no review of its token");
                None
            }
        }
    }

    /// The user of a token; `None` if the API server does not know it.
    pub(crate) async fn token_review(&self, token: &str) -> Result<Option<Caller>, ReviewError> {
        let api = self.authentication.as_ref().ok_or(ReviewError::NoApiServer)?;
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        if let Some(cached) = self.tokens.get(&token) {
            return Ok(cached);
        }
        let review_body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token},
        });
        let status: TokenStatus = self.review(api.as_ref(), TOKEN_REVIEWS, &review_body).await?;
        let ReviewUser { username: name, uid, groups, extra } = status.user;
        let caller = (status.authenticated && !name.is_empty()).then_some(Caller {
            name,
            uid,
            groups,
            extra,
        });
        // A token that could not be reviewed may be valid the next time. upstream: token cache
        if caller.is_some() || status.error.is_empty() {
            self.tokens.put(&token, caller.clone(), self.times.token);
        }
        Ok(caller)
    }

    /// Whether a caller may do this with this node.
    pub(crate) async fn is_allowed_on_node(
        &self,
        caller: &Caller,
        attributes: &NodeAttributes<'_>,
    ) -> Result<bool, ReviewError> {
        let api = self.authorization.as_ref().ok_or(ReviewError::NoApiServer)?;
        if let Some(cached) = self.permissions.get(&(caller, attributes)) {
            return Ok(cached);
        }
        let review_body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": caller.name,
                "uid": caller.uid,
                "groups": caller.groups,
                "extra": caller.extra,
                "resourceAttributes": {
                    "verb": attributes.verb,
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": attributes.subresource,
                    "name": attributes.node,
                },
            },
        });
        let status: AccessStatus = self.review(api.as_ref(), ACCESS_REVIEWS, &review_body).await?;
        let allowed = status.allowed && !status.denied;
        let ttl = if allowed { self.times.allowed } else { self.times.refused };
        self.permissions.put(&(caller, attributes), allowed, ttl);
        Ok(allowed)
    }

    /// One review, retried if the API server may answer the next time.
    async fn review<S: for<'de> Deserialize<'de>>(
        &self,
        api: &dyn ClusterApi,
        resource: Resource,
        review_body: &serde_json::Value,
    ) -> Result<S, ReviewError> {
        let _place = self.in_flight.try_acquire().ok_or(ReviewError::TooMany)?;
        let attempts = async {
            let mut pause = RETRY_PAUSE;
            for _ in 1..MAX_ATTEMPTS {
                match post_review(api, resource, review_body).await {
                    Err(error) if is_transient(&error) => {}
                    other => return other,
                }
                sleep(pause).await;
                pause = pause.mul_f32(1.5);
            }
            post_review(api, resource, review_body).await
        };
        let answered = timeout(REVIEW_TIME, attempts).await;
        answered.map_err(|_| ReviewError::TooSlow)?.map_err(ReviewError::Api)
    }

    /// Whether a caller may do this (usually `get`) with a path.
    pub(crate) async fn is_allowed(&self, caller: &Caller, verb: &str, path: &str) -> bool {
        let Some(api) = self.authorization.as_ref() else { return false };
        if let Some(cached) = self.permissions.get(&(caller, verb, path)) {
            return cached;
        }
        let review_body = json!({
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
        let allowed = match post_review::<AccessStatus>(api.as_ref(), ACCESS_REVIEWS, &review_body)
            .await
        {
            Ok(status) => status.allowed && !status.denied,
            Err(error) => {
                warn!(err = %error, user = caller.name, path, "Unable to authorize the request");
                return false;
            }
        };
        let ttl = if allowed { self.times.allowed } else { self.times.refused };
        self.permissions.put(&(caller, verb, path), allowed, ttl);
        allowed
    }
}

/// Whether a retry of the same review may succeed. upstream: apiserver util/webhook
fn is_transient(error: &ClusterApiError) -> bool {
    matches!(
        error,
        ClusterApiError::Throttled { .. }
            | ClusterApiError::ServerError { .. }
            | ClusterApiError::NoResponse { .. }
    )
}

async fn post_review<S: for<'de> Deserialize<'de>>(
    api: &dyn ClusterApi,
    resource: Resource,
    review_body: &serde_json::Value,
) -> Result<S, ClusterApiError> {
    // Reviews have no names; the path needs one, which is not sent.
    let path = ObjectPath { resource, namespace: None, name: "review".to_owned() };
    let answer = api.create(&path, review_body.to_string().into_bytes()).await?;
    let review: Review<S> = serde_json::from_slice(&answer.json).map_err(|error| {
        // The parser's error might show content.
        let cause = format!("line {} is not what a review looks like", error.line());
        ClusterApiError::Unreadable { request: format!("POST {}", resource.plural), cause }
    })?;
    Ok(review.status)
}
