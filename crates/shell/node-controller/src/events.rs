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
use ports::cluster_api::{ClusterEvent, EventKind, ObjectReference, Repetition, ToldEvent};
use ports::{ApiTime, ClusterApi};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::warn;

use crate::clock::Clock;
use crate::config::WriteConfig;
use crate::counters::Counters;
use crate::writes::{PodTarget, Target};

/// Length of the queue.
const WAITING: usize = 1024;
/// How many written events are remembered, to count repetitions.
const REMEMBERED: usize = 512;
/// Pause between two batches.
const PAUSE: Duration = Duration::from_millis(500);
/// Attempts per event.
const TRIES: u32 = 3;

/// The object of an event.
#[derive(Clone, Debug)]
pub(crate) struct About(ObjectReference);

impl About {
    pub(crate) fn node(name: &str, uid: &str) -> Self {
        Self(ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..ObjectReference::default()
        })
    }

    pub(crate) fn target(target: &Target) -> Self {
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
pub(crate) struct Said {
    kind: EventKind,
    reason: &'static str,
    message: String,
    component: &'static str,
}

impl Said {
    /// An event of type Normal. `component`: its reporting component.
    pub(crate) fn normal(component: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind: EventKind::Normal, reason, message, component }
    }

    /// An event of type Warning.
    pub(crate) fn warning(component: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind: EventKind::Warning, reason, message, component }
    }
}

/// The recorder; clones share the queue.
#[derive(Clone)]
pub(crate) struct Events {
    waiting: mpsc::Sender<ClusterEvent>,
    taken: Arc<Mutex<mpsc::Receiver<ClusterEvent>>>,
    clock: Clock,
    counters: Counters,
}

impl Events {
    pub(crate) fn new(clock: Clock, counters: Counters) -> Self {
        let (waiting, taken) = mpsc::channel(WAITING);
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

    pub(crate) fn tell(&self, about: About, said: Said) {
        let event = ClusterEvent {
            about: about.0,
            kind: said.kind,
            reason: said.reason.to_owned(),
            message: said.message,
            component: said.component.to_owned(),
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
        let mut told = Told::default();
        let mut together = Vec::new();
        while taken.recv_many(&mut together, writes.events_at_once.max(1)).await > 0 {
            let (many, began) = (together.len() > 1, Instant::now());
            told.tell(&api, together.drain(..), writes.deadline).await;
            if many {
                sleep_until(began + PAUSE).await;
            }
        }
    }
}

type Key = (String, String, String, String);

fn key_of(event: &ClusterEvent) -> Key {
    let about = &event.about;
    (
        format!("{}/{}/{}", about.kind, about.namespace, about.name),
        about.uid.clone(),
        event.reason.clone(),
        event.message.clone(),
    )
}

#[derive(Default)]
struct Told {
    known: HashMap<Key, (ToldEvent, u32)>,
    order: VecDeque<Key>,
}

impl Told {
    /// Writes new events concurrently, then repeated ones and duplicates within the batch.
    async fn tell(
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
            on_their_way.spawn(async move { (key, tell_new(&*api, event, deadline).await) });
        }
        while let Some(ended) = on_their_way.join_next().await {
            if let Ok((key, Some(told))) = ended {
                self.remember(key, told);
            }
        }
        for (key, event) in again {
            self.tell_again(&**api, key, event, deadline).await;
        }
    }

    async fn tell_again(
        &mut self,
        api: &dyn ClusterApi,
        key: Key,
        event: ClusterEvent,
        deadline: Duration,
    ) {
        if let Some((told, count)) = self.known.get_mut(&key) {
            *count = count.saturating_add(1);
            let repetition = Repetition { count: *count, last: event.at, message: None };
            let again = timeout(deadline, api.repeat_event(told, repetition)).await;
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
        if let Some(told) = tell_new(api, event, deadline).await {
            self.remember(key, told);
        }
    }

    fn remember(&mut self, key: Key, told: ToldEvent) {
        if self.known.insert(key.clone(), (told, 1)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

async fn tell_new(
    api: &dyn ClusterApi,
    mut event: ClusterEvent,
    deadline: Duration,
) -> Option<ToldEvent> {
    for attempt in 0..TRIES {
        match timeout(deadline, api.tell_event(&event)).await {
            Ok(Ok(told)) => return Some(told),
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
                if attempt + 1 < TRIES {
                    sleep(Duration::from_secs(1 << attempt)).await;
                }
            }
            Err(_) => warn!(reason = event.reason, attempt, "Recording an event took too long"),
        }
    }
    None
}
