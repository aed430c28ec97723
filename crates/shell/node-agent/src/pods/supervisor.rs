//! Pod workers: started for desired pods, asked to end pods that are not desired any more,
//! restarted after a panic.
//!
//! Rules: one worker per UID. Two pods of the same full name never run at once: the later one waits
//! until nothing is left of the earlier, in order of arrival. Nothing ends before every source has
//! been read, nor anything that a pod without a UID may adopt; after that, pods in the runtime that
//! are not desired end too. Decides nothing else.

use super::worker::{self, WorkerEnd};
use super::{PodContext, SavedMemories};
use crate::back_off::BackOff;
use crate::board::PodOrigin;
use crate::branch::{Branch, Panicked};
use crate::loop_beats::LoopBeats;
use crate::metrics::names;
use crate::observed::{Inventory, RuntimePodName};
use crate::sources::WantedPods;
use node_policy::admission::{PREEMPTED_DISRUPTION, PREEMPTED_MESSAGE, PREEMPTED_REASON};
use pod_desired::Identified;
use pod_lifecycle::{
    DesiredPod, Disruption, EndCause, EndWish, EventKind, PodEvent, PodMemory, Waiting, Wish,
};
use pod_model::pod::Pod;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);
/// An orphan has no specification with a grace period.
const ORPHAN_GRACE_SECONDS: i64 = 1;

/// The pods that are here; garbage collection removes what belongs to others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ActivePods {
    pub(crate) uids: BTreeSet<String>,
    /// Every source has been read, and the runtime was listed.
    pub(crate) is_whole: bool,
}

struct Held {
    desired: watch::Sender<DesiredPod>,
    full_name: String,
    restart: BackOff,
    /// When to restart after a panic.
    restart_at: Option<Instant>,
    /// Waits for an earlier pod of the same name.
    is_queued: bool,
    /// It had a worker already.
    has_begun: bool,
    /// It ends, and its UID is desired again.
    is_wanted_again: bool,
}

struct Supervisor {
    context: Arc<PodContext>,
    workers: Branch<String, WorkerEnd>,
    held: BTreeMap<String, Held>,
    /// By full name: the running pod comes first.
    queues: BTreeMap<String, VecDeque<String>>,
    active: watch::Sender<ActivePods>,
}

/// Runs for ever.
pub(crate) async fn supervise(
    context: Arc<PodContext>,
    mut wanted: watch::Receiver<WantedPods>,
    active: watch::Sender<ActivePods>,
    beats: LoopBeats,
) {
    let saved: SavedMemories = context.saved.clone();
    saved.load().await;
    let mut inventory = context.observed.inventory();
    let mut node = context.node.clone();
    let mut kill_now = context.kill_now.clone();
    let mut supervisor = Supervisor {
        context,
        workers: Branch::default(),
        held: BTreeMap::new(),
        queues: BTreeMap::new(),
        active,
    };
    loop {
        let now_wanted = wanted.borrow_and_update().clone();
        let is_heard_of = node.borrow_and_update().strict_groups.is_some();
        let listed = inventory.borrow_and_update().clone();
        if *kill_now.borrow_and_update() {
            supervisor.kill_ending();
        }
        supervisor.follow(&now_wanted, listed.as_deref());
        let restart = supervisor.next_restart();
        let give_up = supervisor.context.admissions.next_give_up();
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            changed = inventory.changed() => if changed.is_err() { return },
            changed = node.changed(), if !is_heard_of => if changed.is_err() { return },
            (uid, end) = supervisor.workers.next() => supervisor.ended(&uid, end),
            () = tokio::time::sleep_until(restart.unwrap_or_else(Instant::now)), if restart.is_some() => {
                supervisor.restart_due();
            }
            () = tokio::time::sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                supervisor.give_up();
            }
            Ok(()) = kill_now.changed() => {}
            () = beats.keep("pods") => {}
        }
    }
}

