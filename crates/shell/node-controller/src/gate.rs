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

use node_health::Moment;
use ports::ClusterApiError;
use ports::cluster_api::{ApiFuture, ClusterApi, ObjectPath, StoredObject};
use ports::cluster_objects::Node;
use tokio::time::{sleep, timeout};

use crate::controller::Shared;

/// The pause of a caller that was turned away by the client's own rate limit.
const FULL_LINE: Duration = Duration::from_secs(1);

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("another instance may be leading")]
    NotLeading,
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("the client's own rate limit allows it only in {0:?}")]
    OutOfTurn(Duration),
    #[error(transparent)]
    Api(#[from] ClusterApiError),
    #[error("the object cannot be parsed: {0}")]
    Unreadable(String),
}

impl Failure {
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Api(ClusterApiError::NotFound { .. }))
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(ClusterApiError::Conflict { .. }))
    }

    /// The API server refused the request: nothing was changed.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Api(ClusterApiError::Refused { .. }))
    }

    /// A retry will fail in the same way. It may have taken effect: a response that cannot be
    /// parsed may be a success.
    pub(crate) fn is_hopeless(&self) -> bool {
        let unread = matches!(
            self,
            Self::Api(ClusterApiError::TooLarge { .. } | ClusterApiError::Unreadable { .. })
                | Self::Unreadable(_)
        );
        unread || self.is_refusal()
    }

    /// There was a response.
    pub(crate) fn is_answer(&self) -> bool {
        let trouble = matches!(self, Self::Api(ClusterApiError::ServerTrouble { .. }));
        trouble || self.is_conflict() || self.is_gone() || self.is_hopeless()
    }

    /// It was not sent, since too many of our own requests were queued before it.
    pub(crate) fn is_out_of_turn(&self) -> bool {
        matches!(self, Self::OutOfTurn(_) | Self::Api(ClusterApiError::OutOfTurn { .. }))
    }

    /// The outcome label of the metrics.
    pub(crate) const fn outcome(&self) -> &'static str {
        match self {
            Self::NotLeading => "not_leading",
            Self::Late(_) => "late",
            Self::OutOfTurn(_) => "out_of_turn",
            Self::Unreadable(_) => "unreadable",
            Self::Api(error) => match error {
                ClusterApiError::NotFound { .. } => "gone",
                ClusterApiError::Conflict { .. } | ClusterApiError::AlreadyExists { .. } => {
                    "conflict"
                }
                ClusterApiError::Refused { .. } => "refused",
                ClusterApiError::Throttled { .. } => "throttled",
                ClusterApiError::OutOfTurn { .. } => "out_of_turn",
                _ => "failed",
            },
        }
    }

    /// How long to hold back all requests because of the API server's state. The client's own rate
    /// limit says nothing about that state.
    pub(crate) fn trouble(&self) -> Option<Duration> {
        match self {
            Self::Api(ClusterApiError::Throttled { retry_after, .. }) => Some(*retry_after),
            Self::Late(_) => Some(Duration::ZERO),
            Self::Api(
                ClusterApiError::ServerTrouble { .. }
                | ClusterApiError::Unreachable { .. }
                | ClusterApiError::Unanswered { .. }
                | ClusterApiError::NoCredentials { .. }
                | ClusterApiError::Unauthenticated { .. },
            ) => Some(Duration::ZERO),
            _ => None,
        }
    }
}

/// Sends requests while this instance may act.
#[derive(Clone)]
pub(crate) struct Gate {
    shared: Arc<Shared>,
}

impl Gate {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn api(&self) -> &dyn ClusterApi {
        &*self.shared.clients.work
    }

    pub(crate) fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    fn limit(&self) -> Result<Duration, Failure> {
        let left = self.shared.leader.time_left(self.now());
        if left.is_zero() {
            return Err(Failure::NotLeading);
        }
        Ok(self.shared.checked.config.writes.deadline.min(left))
    }

    /// Waits for a request's response, if this instance may send it at all.
    pub(crate) async fn pass<T>(
        &self,
        what: &'static str,
        request: ApiFuture<'_, T>,
    ) -> Result<T, Failure> {
        let outcome = self.send(self.limit()?, self.api(), request).await;
        let word = outcome.as_ref().map_or_else(Failure::outcome, |_| "written");
        self.shared.counters.written(what, word);
        outcome
    }

    /// Reads an object past all caches.
    pub(crate) async fn read(&self, path: &ObjectPath) -> Result<StoredObject, Failure> {
        self.read_by(self.api(), path).await
    }

    /// The same with the client for urgent reads, which do not queue behind the work: leases.
    pub(crate) async fn look(&self, path: &ObjectPath) -> Result<StoredObject, Failure> {
        self.read_by(&*self.shared.clients.looks, path).await
    }

    async fn read_by(
        &self,
        client: &dyn ClusterApi,
        path: &ObjectPath,
    ) -> Result<StoredObject, Failure> {
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
    ) -> Result<T, Failure> {
        let turn_in = client.turn_in();
        let outcome = match turn_in >= limit {
            true => Err(Failure::OutOfTurn(turn_in)),
            false => self.answer_within(limit, request).await,
        };
        if outcome.as_ref().is_err_and(Failure::is_out_of_turn) {
            sleep(FULL_LINE).await;
        }
        outcome
    }

    /// Leadership is checked at every poll: a request that was queued while the process was stopped
    /// must not be sent when it continues.
    async fn answer_within<T>(
        &self,
        limit: Duration,
        mut request: ApiFuture<'_, T>,
    ) -> Result<T, Failure> {
        let guarded = poll_fn(|context| match self.limit() {
            Ok(_) => request.as_mut().poll(context).map_err(Failure::from),
            Err(failure) => Poll::Ready(Err(failure)),
        });
        timeout(limit, guarded).await.unwrap_or(Err(Failure::Late(limit)))
    }

    /// Reads a node past all caches; none if there is no such node.
    pub(crate) async fn read_node(&self, name: &str) -> Result<Option<Node>, Failure> {
        match self.read(&ObjectPath::node(name)).await {
            Ok(stored) => {
                let node = serde_json::from_slice(&stored.json)
                    .map_err(|error| Failure::Unreadable(format!("node {name}: {error}")))?;
                Ok(Some(node))
            }
            Err(failure) if failure.is_gone() => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests;
