//! The task that owns the cache: it receives the runtime's events and decides what to relist when.
//!
//! Rules: one relist per pod at a time, and a limited number in parallel; a slow one releases its
//! slot to others and continues. A runtime that was away is listed in full once its events arrive
//! again. Without an event stream, listings alone show which pods to relist. A clock that is set
//! back makes all earlier stamps worthless: relists start over, and watchers of pods are notified.

use super::build::{has_same_content, is_nothing, name_of};
use super::failed_sync::{self, FailureStage};
use super::relist::{RelistError, RelistResult, RelistTarget, ended, relist};
use super::{Observation, ObservedPods, ObservedPodsInner, RequestedRelists, RuntimePodName};
use crate::back_off::ExponentialBackOff;
use crate::keyed_tasks::{KeyedTasks, Panicked};
use crate::loop_heartbeats::LoopHeartbeats;
use crate::metrics::{Metrics, names};
use pod_lifecycle::ObservedPod;
use ports::ApiTime;
use ports::runtime_objects::{
    ContainerRecord, ContainerState, ListedPods, RuntimeEvent, RuntimeEventKind, RuntimeSignal,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

/// The safety net under the event stream.
const SLOW_LISTING: Duration = Duration::from_secs(300);
/// Instead of an event stream that the runtime does not have.
const QUICK_LISTING: Duration = Duration::from_secs(1);
/// While the runtime gives no stream but answers calls.
const NO_STREAM_LISTING: Duration = Duration::from_secs(5);
/// While the runtime is not known to answer, in case it does and nothing else shows it.
const DISCONNECTED_LISTING: Duration = Duration::from_secs(30);
/// Relists of single pods in parallel.
const MAX_RELISTS: usize = 8;
/// After this long a relist releases its slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(2);
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Keeps the cache up to date for ever.
pub(crate) async fn watch_pods(observed: ObservedPods, loop_heartbeats: LoopHeartbeats) {
    let shared = observed.shared;
    // After a panic of this task, watchers still wait for their relists.
    let known: Vec<String> = shared.pods().keys().cloned().collect();
    *shared.wanted() = RequestedRelists { pods: known.into_iter().collect(), all: true };
    let mut jumps = shared.clock.jumps();
    let mut signals = shared.runtime.signals();
    let mut relist_loop = RelistLoop::new(shared.clone());
    loop {
        relist_loop.start_relists();
        let due = relist_loop.next_due();
        let owner_event = tokio::select! {
            signal = signals.next() => OwnerEvent::Signal(signal),
            () = shared.recheck.notified() => OwnerEvent::Requested,
            (target, outcome) = relist_loop.relists.next() => OwnerEvent::Relisted(target, outcome),
            () = tokio::time::sleep_until(due) => OwnerEvent::Timer,
            Ok(()) = jumps.changed() => OwnerEvent::Requested,
            () = loop_heartbeats.beat_while_waiting("observed-pods") => OwnerEvent::Requested,
        };
        if relist_loop.last_jumps != *jumps.borrow_and_update() {
            relist_loop.on_clock_set_back(*jumps.borrow());
        }
        match owner_event {
            OwnerEvent::Signal(signal) => relist_loop.on_runtime_signal(signal),
            OwnerEvent::Requested => {}
            OwnerEvent::Relisted(target, outcome) => relist_loop.on_relisted(target, outcome),
            OwnerEvent::Timer => relist_loop.on_timer(),
        }
        if std::mem::take(&mut relist_loop.asks_for_events) {
            signals = shared.runtime.signals();
        }
    }
}

/// What wakes the loop.
enum OwnerEvent {
    Signal(RuntimeSignal),
    Requested,
    Relisted(RelistTarget, Result<Result<RelistResult, RelistError>, Panicked>),
    Timer,
}

struct RelistLoop {
    shared: Arc<ObservedPodsInner>,
    relists: KeyedTasks<RelistTarget, Result<RelistResult, RelistError>>,
    /// Start of each relist in flight, by the monotonic and by the wall clock.
    begun: BTreeMap<RelistTarget, (Instant, ApiTime)>,
    /// Requested; started as soon as there is a slot.
    waiting: RequestedRelists,
    /// Pods that a worker wants relisted; it is woken even if nothing has changed.
    awaited: BTreeSet<String>,
    /// Those of them whose relist has begun: an earlier one does not count.
    answering: BTreeSet<String>,
    listing_pause: Duration,
    next_listing: Instant,
    /// When the last full listing began.
    last_listing: Option<Instant>,
    listing_retry: ExponentialBackOff,
    /// Pods whose last relist failed: when to retry.
    retries: BTreeMap<String, (Instant, ExponentialBackOff)>,
    /// Pods that the runtime listed and that were never read: they exist all the same.
    unreadable_pods: BTreeMap<String, RuntimePodName>,
    /// For a runtime without an event stream: the last listing, and when the next one is due.
    quick: Option<(ListedPods, Instant)>,
    /// The runtime was away: its successor may have an event stream.
    asks_for_events: bool,
    /// No event stream, and the runtime is not known to answer.
    is_disconnected: bool,
    last_jumps: u64,
}

impl RelistLoop {
    fn new(shared: Arc<ObservedPodsInner>) -> Self {
        let last_jumps = *shared.clock.jumps().borrow();
        Self {
            shared,
            relists: KeyedTasks::default(),
            begun: BTreeMap::new(),
            waiting: RequestedRelists::default(),
            awaited: BTreeSet::new(),
            answering: BTreeSet::new(),
            listing_pause: SLOW_LISTING,
            next_listing: Instant::now() + SLOW_LISTING,
            last_listing: None,
            listing_retry: ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY),
            retries: BTreeMap::new(),
            unreadable_pods: BTreeMap::new(),
            quick: None,
            asks_for_events: false,
            is_disconnected: false,
            last_jumps,
        }
    }

    /// Earlier stamps are in the future now and would keep new observations out.
    fn on_clock_set_back(&mut self, jumps: u64) {
        self.last_jumps = jumps;
        for target in std::mem::take(&mut self.begun).into_keys() {
            self.relists.abort(&target);
        }
        self.answering.clear();
        self.waiting.all = true;
        for (uid, sender) in self.shared.pods().iter() {
            sender.send_if_modified(|known| {
                if let Some(pod) = known {
                    *pod =
                        Arc::new(ObservedPod { as_of: ApiTime::from_nanos(0), ..(**pod).clone() });
                }
                false
            });
            self.waiting.pods.insert(uid.clone());
            self.awaited.insert(uid.clone());
        }
    }

    fn on_runtime_signal(&mut self, signal: RuntimeSignal) {
        if let RuntimeSignal::Event(event) = &signal
            && event.created_at > 0
        {
            let nanos = self.shared.clock.now().nanos().saturating_sub(event.created_at);
            let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
            self.metrics().took(&names::EVENTED_LATENCY, &[], took);
        }
        match signal {
            // A created container is started next, which has its own event; and after an action of
            // this agent the pod is relisted anyway. In a burst these would be a third of all
            // calls.
            RuntimeSignal::Event(event) if event.kind == RuntimeEventKind::Created => {}
            RuntimeSignal::Event(event) => match self.pod_of(&event) {
                Some(uid) if self.is_covered(&uid, &event) => {}
                Some(uid) => self.apply_exit_or_relist(uid, event.ended),
                None => self.waiting.all = true,
            },
            RuntimeSignal::Connected => {
                info!(v = 2, "Hearing the container runtime's events");
                self.metrics().count(&names::EVENTED_SUCCESSES, &[]);
                self.shared.is_back.notify_one();
                self.listing_pause = SLOW_LISTING;
                self.is_disconnected = false;
                self.quick = None;
                self.waiting.all = true;
            }
            RuntimeSignal::Lost(why) => {
                warn!(err = why, "Lost the container runtime's event stream");
                self.metrics().count(&names::EVENTED_ERRORS, &[]);
                self.shared.mark_stream_lost(why);
                self.listing_pause = DISCONNECTED_LISTING;
                self.is_disconnected = true;
                self.quick = None;
                self.relist_on_reconnect();
            }
            RuntimeSignal::Refused(why) => {
                warn!(
                    err = why,
                    seconds = NO_STREAM_LISTING.as_secs(),
                    "The container runtime answers but gives no events; it is listed now and then"
                );
                self.metrics().count(&names::EVENTED_ERRORS, &[]);
                self.listing_pause = NO_STREAM_LISTING;
                self.is_disconnected = false;
                self.waiting.all = true;
            }
            RuntimeSignal::Unsupported => {
                warn!("This container runtime has no event stream; it is listed every second");
                self.listing_pause = SLOW_LISTING;
                self.is_disconnected = false;
                self.quick = Some((ListedPods::new(), Instant::now() + QUICK_LISTING));
                self.waiting.all = true;
            }
        }
        self.next_listing = self.next_listing.min(Instant::now() + self.listing_pause);
    }

    /// The pod of an event. The runtime may leave it out, for example for a sandbox that is being
    /// removed.
    fn pod_of(&self, event: &RuntimeEvent) -> Option<String> {
        if !event.pod_uid.is_empty() {
            return Some(event.pod_uid.clone());
        }
        let pods = self.shared.pods();
        let mut known =
            pods.iter().filter_map(|(uid, sender)| Some((uid, sender.borrow().clone()?)));
        let found = known.find(|(_, pod)| {
            let sandboxes = pod.sandboxes.iter().map(|sandbox| &sandbox.id);
            let containers = pod.containers.iter().map(|container| &container.record.id);
            sandboxes.chain(containers).any(|id| *id == event.id)
        });
        found.map(|(uid, _)| uid.clone())
    }

    /// Whether the event is known, or a relist that covers it will follow anyway. Starts are made
    /// by this agent and are followed by a relist, so the event's stamp decides. Exits come at any
    /// time, and a clock that is a second off must not hide one.
    fn is_covered(&self, uid: &str, event: &RuntimeEvent) -> bool {
        match event.kind {
            RuntimeEventKind::Started => {
                self.shared.is_starting(uid) || self.is_relisted_since(uid, event)
            }
            RuntimeEventKind::Stopped => self.known(uid).is_some_and(|pod| {
                let mut all = pod.containers.iter().map(|container| &container.record);
                all.any(|record| record.id == event.id && record.state == ContainerState::Exited)
            }),
            _ => false,
        }
    }

    fn is_relisted_since(&self, uid: &str, event: &RuntimeEvent) -> bool {
        let relists = [RelistTarget::Pod(uid.to_owned()), RelistTarget::All];
        let relists =
            relists.iter().filter_map(|relist| self.begun.get(relist)).map(|(_, stamp)| *stamp);
        let known = self.known(uid).map(|pod| pod.as_of);
        let latest = relists.chain(known).max();
        event.created_at > 0 && latest.is_some_and(|stamp| stamp.nanos() > event.created_at)
    }

    fn known(&self, uid: &str) -> Observation {
        self.shared.pods().get(uid).and_then(|sender| sender.borrow().clone())
    }

    /// Applies a container's exit from the event if the pod is known and no relist is pending or
    /// running (it would undo the exit); otherwise relists the pod.
    fn apply_exit_or_relist(&mut self, uid: String, end: Option<Box<ContainerRecord>>) {
        let target = RelistTarget::Pod(uid.clone());
        let is_due = self.waiting.all || self.waiting.pods.contains(&uid);
        let is_looked_at =
            self.relists.contains(&target) || self.relists.contains(&RelistTarget::All);
        let is_unsure = self.retries.contains_key(&uid) || self.unreadable_pods.contains_key(&uid);
        let known = self.known(&uid).filter(|_| !is_due && !is_looked_at && !is_unsure);
        let ran = |known: &ObservedPod, end: &ContainerRecord| {
            let ran = |state| matches!(state, ContainerState::Created | ContainerState::Running);
            let mut all = known.containers.iter().map(|container| &container.record);
            all.any(|record| record.id == end.id && ran(record.state))
        };
        match known.zip(end) {
            Some((known, end)) if ran(&known, &end) => {
                self.begun.insert(target.clone(), (Instant::now(), known.as_of));
                let task = ended(self.shared.clone(), uid, known, end);
                self.relists.start(target, "take a container's end", task);
            }
            _ => {
                self.waiting.pods.insert(uid);
            }
        }
    }

    /// The runtime does not answer now and is listed in full when it does: not once more before.
    fn relist_on_reconnect(&mut self) {
        self.waiting.all = false;
        self.next_listing = Instant::now() + self.listing_pause;
    }

    fn on_timer(&mut self) {
        let now = Instant::now();
        if now >= self.next_listing {
            self.waiting.all = true;
            self.next_listing = now + self.listing_pause;
        }
        let listing = RelistTarget::Listing;
        if let Some((_, at)) = self.quick.as_mut().filter(|(_, at)| *at <= now) {
            *at = now + QUICK_LISTING;
            if !self.relists.contains(&listing) {
                self.begin(listing);
            }
        }
        let due = self.retries.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<String> = due.map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            // Kept with its back-off; the time is set again when the relist ends.
            if let Some((at, _)) = self.retries.get_mut(&uid) {
                *at = now + LONGEST_RETRY;
            }
            self.waiting.pods.insert(uid);
        }
    }

    fn next_due(&self) -> Instant {
        let retry = self.retries.values().map(|(at, _)| *at).min();
        let quick = self.quick.as_ref().map(|(_, at)| *at);
        // A waiting pod is relisted as soon as a slow relist releases its slot.
        let oldest = self.occupied_slots().min().filter(|_| !self.waiting.pods.is_empty());
        let place = oldest.map(|began| began + SLOT_TIMEOUT);
        let others = [retry, quick, place].into_iter().flatten();
        others.fold(self.next_listing, Instant::min)
    }

    /// Start times of the relists that hold slots.
    fn occupied_slots(&self) -> impl Iterator<Item = Instant> {
        let now = Instant::now();
        let begun = self.begun.values().map(|(began, _)| *began);
        begun.filter(move |began| now.duration_since(*began) < SLOT_TIMEOUT)
    }

    /// Starts requested relists while there are slots; one per pod at a time.
    fn start_relists(&mut self) {
        let asked = std::mem::take(&mut *self.shared.wanted());
        self.waiting.all |= asked.all;
        self.awaited.extend(asked.pods.iter().cloned());
        self.waiting.pods.extend(asked.pods);
        if self.waiting.all && !self.relists.contains(&RelistTarget::All) {
            self.waiting.all = false;
            self.next_listing = Instant::now() + self.listing_pause;
            self.begin(RelistTarget::All);
        }
        let room = MAX_RELISTS.saturating_sub(self.occupied_slots().count());
        let free = |uid: &&String| !self.relists.contains(&RelistTarget::Pod((*uid).clone()));
        let next: Vec<String> = self.waiting.pods.iter().filter(free).take(room).cloned().collect();
        for uid in next {
            self.waiting.pods.remove(&uid);
            if self.awaited.remove(&uid) {
                self.answering.insert(uid.clone());
            }
            self.begin(RelistTarget::Pod(uid));
        }
    }

    fn begin(&mut self, target: RelistTarget) {
        let now = Instant::now();
        self.begun.insert(target.clone(), (now, self.shared.clock.now()));
        if !matches!(target, RelistTarget::Pod(_)) {
            self.shared.mark_listing_due();
        }
        if target == RelistTarget::All
            && let Some(last) = self.last_listing.replace(now)
        {
            self.metrics().took(&names::RELIST_INTERVAL, &[], now - last);
        }
        let task = relist(self.shared.clone(), target.clone());
        self.relists.start(target, "look at the runtime", task);
    }

    fn on_relisted(
        &mut self,
        target: RelistTarget,
        outcome: Result<Result<RelistResult, RelistError>, Panicked>,
    ) {
        // An unknown one was started before the clock was set back.
        let Some((began, _)) = self.begun.remove(&target) else { return };
        let panicked = |Panicked(why)| Err(RelistError::new(format!("a panic: {why}")));
        let outcome = outcome.unwrap_or_else(panicked);
        let is_answer = outcome.as_ref().is_ok_and(|seen| !seen.from_event);
        self.count_relist(&target, is_answer.then(|| began.elapsed()));
        match (target, outcome) {
            (RelistTarget::All, Ok(seen)) => {
                self.listing_retry.reset();
                self.mark_listable();
                self.apply_all(seen);
            }
            (RelistTarget::Listing, Ok(seen)) => {
                self.mark_listable();
                self.apply_listing(seen.listed);
            }
            (RelistTarget::Listing, Err(failure)) => {
                self.shared.mark_unlistable(&failure.why, began);
            }
            (RelistTarget::All, Err(failure)) => {
                self.shared.mark_unlistable(&failure.why, began);
                if self.is_disconnected {
                    self.relist_on_reconnect();
                } else {
                    let pause = self.listing_retry.pause();
                    self.next_listing = Instant::now() + pause.min(self.listing_pause);
                }
            }
            (RelistTarget::Pod(uid), Ok(seen)) => {
                let RelistResult { mut pods, unreadable_pods, from_event, .. } = seen;
                match (unreadable_pods.get(&uid), pods.remove(&uid)) {
                    (Some(unreadable_pods), _) => {
                        self.retry(&uid, &RelistError::new(&unreadable_pods.why));
                    }
                    (None, Some(pod)) => {
                        // An event shows nothing of whether the runtime answers.
                        if !from_event {
                            self.retries.remove(&uid);
                            self.unreadable_pods.remove(&uid);
                        }
                        let is_awaited = self.answering.remove(&uid);
                        self.publish(&uid, pod, is_awaited);
                        self.publish_inventory();
                    }
                    (None, None) => {}
                }
            }
            (RelistTarget::Pod(uid), Err(failure)) => self.retry(&uid, &failure),
        }
    }

    fn metrics(&self) -> &Metrics {
        self.shared.status_store.metrics()
    }

    /// `took`: of an answered relist; only those are counted, so that the interval is between two
    /// listings that have shown the runtime's state.
    fn count_relist(&self, target: &RelistTarget, took: Option<Duration>) {
        let Some(took) = took else { return };
        match target {
            RelistTarget::All => {
                self.metrics().took(&names::RELIST_DURATION, &[], took);
                let now = Duration::from_nanos(
                    u64::try_from(self.shared.clock.now().nanos()).unwrap_or_default(),
                );
                self.metrics().set(&names::RELIST_LAST_SEEN, &[], now.as_secs_f64().trunc());
            }
            RelistTarget::Pod(_) => self.metrics().took(&names::POD_RELIST_DURATION, &[], took),
            RelistTarget::Listing => {}
        }
    }

    /// Requests relists of the pods that came, went or changed since the last listing.
    fn apply_listing(&mut self, listed: ListedPods) {
        let Some((known, _)) = &mut self.quick else { return };
        let before = std::mem::replace(known, listed);
        let is_other = |uid: &&String| known.get(*uid) != before.get(*uid);
        let changed = known.keys().chain(before.keys()).filter(is_other).cloned();
        self.waiting.pods.extend(changed);
    }

    fn retry(&mut self, uid: &str, failure: &RelistError) {
        let first = || (Instant::now(), ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY));
        if self.answering.remove(uid) {
            self.awaited.insert(uid.to_owned());
        }
        let new = !self.retries.contains_key(uid);
        let (at, back_off) = self.retries.entry(uid.to_owned()).or_insert_with(first);
        let pause = back_off.pause();
        *at = Instant::now() + pause;
        if new {
            let why = &failure.why;
            warn!(pod_uid = uid, err = why, "Cannot see a pod in the runtime; trying again");
        }
        self.emit_failed_sync(uid, failure, pause);
    }

    /// Emits the pod's event at selected retries, unless the runtime cannot be listed either.
    fn emit_failed_sync(&self, uid: &str, failure: &RelistError, pause: Duration) {
        let known = self.known(uid);
        let stage = match pause {
            first if first <= FIRST_RETRY => FailureStage::First,
            second if second <= FIRST_RETRY * 2 => FailureStage::Second,
            early if early < LONGEST_RETRY => FailureStage::Early,
            _ => FailureStage::Slow,
        };
        let is_listed = self.shared.list_error.borrow().is_none();
        if is_listed && let Some(event) = failed_sync::event(failure, known.as_deref(), stage) {
            self.shared.status_store.emit_by_uid(uid, event, self.shared.clock.now());
        }
    }

    fn apply_all(&mut self, seen: RelistResult) {
        let RelistResult { as_of, mut pods, unreadable_pods, .. } = seen;
        self.unreadable_pods.clear();
        for (uid, pod) in &unreadable_pods {
            pods.remove(uid);
            self.retry(uid, &RelistError::new(&pod.why));
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            let is_kubelet_pod = pod.is_kubelet_pod;
            let name = RuntimePodName { namespace, name, is_kubelet_pod, is_unread: true };
            self.unreadable_pods.insert(uid.clone(), name);
        }
        // A watched pod that was not listed does not exist.
        let watched: Vec<String> = self.shared.pods().keys().cloned().collect();
        for uid in watched.into_iter().filter(|uid| !unreadable_pods.contains_key(uid)) {
            let nothing = ObservedPod { as_of, ..ObservedPod::default() };
            pods.entry(uid).or_insert(nothing);
        }
        for (uid, pod) in pods {
            self.publish(&uid, pod, false);
        }
        self.shared.inventory.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(Arc::default());
            }
            first
        });
        self.publish_inventory();
        self.forget_unwatched();
    }

    /// Publishes the observation unless a later one is known; wakes an awaiting worker in any case.
    fn publish(&mut self, uid: &str, mut pod: ObservedPod, is_awaited: bool) {
        let mut pods = self.shared.pods();
        let sender = pods.entry(uid.to_owned()).or_insert_with(|| watch::Sender::new(None));
        let known = sender.borrow().clone();
        if known.as_ref().is_some_and(|known| known.as_of >= pod.as_of) {
            // A later one is known and answers the request just as well.
            sender.send_if_modified(|_| is_awaited);
            return;
        }
        let same = known.filter(|known| has_same_content(known, &pod));
        let is_changed = same.is_none();
        if let Some(known) = same {
            // The pod's worker is not woken and keeps the earlier one: both share one copy.
            pod.sandboxes = known.sandboxes.clone();
            pod.containers = known.containers.clone();
        }
        let wake = is_awaited || is_changed;
        let pod = Some(Arc::new(pod));
        sender.send_if_modified(|known| {
            *known = pod;
            wake
        });
    }

    fn publish_inventory(&self) {
        let pods = self.shared.pods();
        let present = |(uid, sender): (&String, &watch::Sender<Observation>)| {
            let observation = sender.borrow().clone();
            let pod = observation.filter(|pod| !is_nothing(pod))?;
            Some((uid.clone(), name_of(&pod)))
        };
        let mut inventory = self.unreadable_pods.clone();
        inventory.extend(pods.iter().filter_map(present));
        drop(pods);
        self.shared.inventory.send_if_modified(|known| match known {
            Some(known) if **known != inventory => {
                *known = Arc::new(inventory);
                true
            }
            // Before the first listing the inventory must not appear complete.
            _ => false,
        });
    }

    fn forget_unwatched(&mut self) {
        let mut pods = self.shared.pods();
        let mut containers = BTreeSet::new();
        pods.retain(|uid, sender| {
            let observation = sender.borrow().clone();
            let there = observation.as_ref().is_some_and(|pod| !is_nothing(pod));
            for container in observation.iter().flat_map(|pod| &pod.containers) {
                containers.insert(container.record.id.clone());
            }
            let stays = there || sender.receiver_count() > 0;
            if !stays {
                self.retries.remove(uid);
            }
            stays
        });
        drop(pods);
        self.shared.messages.retain(&containers);
    }

    fn mark_listable(&mut self) {
        if self.shared.mark_listed() {
            self.asks_for_events = self.quick.is_some();
        }
    }
}
