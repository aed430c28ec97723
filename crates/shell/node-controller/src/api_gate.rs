//! The only way to the API server: it stops requests that this instance may not send, and bounds
//! all others.
//!
//! Rule: leadership is checked at each poll of a request and bounds its timeout; a lease does not
//! fence, so every write is guarded by a resource version or UID as well. No retries: a failure
//! goes back to the decision that caused it, which decides again.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use node_health::ControllerTime;
use ports::ClusterApiError;
use ports::cluster_api::{ApiFuture, ClusterApi, ObjectPath, StoredObject};
use ports::cluster_objects::Node;
use tokio::time::{sleep, timeout};

use crate::controller::ControllerShared;

/// The pause of a caller that was turned away by the client's own rate limit.
const RATE_LIMIT_PAUSE: Duration = Duration::from_secs(1);

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("another instance may be leading")]
    NotLeading,
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the client's own rate limit allows it only in {0:?}")]
    OutOfTurn(Duration),
    #[error(transparent)]
    Api(#[from] ClusterApiError),
    #[error("the object cannot be parsed: {0}")]
    Unreadable(String),
}

impl RequestError {
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Api(ClusterApiError::NotFound { .. }))
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(ClusterApiError::Conflict { .. }))
    }

    /// The API server refused the request: nothing was changed.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Self::Api(ClusterApiError::Refused { .. }))
    }

    /// A retry will fail in the same way. It may have taken effect: a response that cannot be
    /// parsed may be a success.
    pub(crate) fn is_permanent(&self) -> bool {
        let unread = matches!(
            self,
            Self::Api(ClusterApiError::TooLarge { .. } | ClusterApiError::Unreadable { .. })
                | Self::Unreadable(_)
        );
        unread || self.is_rejection()
    }

    /// There was a response.
    pub(crate) fn is_answer(&self) -> bool {
        let is_server_error = matches!(self, Self::Api(ClusterApiError::ServerError { .. }));
        is_server_error || self.is_conflict() || self.is_gone() || self.is_permanent()
    }

    /// It was not sent, since too many of our own requests were queued before it.
    pub(crate) fn is_rate_limited(&self) -> bool {
        matches!(self, Self::OutOfTurn(_) | Self::Api(ClusterApiError::RateLimited { .. }))
    }

    /// The outcome label of the metrics.
    pub(crate) const fn outcome(&self) -> &'static str {
        match self {
            Self::NotLeading => "not_leading",
            Self::Timeout(_) => "late",
            Self::OutOfTurn(_) => "out_of_turn",
            Self::Unreadable(_) => "unreadable",
            Self::Api(error) => match error {
                ClusterApiError::NotFound { .. } => "gone",
                ClusterApiError::Conflict { .. } | ClusterApiError::AlreadyExists { .. } => {
                    "conflict"
                }
                ClusterApiError::Refused { .. } => "refused",
                ClusterApiError::Throttled { .. } => "throttled",
                ClusterApiError::RateLimited { .. } => "out_of_turn",
                _ => "failed",
            },
        }
    }

    /// How long to hold back all requests because of the API server's state. The client's own rate
    /// limit says nothing about that state.
    pub(crate) fn server_back_off(&self) -> Option<Duration> {
        match self {
            Self::Api(ClusterApiError::Throttled { retry_after, .. }) => Some(*retry_after),
            Self::Timeout(_) => Some(Duration::ZERO),
            Self::Api(
                ClusterApiError::ServerError { .. }
                | ClusterApiError::Unreachable { .. }
                | ClusterApiError::NoResponse { .. }
                | ClusterApiError::NoCredentials { .. }
                | ClusterApiError::Unauthenticated { .. },
            ) => Some(Duration::ZERO),
            _ => None,
        }
    }
}

/// Sends requests while this instance may act.
#[derive(Clone)]
pub(crate) struct ApiGate {
    shared: Arc<ControllerShared>,
}

impl ApiGate {
    pub(crate) fn new(shared: Arc<ControllerShared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &ControllerShared {
        &self.shared
    }

    pub(crate) fn api(&self) -> &dyn ClusterApi {
        &*self.shared.clients.work
    }

    pub(crate) fn now(&self) -> ControllerTime {
        self.shared.clock.now()
    }

    fn limit(&self) -> Result<Duration, RequestError> {
        let left = self.shared.leader.time_left(self.now());
        if left.is_zero() {
            return Err(RequestError::NotLeading);
        }
        Ok(self.shared.checked.config.writes.deadline.min(left))
    }

    /// Waits for a request's response, if this instance may send it at all.
    pub(crate) async fn send_guarded<T>(
        &self,
        what: &'static str,
        request: ApiFuture<'_, T>,
    ) -> Result<T, RequestError> {
        let outcome = self.send(self.limit()?, self.api(), request).await;
        let word = outcome.as_ref().map_or_else(RequestError::outcome, |_| "written");
        self.shared.counters.written(what, word);
        outcome
    }

    /// Reads an object past all caches.
    pub(crate) async fn read(&self, path: &ObjectPath) -> Result<StoredObject, RequestError> {
        self.read_by(self.api(), path).await
    }

    /// The same with the client for urgent reads, which do not queue behind the work: leases.
    pub(crate) async fn read_urgent(
        &self,
        path: &ObjectPath,
    ) -> Result<StoredObject, RequestError> {
        self.read_by(&*self.shared.clients.lease_reads, path).await
    }

    async fn read_by(
        &self,
        client: &dyn ClusterApi,
        path: &ObjectPath,
    ) -> Result<StoredObject, RequestError> {
        self.send(self.limit()?, client, client.read(path)).await
    }

    /// A request whose turn under the rate limit comes only after its timeout is not queued. It
    /// keeps its write slot for a short pause, so that the whole backlog does not fail against a
    /// full queue.
    async fn send<T>(
        &self,
        limit: Duration,
        client: &dyn ClusterApi,
        request: ApiFuture<'_, T>,
    ) -> Result<T, RequestError> {
        let rate_limit_delay = client.rate_limit_delay();
        let outcome = match rate_limit_delay >= limit {
            true => Err(RequestError::OutOfTurn(rate_limit_delay)),
            false => self.answer_within(limit, request).await,
        };
        if outcome.as_ref().is_err_and(RequestError::is_rate_limited) {
            sleep(RATE_LIMIT_PAUSE).await;
        }
        outcome
    }

    /// Leadership is checked at every poll: a request that was queued while the process was stopped
    /// must not be sent when it continues.
    async fn answer_within<T>(
        &self,
        limit: Duration,
        mut request: ApiFuture<'_, T>,
    ) -> Result<T, RequestError> {
        let guarded = poll_fn(|context| match self.limit() {
            Ok(_) => request.as_mut().poll(context).map_err(RequestError::from),
            Err(failure) => Poll::Ready(Err(failure)),
        });
        timeout(limit, guarded).await.unwrap_or(Err(RequestError::Timeout(limit)))
    }

    /// Reads a node past all caches; none if there is no such node.
    pub(crate) async fn read_node(&self, name: &str) -> Result<Option<Node>, RequestError> {
        match self.read(&ObjectPath::node(name)).await {
            Ok(stored) => {
                let node = serde_json::from_slice(&stored.json)
                    .map_err(|error| RequestError::Unreadable(format!("node {name}: {error}")))?;
                Ok(Some(node))
            }
            Err(failure) if failure.is_gone() => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests;
