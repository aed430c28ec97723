//! Sends events to the API server, counted and aggregated.
//!
//! Rule: emitting an event never waits. The queue is bounded; events that come while it is full are
//! dropped and counted in the log. An event that cannot be delivered is retried with its original
//! time until it is sent or refused; others wait behind it, so that they keep their order.
//!
//! upstream: client-go tools/record/event.go

use super::{REQUEST_TIMEOUT, with_timeout};
use crate::back_off::ExponentialBackOff;
use crate::clock::AgentClock;
use node_status::event_correlation::{Correlated, CorrelationKey, EventCorrelator};
use ports::cluster_api::{
    ClusterEvent, ClusterEventType, ObjectReference, Repetition, StoredEvent,
};
use ports::{ApiTime, ClusterApi, ClusterApiError, EventSink, NodeEventRecord, PodEventRecord};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tracing::{error, warn};

const QUEUE: usize = 1000;
const COMPONENT: &str = "kubelet";
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Attempts at another name: events of one object at one time share theirs.
const MAX_RENAMES: u32 = 100;

/// The queue of events to send.
pub struct ClusterEventQueue {
    host: String,
    queue: mpsc::Sender<ClusterEvent>,
    waiting: Mutex<mpsc::Receiver<ClusterEvent>>,
    dropped: AtomicU64,
}

impl ClusterEventQueue {
    #[must_use]
    pub fn new(node_name: &str) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (waiting, dropped) = (Mutex::new(waiting), AtomicU64::new(0));
        Self { host: node_name.to_owned(), queue, waiting, dropped }
    }

    fn enqueue(&self, event: ClusterEvent) {
        if self.queue.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn kind(warning: bool) -> ClusterEventType {
    if warning { ClusterEventType::Warning } else { ClusterEventType::Normal }
}

impl EventSink for ClusterEventQueue {
    fn emit(&self, occurrence: &PodEventRecord) {
        self.enqueue(ClusterEvent {
            about: ObjectReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                namespace: occurrence.namespace.clone(),
                name: occurrence.name.clone(),
                uid: occurrence.uid.clone(),
                resource_version: String::new(),
                field_path: occurrence.field_path.clone().unwrap_or_default(),
            },
            kind: kind(occurrence.warning),
            reason: occurrence.reason.clone(),
            message: occurrence.message.clone(),
            component: COMPONENT.to_owned(),
            host: self.host.clone(),
            at: occurrence.at,
        });
    }

    fn emit_node_event(&self, occurrence: &NodeEventRecord) {
        self.enqueue(ClusterEvent {
            about: ObjectReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: occurrence.node.clone(),
                ..ObjectReference::default()
            },
            kind: kind(occurrence.warning),
            reason: occurrence.reason.clone(),
            message: occurrence.message.clone(),
            component: COMPONENT.to_owned(),
            host: self.host.clone(),
            at: occurrence.at,
        });
    }
}

/// Sends queued events for ever.
pub(super) async fn send(
    events: Arc<ClusterEventQueue>,
    api: Arc<dyn ClusterApi>,
    clock: AgentClock,
) {
    let mut waiting = events.waiting.lock().await;
    let mut correlator = EventCorrelator::default();
    while let Some(event) = waiting.recv().await {
        let dropped = events.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            warn!(dropped, "Events were dropped: too many waited for the API server");
        }
        if let Some(outgoing) = correlate(&mut correlator, event, &clock) {
            deliver(&*api, &mut correlator, outgoing).await;
        }
    }
}

/// An event in flight: its aggregation key, and the event that it repeats.
struct OutgoingEvent {
    key: CorrelationKey,
    event: ClusterEvent,
    repeats: Option<(StoredEvent, u32)>,
}

fn correlate(
    correlator: &mut EventCorrelator,
    event: ClusterEvent,
    clock: &AgentClock,
) -> Option<OutgoingEvent> {
    match correlator.correlate(event, clock.now()) {
        Correlated::Dropped => None,
        Correlated::Create { key, event } => Some(OutgoingEvent { key, event, repeats: None }),
        Correlated::Repeat { key, event, stored, count } => {
            Some(OutgoingEvent { key, event, repeats: Some((stored, count)) })
        }
    }
}

async fn deliver(
    api: &dyn ClusterApi,
    correlator: &mut EventCorrelator,
    mut outgoing: OutgoingEvent,
) {
    let mut back_off = ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY);
    let mut renamed = 0;
    loop {
        match attempt(api, &outgoing).await {
            Ok((stored, count)) => return correlator.stored(outgoing.key, stored, count),
            // The server keeps events for an hour only: create it again.
            Err(ClusterApiError::NotFound { .. }) if outgoing.repeats.is_some() => {
                correlator.expired(outgoing.key);
                outgoing.repeats = None;
            }
            Err(
                error @ (ClusterApiError::Unreachable { .. }
                | ClusterApiError::NoResponse { .. }
                | ClusterApiError::Throttled { .. }
                | ClusterApiError::RateLimited { .. }
                | ClusterApiError::ServerError { .. }
                | ClusterApiError::Unauthenticated { .. }
                | ClusterApiError::NoCredentials { .. }),
            ) => {
                error!(err = %error, "Unable to write event (retry after sleeping)");
                tokio::time::sleep(back_off.pause()).await;
            }
            // An event is named after its object and its time, and another event has both.
            Err(ClusterApiError::AlreadyExists { .. }) if renamed < MAX_RENAMES => {
                renamed += 1;
                let at = outgoing.event.at.nanos().saturating_add(1);
                outgoing.event.at = ApiTime::from_nanos(at);
            }
            Err(error) => {
                let reason = &outgoing.event.reason;
                error!(err = %error, reason, "Server rejected event (will not retry!)");
                return;
            }
        }
    }
}

async fn attempt(
    api: &dyn ClusterApi,
    outgoing: &OutgoingEvent,
) -> Result<(StoredEvent, u32), ClusterApiError> {
    let event = &outgoing.event;
    match &outgoing.repeats {
        None => Ok((with_timeout(REQUEST_TIMEOUT, api.create_event(event)).await?, 1)),
        Some((stored, count)) => {
            let again =
                Repetition { count: *count, last: event.at, message: Some(event.message.as_str()) };
            with_timeout(REQUEST_TIMEOUT, api.repeat_event(stored, again)).await?;
            Ok((stored.clone(), *count))
        }
    }
}
