//! The task that owns the cache: it receives the runtime's events and decides what to relist when.
//!
//! Rules: one relist per pod at a time, and a limited number in parallel; a slow one releases its
//! slot to others and continues. A runtime that was away is listed in full once its events arrive
//! again. Without an event stream, listings alone show which pods to relist. A clock that is set
//! back makes all earlier stamps worthless: relists start over, and watchers of pods are notified.

use super::build::{is_nothing, name_of, saw_the_same};
use super::look::{LookFailure, Seen, Target, ended, look};
use super::unseen::{self, Turn};
use super::{Observation, Observed, RuntimePodName, Shared, Wanted};
use crate::back_off::BackOff;
use crate::branch::{Branch, Panicked};
use crate::loop_beats::LoopBeats;
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
use tracing::{error, info, warn};

/// The safety net under the event stream.
const SLOW_LISTING: Duration = Duration::from_secs(300);
/// Instead of an event stream that the runtime does not have.
const QUICK_LISTING: Duration = Duration::from_secs(1);
/// While the runtime gives no stream but answers calls.
const LOST_LISTING: Duration = Duration::from_secs(5);
/// While the runtime is not known to answer, in case it does and nothing else shows it.
const UNHEARD_LISTING: Duration = Duration::from_secs(30);
/// Relists of single pods in parallel.
const MOST_LOOKS: usize = 8;
/// After this long a relist releases its slot.
const KEEPS_ITS_PLACE: Duration = Duration::from_secs(2);
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Keeps the cache up to date for ever.
pub(crate) async fn watch_pods(observed: Observed, beats: LoopBeats) {
    let shared = observed.shared;
    // After a panic of this task, watchers still wait for their relists.
    let known: Vec<String> = shared.pods().keys().cloned().collect();
    *shared.wanted() = Wanted { pods: known.into_iter().collect(), all: true };
    let mut jumps = shared.clock.jumps();
    let mut signals = shared.runtime.signals();
    let mut owner = Owner::new(shared.clone());
    loop {
        owner.start_looks();
        let due = owner.next_due();
        let heard = tokio::select! {
            signal = signals.next() => Heard::Signal(signal),
            () = shared.look_again.notified() => Heard::Asked,
            (target, outcome) = owner.looks.next() => Heard::Looked(target, outcome),
            () = tokio::time::sleep_until(due) => Heard::Time,
            Ok(()) = jumps.changed() => Heard::Asked,
            () = beats.keep("observed-pods") => Heard::Asked,
        };
        if owner.knows_jumps != *jumps.borrow_and_update() {
            owner.clock_was_set_back(*jumps.borrow());
        }
        match heard {
            Heard::Signal(signal) => owner.hear(signal),
            Heard::Asked => {}
            Heard::Looked(target, outcome) => owner.looked(target, outcome),
            Heard::Time => owner.on_time(),
        }
        if std::mem::take(&mut owner.asks_for_events) {
            signals = shared.runtime.signals();
        }
    }
}

/// What wakes the loop.
enum Heard {
    Signal(RuntimeSignal),
    Asked,
    Looked(Target, Result<Result<Seen, LookFailure>, Panicked>),
    Time,
}

struct Owner {
    shared: Arc<Shared>,
    looks: Branch<Target, Result<Seen, LookFailure>>,
    /// Start of each relist in flight, by the monotonic and by the wall clock.
    begun: BTreeMap<Target, (Instant, ApiTime)>,
    /// Requested; started as soon as there is a slot.
    waiting: Wanted,
    /// Pods that a worker wants relisted; it is woken even if nothing has changed.
    awaited: BTreeSet<String>,
    /// Those of them whose relist has begun: an earlier one does not count.
    answering: BTreeSet<String>,
    listing_pause: Duration,
    next_listing: Instant,
    /// When the last full listing began.
    last_listing: Option<Instant>,
    listing_retry: BackOff,
    /// Pods whose last relist failed: when to retry.
    retries: BTreeMap<String, (Instant, BackOff)>,
    /// Pods that the runtime listed and that were never read: they exist all the same.
    unread: BTreeMap<String, RuntimePodName>,
    /// For a runtime without an event stream: the last listing, and when the next one is due.
    quick: Option<(ListedPods, Instant)>,
    /// The runtime was away: its successor may have an event stream.
    asks_for_events: bool,
    /// No event stream, and the runtime is not known to answer.
    is_lost: bool,
    knows_jumps: u64,
}

