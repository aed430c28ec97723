//! The task that owns the cache: it hears the runtime's events and decides what to look at when.

use super::build::{is_nothing, name_of, saw_the_same};
use super::look::{Seen, Target, look};
use super::{Observation, Observed, RuntimePodName, Shared, Wanted};
use crate::back_off::BackOff;
use crate::branch::{Branch, Panicked};
use pod_lifecycle::ObservedPod;
use ports::runtime_objects::RuntimeSignal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

/// The safety net under the event stream.
const SLOW_LISTING: Duration = Duration::from_secs(300);
/// In place of a stream that the runtime does not have.
const QUICK_LISTING: Duration = Duration::from_secs(1);
/// While the stream is lost: the runtime may answer calls all the same.
const LOST_LISTING: Duration = Duration::from_secs(5);
/// Looks at single pods that may run side by side.
const MOST_LOOKS: usize = 8;
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Keeps the cache for ever.
pub(crate) async fn watch_pods(observed: Observed) {
    let shared = observed.shared;
    shared.wanted().all = true;
    let mut signals = shared.runtime.signals();
    let mut owner = Owner::new(shared.clone());
    loop {
        owner.start_looks();
        let due = owner.next_due();
        tokio::select! {
            signal = signals.next() => owner.hear(signal),
            () = shared.look_again.notified() => {}
            (target, outcome) = owner.looks.next() => owner.looked(target, outcome),
            () = tokio::time::sleep_until(due) => owner.on_time(),
        }
    }
}

struct Owner {
    shared: Arc<Shared>,
    looks: Branch<Target, Result<Seen, String>>,
    /// Wanted by somebody; to be looked at as soon as there is room.
    waiting: Wanted,
    /// Pods that a worker wants looked at; it is woken even when nothing is new.
    awaited: BTreeSet<String>,
    /// Of those, the ones whose look has begun: an earlier look is no answer.
    answering: BTreeSet<String>,
    listing_pause: Duration,
    next_listing: Instant,
    listing_retry: BackOff,
    /// Pods whose last look failed: when to try again.
    retries: BTreeMap<String, (Instant, BackOff)>,
    /// Pods that the runtime listed and that were never read: they are there all the same.
    unread: BTreeMap<String, RuntimePodName>,
}

impl Owner {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            looks: Branch::default(),
            waiting: Wanted::default(),
            awaited: BTreeSet::new(),
            answering: BTreeSet::new(),
            listing_pause: SLOW_LISTING,
            next_listing: Instant::now() + SLOW_LISTING,
            listing_retry: BackOff::new(FIRST_RETRY, LONGEST_RETRY),
            retries: BTreeMap::new(),
            unread: BTreeMap::new(),
        }
    }

    fn hear(&mut self, signal: RuntimeSignal) {
        match signal {
            RuntimeSignal::Event(event) if event.pod_uid.is_empty() => self.waiting.all = true,
            RuntimeSignal::Event(event) => {
                self.waiting.pods.insert(event.pod_uid);
            }
            RuntimeSignal::Connected => {
                info!(v = 2, "Hearing the container runtime's events");
                self.shared.is_back.notify_one();
                self.listing_pause = SLOW_LISTING;
                self.waiting.all = true;
            }
            RuntimeSignal::Lost(why) => {
                warn!(err = why, "The container runtime's events are not heard any more");
                self.listing_pause = LOST_LISTING;
                self.waiting.all = true;
            }
            RuntimeSignal::Unsupported => {
                warn!("This container runtime has no event stream; it is listed every second");
                self.listing_pause = QUICK_LISTING;
                self.waiting.all = true;
            }
        }
        self.next_listing = self.next_listing.min(Instant::now() + self.listing_pause);
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if now >= self.next_listing {
            self.waiting.all = true;
            self.next_listing = now + self.listing_pause;
        }
        let due = self.retries.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<String> = due.map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            // Kept with its back-off; the time moves on when the look is over.
            if let Some((at, _)) = self.retries.get_mut(&uid) {
                *at = now + LONGEST_RETRY;
            }
            self.waiting.pods.insert(uid);
        }
    }

    fn next_due(&self) -> Instant {
        let retry = self.retries.values().map(|(at, _)| *at).min();
        retry.map_or(self.next_listing, |retry| retry.min(self.next_listing))
    }

    /// Begins what is wanted, as far as there is room; one look per pod at a time.
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
        let room = MOST_LOOKS.saturating_sub(self.looks.len());
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
        let task = look(self.shared.clone(), target.clone());
        self.looks.start(target, "look at the runtime", task);
    }

    fn looked(&mut self, target: Target, outcome: Result<Result<Seen, String>, Panicked>) {
        let outcome = outcome.unwrap_or_else(|Panicked(why)| Err(format!("a panic: {why}")));
        match (target, outcome) {
            (Target::All, Ok(seen)) => {
                self.listing_retry.reset();
                self.is_well();
                self.take_all(seen);
            }
            (Target::All, Err(why)) => {
                self.is_troubled(&why);
                let pause = self.listing_retry.pause();
                self.next_listing = Instant::now() + pause.min(self.listing_pause);
            }
            (Target::Pod(uid), Ok(seen)) => {
                let Seen { mut pods, unread, .. } = seen;
                match (unread.get(&uid), pods.remove(&uid)) {
                    (Some(unread), _) => self.retry(&uid, &unread.why),
                    (None, Some(pod)) => {
                        self.retries.remove(&uid);
                        self.unread.remove(&uid);
                        let is_awaited = self.answering.remove(&uid);
                        self.publish(&uid, pod, is_awaited);
                        self.publish_inventory();
                    }
                    (None, None) => {}
                }
            }
            (Target::Pod(uid), Err(why)) => self.retry(&uid, &why),
        }
    }

    fn retry(&mut self, uid: &str, why: &str) {
        let first = || (Instant::now(), BackOff::new(FIRST_RETRY, LONGEST_RETRY));
        if self.answering.remove(uid) {
            self.awaited.insert(uid.to_owned());
        }
        let new = !self.retries.contains_key(uid);
        let (at, back_off) = self.retries.entry(uid.to_owned()).or_insert_with(first);
        *at = Instant::now() + back_off.pause();
        if new {
            warn!(pod_uid = uid, err = why, "Cannot see a pod in the runtime; trying again");
        }
    }

    fn take_all(&mut self, seen: Seen) {
        let Seen { as_of, mut pods, unread } = seen;
        self.unread.clear();
        for (uid, pod) in &unread {
            pods.remove(uid);
            self.retry(uid, &pod.why);
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            let name = RuntimePodName { namespace, name, of_kubelet: pod.of_kubelet };
            self.unread.insert(uid.clone(), name);
        }
        // What is watched and was not listed is not there.
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

    /// Makes the observation known unless a later one is; whoever awaits it is woken in any case.
    fn publish(&mut self, uid: &str, pod: ObservedPod, is_awaited: bool) {
        let mut pods = self.shared.pods();
        let sender = pods.entry(uid.to_owned()).or_insert_with(|| watch::Sender::new(None));
        let known = sender.borrow().clone();
        if known.as_ref().is_some_and(|known| known.as_of >= pod.as_of) {
            // A later one is there, and answers just as well.
            sender.send_if_modified(|_| is_awaited);
            return;
        }
        let news = known.is_none_or(|known| !saw_the_same(&known, &pod));
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
            // Before the first listing nobody may believe that it is whole.
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

    fn is_well(&self) {
        let was = self.shared.trouble.send_replace(None);
        if was.is_some() {
            info!("The container runtime can be listed again");
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
