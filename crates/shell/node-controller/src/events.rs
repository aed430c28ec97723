//! Events: written by one task, repeated ones as a count.
//!
//! Rule: recording never blocks and never delays a decision. A single event is written at once;
//! when many are pending, as after a start, batches are written with pauses, since each wake-up
//! costs more than an event. The queue is bounded; beyond that events are dropped and counted.
//! Events are for people: a failed write is logged, and no more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ports::ClusterApiError;
use ports::cluster_api::{
    ClusterEvent, ClusterEventType, ObjectReference, Repetition, StoredEvent,
};
use ports::{ApiTime, ClusterApi};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::warn;

use crate::clock::ControllerClock;
use crate::config::WriteConfig;
use crate::counters::Counters;
use crate::writes::{NodeTarget, PodTarget};

/// Length of the queue.
const QUEUE_CAPACITY: usize = 1024;
/// How many written events are remembered, to count repetitions.
const MAX_REMEMBERED: usize = 512;
/// Pause between two batches.
const BATCH_PAUSE: Duration = Duration::from_millis(500);
/// Attempts per event.
const MAX_ATTEMPTS: u32 = 3;

/// The object of an event.
#[derive(Clone, Debug)]
pub(crate) struct EventObject(ObjectReference);

impl EventObject {
    pub(crate) fn node(name: &str, uid: &str) -> Self {
        Self(ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..ObjectReference::default()
        })
    }

    pub(crate) fn target(target: &NodeTarget) -> Self {
        Self::node(&target.name, &target.uid.to_string())
    }

    pub(crate) fn pod(pod: &PodTarget) -> Self {
        Self(ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            ..ObjectReference::default()
        })
    }
}

/// The content of an event.
#[derive(Clone, Debug)]
pub(crate) struct EventText {
    kind: ClusterEventType,
    reason: &'static str,
    message: String,
    component: &'static str,
}

impl EventText {
    /// An event of type Normal. `component`: its reporting component.
    pub(crate) fn normal(component: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind: ClusterEventType::Normal, reason, message, component }
    }

    /// An event of type Warning.
    pub(crate) fn warning(component: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind: ClusterEventType::Warning, reason, message, component }
    }
}

/// The recorder; clones share the queue.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    waiting: mpsc::Sender<ClusterEvent>,
    taken: Arc<Mutex<mpsc::Receiver<ClusterEvent>>>,
    clock: ControllerClock,
    counters: Counters,
}

impl EventRecorder {
    pub(crate) fn new(clock: ControllerClock, counters: Counters) -> Self {
        let (waiting, taken) = mpsc::channel(QUEUE_CAPACITY);
        Self { waiting, taken: Arc::new(Mutex::new(taken)), clock, counters }
    }

    /// Whether the queue has room; an event that would be dropped need not be built.
    pub(crate) fn has_room(&self) -> bool {
        let room = self.waiting.capacity() > 0;
        if !room {
            self.counters.event_dropped();
        }
        room
    }

    pub(crate) fn record(&self, about: EventObject, text: EventText) {
        let event = ClusterEvent {
            about: about.0,
            kind: text.kind,
            reason: text.reason.to_owned(),
            message: text.message,
            component: text.component.to_owned(),
            host: String::new(),
            at: self.clock.wall(),
        };
        if self.waiting.try_send(event).is_err() {
            self.counters.event_dropped();
        }
    }

    /// Writes queued events, for ever.
    pub(crate) async fn deliver(&self, api: Arc<dyn ClusterApi>, writes: &WriteConfig) {
        let mut taken = self.taken.lock().await;
        let mut sent = SentEvents::default();
        let mut together = Vec::new();
        while taken.recv_many(&mut together, writes.events_per_batch.max(1)).await > 0 {
            let (many, began) = (together.len() > 1, Instant::now());
            sent.record(&api, together.drain(..), writes.deadline).await;
            if many {
                sleep_until(began + BATCH_PAUSE).await;
            }
        }
    }
}

type EventKey = (String, String, String, String);

fn key_of(event: &ClusterEvent) -> EventKey {
    let about = &event.about;
    (
        format!("{}/{}/{}", about.kind, about.namespace, about.name),
        about.uid.clone(),
        event.reason.clone(),
        event.message.clone(),
    )
}

#[derive(Default)]
struct SentEvents {
    known: HashMap<EventKey, (StoredEvent, u32)>,
    order: VecDeque<EventKey>,
}

impl SentEvents {
    /// Writes new events concurrently, then repeated ones and duplicates within the batch.
    async fn record(
        &mut self,
        api: &Arc<dyn ClusterApi>,
        events: impl Iterator<Item = ClusterEvent>,
        deadline: Duration,
    ) {
        let mut on_their_way = JoinSet::new();
        let (mut begun, mut again) = (HashSet::new(), Vec::new());
        for event in events {
            let key = key_of(&event);
            if self.known.contains_key(&key) || !begun.insert(key.clone()) {
                again.push((key, event));
                continue;
            }
            let api = Arc::clone(api);
            on_their_way.spawn(async move { (key, send_new(&*api, event, deadline).await) });
        }
        while let Some(ended) = on_their_way.join_next().await {
            if let Ok((key, Some(sent))) = ended {
                self.remember(key, sent);
            }
        }
        for (key, event) in again {
            self.send_update(&**api, key, event, deadline).await;
        }
    }

    async fn send_update(
        &mut self,
        api: &dyn ClusterApi,
        key: EventKey,
        event: ClusterEvent,
        deadline: Duration,
    ) {
        if let Some((sent, count)) = self.known.get_mut(&key) {
            *count = count.saturating_add(1);
            let repetition = Repetition { count: *count, last: event.at, message: None };
            let again = timeout(deadline, api.repeat_event(sent, repetition)).await;
            match again {
                Ok(Ok(())) => return,
                // The API server has expired it: write it as new.
                Ok(Err(ClusterApiError::NotFound { .. })) => {}
                Ok(Err(error)) => {
                    warn!(err = %error, reason = event.reason, "Failed to update the count of an event");
                    return;
                }
                Err(_) => {
                    warn!(reason = event.reason, "Updating the count of an event took too long");
                    return;
                }
            }
        }
        if let Some(sent) = send_new(api, event, deadline).await {
            self.remember(key, sent);
        }
    }

    fn remember(&mut self, key: EventKey, sent: StoredEvent) {
        if self.known.insert(key.clone(), (sent, 1)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

async fn send_new(
    api: &dyn ClusterApi,
    mut event: ClusterEvent,
    deadline: Duration,
) -> Option<StoredEvent> {
    for attempt in 0..MAX_ATTEMPTS {
        match timeout(deadline, api.create_event(&event)).await {
            Ok(Ok(sent)) => return Some(sent),
            // Another event of the same object has the same timestamp in its name.
            Ok(Err(ClusterApiError::AlreadyExists { .. })) => {
                event.at = ApiTime::from_nanos(event.at.nanos().saturating_add(1));
            }
            Ok(Err(error @ ClusterApiError::Refused { .. })) => {
                warn!(err = %error, reason = event.reason, "An event was refused");
                return None;
            }
            Ok(Err(error)) => {
                warn!(err = %error, reason = event.reason, attempt, "Failed to record an event");
                if attempt + 1 < MAX_ATTEMPTS {
                    sleep(Duration::from_secs(1 << attempt)).await;
                }
            }
            Err(_) => warn!(reason = event.reason, attempt, "Recording an event took too long"),
        }
    }
    None
}