impl Owner {
    fn new(shared: Arc<Shared>) -> Self {
        let knows_jumps = *shared.clock.jumps().borrow();
        Self {
            shared,
            looks: Branch::default(),
            begun: BTreeMap::new(),
            waiting: Wanted::default(),
            awaited: BTreeSet::new(),
            answering: BTreeSet::new(),
            listing_pause: SLOW_LISTING,
            next_listing: Instant::now() + SLOW_LISTING,
            last_listing: None,
            listing_retry: BackOff::new(FIRST_RETRY, LONGEST_RETRY),
            retries: BTreeMap::new(),
            unread: BTreeMap::new(),
            quick: None,
            asks_for_events: false,
            is_lost: false,
            knows_jumps,
        }
    }

    /// Earlier stamps are in the future now and would keep new observations out.
    fn clock_was_set_back(&mut self, jumps: u64) {
        self.knows_jumps = jumps;
        for target in std::mem::take(&mut self.begun).into_keys() {
            self.looks.abort(&target);
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

    fn hear(&mut self, signal: RuntimeSignal) {
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
                Some(uid) if self.is_seen_to(&uid, &event) => {}
                Some(uid) => self.take_end_or_look(uid, event.ended),
                None => self.waiting.all = true,
            },
            RuntimeSignal::Connected => {
                info!(v = 2, "Hearing the container runtime's events");
                self.metrics().count(&names::EVENTED_SUCCESSES, &[]);
                self.shared.is_back.notify_one();
                self.listing_pause = SLOW_LISTING;
                self.is_lost = false;
                self.quick = None;
                self.waiting.all = true;
            }
            RuntimeSignal::Lost(why) => {
                warn!(err = why, "Lost the container runtime's event stream");
                self.metrics().count(&names::EVENTED_ERRORS, &[]);
                self.shared.trouble.send_replace(Some(why));
                self.listing_pause = UNHEARD_LISTING;
                self.is_lost = true;
                self.quick = None;
                self.list_once_heard_of();
            }
            RuntimeSignal::Refused(why) => {
                warn!(
                    err = why,
                    seconds = LOST_LISTING.as_secs(),
                    "The container runtime answers but gives no events; it is listed now and then"
                );
                self.metrics().count(&names::EVENTED_ERRORS, &[]);
                self.listing_pause = LOST_LISTING;
                self.is_lost = false;
                self.waiting.all = true;
            }
            RuntimeSignal::Unsupported => {
                warn!("This container runtime has no event stream; it is listed every second");
                self.listing_pause = SLOW_LISTING;
                self.is_lost = false;
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
    fn is_seen_to(&self, uid: &str, event: &RuntimeEvent) -> bool {
        match event.kind {
            RuntimeEventKind::Started => {
                self.shared.is_starting(uid) || self.is_looked_at_since(uid, event)
            }
            RuntimeEventKind::Stopped => self.known(uid).is_some_and(|pod| {
                let mut all = pod.containers.iter().map(|container| &container.record);
                all.any(|record| record.id == event.id && record.state == ContainerState::Exited)
            }),
            _ => false,
        }
    }

    fn is_looked_at_since(&self, uid: &str, event: &RuntimeEvent) -> bool {
        let looks = [Target::Pod(uid.to_owned()), Target::All];
        let looks = looks.iter().filter_map(|look| self.begun.get(look)).map(|(_, stamp)| *stamp);
        let known = self.known(uid).map(|pod| pod.as_of);
        let latest = looks.chain(known).max();
        event.created_at > 0 && latest.is_some_and(|stamp| stamp.nanos() > event.created_at)
    }

    fn known(&self, uid: &str) -> Observation {
        self.shared.pods().get(uid).and_then(|sender| sender.borrow().clone())
    }

    /// Applies a container's exit from the event if the pod is known and no relist is pending or
    /// running; otherwise relists the pod. A relist that began before and ends later would undo the
    /// exit.
    fn take_end_or_look(&mut self, uid: String, end: Option<Box<ContainerRecord>>) {
        let target = Target::Pod(uid.clone());
        let is_due = self.waiting.all || self.waiting.pods.contains(&uid);
        let is_looked_at = self.looks.contains(&target) || self.looks.contains(&Target::All);
        let is_unsure = self.retries.contains_key(&uid) || self.unread.contains_key(&uid);
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
                self.looks.start(target, "take a container's end", task);
            }
            _ => {
                self.waiting.pods.insert(uid);
            }
        }
    }

    /// The runtime does not answer now and is listed in full when it does: not once more before.
    fn list_once_heard_of(&mut self) {
        self.waiting.all = false;
        self.next_listing = Instant::now() + self.listing_pause;
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if now >= self.next_listing {
            self.waiting.all = true;
            self.next_listing = now + self.listing_pause;
        }
        let listing = Target::Listing;
        if let Some((_, at)) = self.quick.as_mut().filter(|(_, at)| *at <= now) {
            *at = now + QUICK_LISTING;
            if !self.looks.contains(&listing) {
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
        let oldest = self.holding_places().min().filter(|_| !self.waiting.pods.is_empty());
        let place = oldest.map(|began| began + KEEPS_ITS_PLACE);
        let others = [retry, quick, place].into_iter().flatten();
        others.fold(self.next_listing, Instant::min)
    }

    /// Start times of the relists that hold slots.
    fn holding_places(&self) -> impl Iterator<Item = Instant> {
        let now = Instant::now();
        let begun = self.begun.values().map(|(began, _)| *began);
        begun.filter(move |began| now.duration_since(*began) < KEEPS_ITS_PLACE)
    }

    /// Starts requested relists while there are slots; one per pod at a time.
    fn start_looks(&mut self) {
        let asked = std::mem::take(&mut *self.shared.wanted());
        self.waiting.all |= asked.all;
        self.awaited.extend(asked.pods.iter().cloned());
        self.waiting.pods.extend(asked.pods);
        if self.waiting.all && !self.looks.contains(&Target::All) {
            self.waiting.all = false;
            self.next_listing = Instant::now() + self.listing_pause;
            self.begin(Target::All);
        }
        let room = MOST_LOOKS.saturating_sub(self.holding_places().count());
        let free = |uid: &&String| !self.looks.contains(&Target::Pod((*uid).clone()));
        let next: Vec<String> = self.waiting.pods.iter().filter(free).take(room).cloned().collect();
        for uid in next {
            self.waiting.pods.remove(&uid);
            if self.awaited.remove(&uid) {
                self.answering.insert(uid.clone());
            }
            self.begin(Target::Pod(uid));
        }
    }

    fn begin(&mut self, target: Target) {
        let now = Instant::now();
        self.begun.insert(target.clone(), (now, self.shared.clock.now()));
        if target == Target::All
            && let Some(last) = self.last_listing.replace(now)
        {
            self.metrics().took(&names::RELIST_INTERVAL, &[], now - last);
        }
        let task = look(self.shared.clone(), target.clone());
        self.looks.start(target, "look at the runtime", task);
    }

    fn looked(&mut self, target: Target, outcome: Result<Result<Seen, LookFailure>, Panicked>) {
        // An unknown one was started before the clock was set back.
        let Some((began, _)) = self.begun.remove(&target) else { return };
        let panicked = |Panicked(why)| Err(LookFailure::new(format!("a panic: {why}")));
        let outcome = outcome.unwrap_or_else(panicked);
        let is_answer = outcome.as_ref().is_ok_and(|seen| !seen.is_told);
        self.count_look(&target, is_answer.then(|| began.elapsed()));
        match (target, outcome) {
            (Target::All, Ok(seen)) => {
                self.listing_retry.reset();
                self.is_well();
                self.take_all(seen);
            }
            (Target::Listing, Ok(seen)) => {
                self.is_well();
                self.take_listing(seen.listed);
            }
            (Target::Listing, Err(failure)) => self.is_troubled(&failure.why),
            (Target::All, Err(failure)) => {
                self.is_troubled(&failure.why);
                if self.is_lost {
                    self.list_once_heard_of();
                } else {
                    let pause = self.listing_retry.pause();
                    self.next_listing = Instant::now() + pause.min(self.listing_pause);
                }
            }
            (Target::Pod(uid), Ok(seen)) => {
                let Seen { mut pods, unread, is_told, .. } = seen;
                match (unread.get(&uid), pods.remove(&uid)) {
                    (Some(unread), _) => self.retry(&uid, &LookFailure::new(&unread.why)),
                    (None, Some(pod)) => {
                        // An event shows nothing of whether the runtime answers.
                        if !is_told {
                            self.retries.remove(&uid);
                            self.unread.remove(&uid);
                        }
                        let is_awaited = self.answering.remove(&uid);
                        self.publish(&uid, pod, is_awaited);
                        self.publish_inventory();
                    }
                    (None, None) => {}
                }
            }
            (Target::Pod(uid), Err(failure)) => self.retry(&uid, &failure),
        }
    }

    fn metrics(&self) -> &Metrics {
        self.shared.board.metrics()
    }

    /// `took`: of an answered relist; only those are counted, so that the interval is between two
    /// listings that have shown the runtime's state.
    fn count_look(&self, target: &Target, took: Option<Duration>) {
        let Some(took) = took else { return };
        match target {
            Target::All => {
                self.metrics().took(&names::RELIST_DURATION, &[], took);
                let now = Duration::from_nanos(
                    u64::try_from(self.shared.clock.now().nanos()).unwrap_or_default(),
                );
                self.metrics().set(&names::RELIST_LAST_SEEN, &[], now.as_secs_f64().trunc());
            }
            Target::Pod(_) => self.metrics().took(&names::POD_RELIST_DURATION, &[], took),
            Target::Listing => {}
        }
    }

    /// Requests relists of the pods that came, went or changed since the last listing.
    fn take_listing(&mut self, listed: ListedPods) {
        let Some((known, _)) = &mut self.quick else { return };
        let before = std::mem::replace(known, listed);
        let is_other = |uid: &&String| known.get(*uid) != before.get(*uid);
        let changed = known.keys().chain(before.keys()).filter(is_other).cloned();
        self.waiting.pods.extend(changed);
    }

    fn retry(&mut self, uid: &str, failure: &LookFailure) {
        let first = || (Instant::now(), BackOff::new(FIRST_RETRY, LONGEST_RETRY));
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
        self.tell_unseen(uid, failure, pause);
    }

    /// Emits the pod's event at selected retries. While the runtime cannot be listed either, it is
    /// no matter of the pod.
    fn tell_unseen(&self, uid: &str, failure: &LookFailure, pause: Duration) {
        let known = self.known(uid);
        let turn = match pause {
            first if first <= FIRST_RETRY => Turn::First,
            second if second <= FIRST_RETRY * 2 => Turn::Second,
            early if early < LONGEST_RETRY => Turn::Early,
            _ => Turn::Slow,
        };
        let is_listed = self.shared.trouble.borrow().is_none();
        if is_listed && let Some(event) = unseen::event(failure, known.as_deref(), turn) {
            self.shared.board.tell_of(uid, event, self.shared.clock.now());
        }
    }

    fn take_all(&mut self, seen: Seen) {
        let Seen { as_of, mut pods, unread, .. } = seen;
        self.unread.clear();
        for (uid, pod) in &unread {
            pods.remove(uid);
            self.retry(uid, &LookFailure::new(&pod.why));
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            let of_kubelet = pod.of_kubelet;
            let name = RuntimePodName { namespace, name, of_kubelet, is_unread: true };
            self.unread.insert(uid.clone(), name);
        }
        // A watched pod that was not listed does not exist.
        let watched: Vec<String> = self.shared.pods().keys().cloned().collect();
        for uid in watched.into_iter().filter(|uid| !unread.contains_key(uid)) {
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

    /// Publishes the observation unless a later one is known; an awaiting worker is woken in any
    /// case.
    fn publish(&mut self, uid: &str, mut pod: ObservedPod, is_awaited: bool) {
        let mut pods = self.shared.pods();
        let sender = pods.entry(uid.to_owned()).or_insert_with(|| watch::Sender::new(None));
        let known = sender.borrow().clone();
        if known.as_ref().is_some_and(|known| known.as_of >= pod.as_of) {
            // A later one is known and answers the request just as well.
            sender.send_if_modified(|_| is_awaited);
            return;
        }
        let same = known.filter(|known| saw_the_same(known, &pod));
        let news = same.is_none();
        if let Some(known) = same {
            // The pod's worker is not woken and keeps the earlier one: both share one copy.
            pod.sandboxes = known.sandboxes.clone();
            pod.containers = known.containers.clone();
        }
        let wake = is_awaited || news;
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
        let mut inventory = self.unread.clone();
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
        self.shared.messages.keep_only(&containers);
    }

    fn is_well(&mut self) {
        let was = self.shared.trouble.send_replace(None);
        if was.is_some() {
            info!("The container runtime can be listed again");
            self.asks_for_events = self.quick.is_some();
            self.shared.is_back.notify_one();
        }
    }

    fn is_troubled(&self, why: &str) {
        let changed = self.shared.trouble.send_if_modified(|known| {
            let changed = known.as_deref() != Some(why);
            *known = Some(why.to_owned());
            changed
        });
        if changed {
            error!(err = why, "Cannot list the container runtime's pods; trying again");
        }
    }
}