impl Supervisor {
    /// Reconciles workers with the desired pods and the runtime's inventory.
    fn follow(&mut self, wanted: &WantedPods, listed: Option<&Inventory>) {
        let uids: BTreeSet<&str> = wanted.pods.iter().map(|each| &*each.pod.metadata.uid).collect();
        // Before a new pod is started: garbage collection must not remove what it creates.
        self.tell_active(&uids, wanted.is_whole && listed.is_some());
        let is_gone = |(uid, held): &(&String, &Held)| {
            let meta = &held.desired.borrow().pod.metadata;
            !uids.contains(uid.as_str()) && wanted.lets_go(&meta.namespace, &meta.name)
        };
        let gone: Vec<String> =
            self.held.iter().filter(is_gone).map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            self.unwant(&uid);
        }
        // Before the runtime was listed it is not known what must end first.
        if let Some(listed) = listed {
            let unknown: Vec<(&String, &RuntimePodName)> = listed
                .iter()
                .filter(|(uid, _)| !self.held.contains_key(*uid) && !uids.contains(uid.as_str()))
                .filter(|(_, name)| name.of_kubelet)
                .collect();
            let may_end = |name: &RuntimePodName| wanted.lets_go(&name.namespace, &name.name);
            for (uid, name) in unknown.iter().filter(|(_, name)| may_end(name)) {
                self.end_orphan(uid, name);
            }
            for identified in &wanted.pods {
                let blocker = unknown.iter().find(|(_, name)| is_named(&identified.pod, name));
                self.want(identified, blocker.map(|(uid, _)| uid.as_str()));
            }
        } else {
            for identified in &wanted.pods {
                self.context.board.put(&identified.pod, &origin(identified));
                self.wait_for_runtime(&identified.pod.metadata.uid);
            }
        }
        let shown = |uid: &str| self.held.contains_key(uid) || uids.contains(uid);
        self.context.board.keep_only(shown);
        self.tell_active(&uids, wanted.is_whole && listed.is_some());
    }

    fn tell_active(&self, wanted: &BTreeSet<&str>, is_whole: bool) {
        let wanted = wanted.iter().map(ToString::to_string);
        let active =
            ActivePods { uids: self.held.keys().cloned().chain(wanted).collect(), is_whole };
        self.active.send_if_modified(|known| {
            let changed = *known != active;
            if changed {
                *known = active;
            }
            changed
        });
    }

    /// `blocker`: the UID of a pod of the same name that runs and has no worker.
    fn want(&mut self, identified: &Identified, blocker: Option<&str>) {
        let pod = &identified.pod;
        let uid = pod.metadata.uid.to_string();
        let desired = DesiredPod { pod: pod.clone(), wish: Wish::Run };
        if let Some(held) = self.held.get_mut(&uid) {
            // A pod that ends is never revived under its UID; a stated UID that is desired again
            // gets a worker once nothing is left of the first.
            let ends = matches!(held.desired.borrow().wish, Wish::End(_));
            if !ends && *held.desired.borrow() != desired {
                self.context.board.put(pod, &origin(identified));
                held.desired.send_replace(desired);
            }
            self.note_wanted_again(&uid);
            return;
        }
        let desired = self.unfinished_end(pod).unwrap_or(desired);
        self.context.board.put(&desired.pod, &origin(identified));
        // Whether a new pod may run depends on the runtime's abilities.
        let is_heard_of = self.context.node.borrow().strict_groups.is_some();
        if !is_heard_of && self.context.saved.get(&uid).is_none() {
            self.wait_for_runtime(&uid);
            return;
        }
        match blocker.filter(|blocker| !self.held.contains_key(*blocker)) {
            Some(blocker) => self.context.board.wait(
                &uid,
                Waiting {
                    why: format!("another pod of the same name (UID {blocker}) still runs"),
                    next_step: "it starts by itself once every source of pods has spoken"
                        .to_owned(),
                },
            ),
            None => {
                self.hold(&uid, desired);
                self.note_wanted_again(&uid);
            }
        }
    }

    /// For a desired pod whose removal an earlier agent began and did not finish: that removal goes
    /// on with the pod as it was then, so that the new one starts from nothing.
    fn unfinished_end(&self, pod: &Arc<Pod>) -> Option<DesiredPod> {
        let uid = &*pod.metadata.uid;
        let memory = self.context.saved.get(uid)?;
        let removed = self.context.saved.ending_pod(uid);
        if !PodMemory::is_end_by_removal(&memory, removed.is_some()) {
            return None;
        }
        let name = pod.full_name();
        info!(pod = name, pod_uid = uid, "A pod goes on ending before it begins again");
        // The rest of its grace period is in its memory.
        let (cause, asked_at) = (EndCause::ManifestRemoved, self.context.clock.now());
        let end = EndWish { cause, grace_seconds: self.grace_seconds(), asked_at };
        Some(DesiredPod { pod: removed.unwrap_or_else(|| pod.clone()), wish: Wish::End(end) })
    }

    /// Counts once that a pod is desired while it ends.
    fn note_wanted_again(&mut self, uid: &str) {
        let Some(held) = self.held.get_mut(uid) else { return };
        let is_over = held.desired.borrow().is_wished_away();
        if is_over && !std::mem::replace(&mut held.is_wanted_again, true) {
            self.context.board.metrics().count(&names::RESTARTED_PODS, &["true"]);
        }
    }

    /// Sets the pod's status to waiting for the runtime.
    fn wait_for_runtime(&self, uid: &str) {
        let why = match &self.context.node.borrow().runtime_ready {
            Err(why) => format!("the container runtime cannot be used: {why}"),
            Ok(()) => "what the container runtime has is not known yet".to_owned(),
        };
        let next_step = "see that the runtime is up; the pod goes on by itself then".to_owned();
        self.context.board.wait(uid, Waiting { why, next_step });
    }

    fn hold(&mut self, uid: &str, desired: DesiredPod) {
        let full_name = desired.pod.full_name();
        let queue = self.queues.entry(full_name.clone()).or_default();
        queue.push_back(uid.to_owned());
        let is_queued = queue.len() > 1;
        if is_queued {
            let first = queue.front().cloned().unwrap_or_default();
            let waiting = Waiting {
                why: format!("an earlier pod of the same name (UID {first}) is still ending"),
                next_step: "it starts by itself once nothing is left of the earlier one".to_owned(),
            };
            self.context.board.wait(uid, waiting);
        }
        let held = Held {
            desired: watch::Sender::new(desired),
            full_name,
            restart: BackOff::new(FIRST_RESTART, LONGEST_RESTART),
            restart_at: None,
            is_queued,
            has_begun: false,
            is_wanted_again: false,
        };
        self.held.insert(uid.to_owned(), held);
        if !is_queued {
            self.begin(uid);
        }
    }

    fn begin(&mut self, uid: &str) {
        let Some(held) = self.held.get_mut(uid) else { return };
        held.is_queued = false;
        held.restart_at = None;
        let is_first = !std::mem::replace(&mut held.has_begun, true);
        // upstream: pod_workers.go: pods that are admitted, not those that only have to end.
        if is_first && held.desired.borrow().wish == Wish::Run {
            let containers = held.desired.borrow().pod.spec.containers.iter().map(|_| 1.0).sum();
            let metrics = self.context.board.metrics();
            metrics.observe(&names::CONTAINERS_PER_POD, &[], containers);
        }
        let desired = held.desired.subscribe();
        let (pod, wish) = {
            let known = held.desired.borrow();
            (known.pod.clone(), known.wish.clone())
        };
        if wish == Wish::Run {
            if is_first {
                self.forget_rejection(uid);
            }
            let was_here = self.context.saved.get(uid).is_some();
            let strict_groups = self.context.node.borrow().strict_groups.unwrap_or(false);
            let victims = self.context.admissions.decide(&pod, was_here, strict_groups);
            for victim in victims {
                self.preempt(&victim, &pod);
            }
        }
        let task = worker::run(self.context.clone(), uid.to_owned(), desired, is_first);
        self.workers.start(uid.to_owned(), format!("pod {}", pod.full_name()), task);
    }

    /// A pod that an earlier agent rejected is judged again.
    ///
    /// upstream: kubelet.go (HandlePodAdditions): only the status manager knows a rejected static pod
    fn forget_rejection(&self, uid: &str) {
        let saved = self.context.saved.get(uid);
        if saved.is_some_and(|saved| PodMemory::was_rejected(&saved)) {
            info!(pod_uid = uid, "A pod that an earlier agent rejected is judged again");
            self.context.saved.set_aside(uid);
        }
    }

    /// Ends a pod to free resources for another one. It stays here as failed.
    fn preempt(&self, victim: &str, pod: &Pod) {
        let Some(held) = self.held.get(victim) else { return };
        let name = &held.full_name;
        info!(pod = name, pod_uid = victim, for_pod = pod.full_name(), "Ending a pod to make room");
        let (reason, message) = (PREEMPTED_REASON.to_owned(), PREEMPTED_MESSAGE.to_owned());
        let event = PodEvent {
            kind: EventKind::Warning,
            reason: reason.clone(),
            message: message.clone(),
            field_path: None,
        };
        let now = self.context.clock.now();
        self.context.board.tell(&held.desired.borrow().pod, event, now);
        let (because, words) = PREEMPTED_DISRUPTION;
        let disruption = Disruption { reason: because.to_owned(), message: words.to_owned() };
        let cause = EndCause::Evicted { reason, message, disruption: Some(disruption) };
        let end = EndWish { cause, grace_seconds: None, asked_at: now };
        held.desired.send_if_modified(|desired| {
            let runs = desired.wish == Wish::Run;
            if runs {
                desired.wish = Wish::End(end);
            }
            runs
        });
    }

    /// Stops waiting for preempted pods after their deadline.
    fn give_up(&self) {
        for name in self.context.admissions.give_up(Instant::now()) {
            warn!(pod = name, "The pods that end for this one take too long; it goes on");
        }
    }

    fn unwant(&mut self, uid: &str) {
        let Some(held) = self.held.get(uid) else { return };
        self.context.board.unwant(uid);
        self.context.admissions.is_ending(uid);
        if held.is_queued {
            self.let_go(uid);
            return;
        }
        let end = EndWish {
            cause: EndCause::ManifestRemoved,
            grace_seconds: self.grace_seconds(),
            asked_at: self.context.clock.now(),
        };
        held.desired.send_if_modified(|desired| {
            let is_wanted = !desired.is_wished_away();
            if is_wanted {
                desired.wish = Wish::End(end);
            }
            is_wanted
        });
    }

    /// Overrides the grace periods of pods that end.
    fn grace_seconds(&self) -> Option<i64> {
        self.context.kill_now.borrow().then_some(0)
    }

    /// Cuts the remaining grace periods of pods that end.
    fn kill_ending(&self) {
        for held in self.held.values() {
            held.desired.send_if_modified(|desired| match &mut desired.wish {
                Wish::End(end) if end.grace_seconds != Some(0) => {
                    end.grace_seconds = Some(0);
                    true
                }
                _ => false,
            });
        }
    }

    fn end_orphan(&mut self, uid: &str, name: &RuntimePodName) {
        let RuntimePodName { namespace, name, .. } = name;
        let origin = PodOrigin { source: "runtime".to_owned(), manifest: String::new() };
        let asked_at = self.context.clock.now();
        if let Some(pod) = self.context.saved.ending_pod(uid) {
            info!(pod = name, namespace, pod_uid = uid, "A pod goes on ending");
            self.context.board.put(&pod, &origin);
            // The rest of its grace period is in its memory.
            let cause = EndCause::ManifestRemoved;
            let end = EndWish { cause, grace_seconds: self.grace_seconds(), asked_at };
            self.hold(uid, DesiredPod { pod, wish: Wish::End(end) });
            return;
        }
        info!(pod = name, namespace, pod_uid = uid, "Ending a pod that is not desired");
        self.context.board.metrics().count(&names::ORPHANED_RUNTIME_PODS, &[]);
        let mut pod = Pod::default();
        pod.metadata.uid = Box::from(uid);
        pod.metadata.namespace = Box::from(namespace.as_str());
        pod.metadata.name = Box::from(name.as_str());
        let pod = Arc::new(pod);
        self.context.board.put(&pod, &origin);
        let end = EndWish {
            cause: EndCause::Orphan,
            grace_seconds: Some(ORPHAN_GRACE_SECONDS),
            asked_at,
        };
        self.hold(uid, DesiredPod { pod, wish: Wish::End(end) });
    }

    fn ended(&mut self, uid: &str, end: Result<WorkerEnd, Panicked>) {
        match end {
            Ok(WorkerEnd::Finished) => self.let_go(uid),
            Ok(WorkerEnd::BeginAnew) => self.begin(uid),
            Err(Panicked(why)) => {
                let Some(held) = self.held.get_mut(uid) else { return };
                let pause = held.restart.pause();
                held.restart_at = Some(Instant::now() + pause);
                error!(
                    pod = held.full_name,
                    pod_uid = uid,
                    panic = why,
                    restart_in_seconds = pause.as_secs(),
                    "The pod's worker panicked and will be restarted; other pods are not affected"
                );
            }
        }
    }

    /// Nothing is left of the pod; the next one of its name may start.
    fn let_go(&mut self, uid: &str) {
        let Some(held) = self.held.remove(uid) else { return };
        self.context.admissions.release(uid);
        let Some(queue) = self.queues.get_mut(&held.full_name) else { return };
        queue.retain(|queued| queued != uid);
        let next = queue.front().cloned();
        match next {
            None => {
                self.queues.remove(&held.full_name);
            }
            Some(next) if self.held.get(&next).is_some_and(|held| held.is_queued) => {
                self.begin(&next);
            }
            Some(_) => {}
        }
    }

    fn next_restart(&self) -> Option<Instant> {
        self.held.values().filter_map(|held| held.restart_at).min()
    }

    fn restart_due(&mut self) {
        let now = Instant::now();
        let due = |held: &Held| held.restart_at.is_some_and(|at| at <= now);
        let uids: Vec<String> =
            self.held.iter().filter(|(_, held)| due(held)).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.begin(&uid);
        }
    }
}

fn origin(identified: &Identified) -> PodOrigin {
    let source = identified.source.to_owned();
    PodOrigin { source, manifest: identified.manifest.clone() }
}

fn is_named(pod: &Pod, name: &RuntimePodName) -> bool {
    *pod.metadata.name == *name.name && *pod.metadata.namespace == *name.namespace
}
