//! Pod workers: started for desired pods, asked to end pods that are not desired any more,
//! restarted after a panic.
//!
//! Rules: one worker per UID. Two static pods of the same full name never run at once: the later one
//! waits until nothing is left of the earlier, in order of arrival; pods of the API server
//! differ by their UIDs alone. Nothing ends before every source has been read, nor anything that a pod
//! without a UID may adopt; after that, pods in the runtime that are not desired end too. A pod of
//! the API server of which nothing is left here is kept in mind until the API server has removed it,
//! so that it is not started again. Decides nothing else.

use super::tracked_pod::TrackedPod;
use super::worker::{self, WorkerEnd};
use super::{PodContext, PodMemoryStore};
use crate::keyed_tasks::{KeyedTasks, Panicked};
use crate::loop_heartbeats::LoopHeartbeats;
use crate::metrics::names;
use crate::observed::{Inventory, RuntimePodName};
use crate::sources::WantedPods;
use crate::status_store::{PodOrigin, PodSource};
use node_policy::admission::{PREEMPTED_DISRUPTION, PREEMPTED_MESSAGE, PREEMPTED_REASON};
use pod_desired::{ApiPodEntry, ApiPods, IdentifiedPod};
use pod_lifecycle::{
    DesiredPod, DesiredState, Disruption, EventType, PodEvent, PodMemory, TerminationCause,
    TerminationRequest, WaitReason,
};
use pod_model::pod::Pod;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

/// An orphan has no specification with a grace period.
const ORPHAN_GRACE_SECONDS: i64 = 1;

/// The pods that are here; garbage collection removes what belongs to others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ActivePods {
    pub(crate) uids: BTreeSet<String>,
    /// Every source has been read, and the runtime was listed.
    pub(crate) is_complete: bool,
}

struct PodWorkers {
    context: Arc<PodContext>,
    workers: KeyedTasks<String, WorkerEnd>,
    tracked: BTreeMap<String, TrackedPod>,
    /// By key: the running pod comes first.
    queues: BTreeMap<String, VecDeque<String>>,
    active: watch::Sender<ActivePods>,
}

/// Runs for ever.
pub(crate) async fn run_pod_workers(
    context: Arc<PodContext>,
    mut wanted: watch::Receiver<WantedPods>,
    active: watch::Sender<ActivePods>,
    loop_heartbeats: LoopHeartbeats,
) {
    let saved: PodMemoryStore = context.saved.clone();
    saved.load().await;
    let mut inventory = context.observed.inventory();
    let mut api_pods = context.api_pods.subscribe();
    let mut node = context.node.clone();
    let mut kill_now = context.kill_now.clone();
    let mut pod_workers = PodWorkers {
        context,
        workers: KeyedTasks::default(),
        tracked: BTreeMap::new(),
        queues: BTreeMap::new(),
        active,
    };
    loop {
        let now_api_pods = api_pods.borrow_and_update().clone();
        let mut now_wanted = wanted.borrow_and_update().clone();
        now_wanted.is_complete &= pod_workers.context.api_pods.is_complete();
        let is_runtime_known = node.borrow_and_update().strict_supplemental_groups.is_some();
        let listed = inventory.borrow_and_update().clone();
        if *kill_now.borrow_and_update() {
            pod_workers.kill_ending();
        }
        pod_workers.reconcile(&now_wanted, &now_api_pods, listed.as_deref());
        let restart = pod_workers.next_restart();
        let preemption_deadline = pod_workers.context.admissions.next_preemption_deadline();
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            changed = inventory.changed() => if changed.is_err() { return },
            Ok(()) = api_pods.changed() => {}
            changed = node.changed(), if !is_runtime_known => if changed.is_err() { return },
            (uid, end) = pod_workers.workers.next() => pod_workers.on_worker_ended(&uid, end),
            () = tokio::time::sleep_until(restart.unwrap_or_else(Instant::now)), if restart.is_some() => {
                pod_workers.restart_due();
            }
            () = tokio::time::sleep_until(preemption_deadline.unwrap_or_else(Instant::now)), if preemption_deadline.is_some() => {
                pod_workers.expire_preemptions();
            }
            Ok(()) = kill_now.changed() => {}
            () = loop_heartbeats.beat_while_waiting("pods") => {}
        }
    }
}

impl PodWorkers {
    /// Reconciles workers with the desired pods and the runtime's inventory.
    fn reconcile(&mut self, wanted: &WantedPods, api_pods: &ApiPods, listed: Option<&Inventory>) {
        let of_manifests = wanted.pods.iter().map(|each| &*each.pod.metadata.uid);
        let uids: BTreeSet<&str> =
            of_manifests.chain(api_pods.pods.keys().map(|uid| &**uid)).collect();
        // Before a new pod is started: garbage collection must not remove what it creates.
        self.publish_active(&uids, wanted.is_complete && listed.is_some());
        let is_gone = |(uid, tracked): &(&String, &TrackedPod)| {
            let meta = &tracked.desired.borrow().pod.metadata;
            !uids.contains(uid.as_str()) && wanted.may_remove(&meta.namespace, &meta.name)
        };
        let gone: Vec<String> =
            self.tracked.iter().filter(is_gone).map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            self.mark_unwanted(&uid);
        }
        // Before the runtime was listed it is not known what must end first.
        if let Some(listed) = listed {
            let unknown: Vec<(&String, &RuntimePodName)> = listed
                .iter()
                .filter(|(uid, _)| !self.tracked.contains_key(*uid) && !uids.contains(uid.as_str()))
                .filter(|(_, name)| name.is_kubelet_pod)
                .collect();
            let may_end = |name: &RuntimePodName| wanted.may_remove(&name.namespace, &name.name);
            for (uid, name) in unknown.iter().filter(|(_, name)| may_end(name)) {
                self.end_orphan(uid, name);
            }
            for identified in &wanted.pods {
                let blocker = unknown.iter().find(|(_, name)| is_named(&identified.pod, name));
                self.ensure_worker(identified, blocker.map(|(uid, _)| uid.as_str()));
            }
            self.ensure_api_workers(api_pods);
        } else {
            for identified in &wanted.pods {
                self.context.status_store.upsert(&identified.pod, &origin(identified));
                self.wait_for_runtime(&identified.pod.metadata.uid);
            }
            for entry in api_pods.pods.values() {
                self.context.status_store.upsert(&entry.pod, &api_origin());
                self.wait_for_runtime(&entry.pod.metadata.uid);
            }
        }
        let shown = |uid: &str| self.tracked.contains_key(uid) || uids.contains(uid);
        self.context.status_store.retain(shown);
        self.publish_active(&uids, wanted.is_complete && listed.is_some());
    }

    fn publish_active(&self, wanted: &BTreeSet<&str>, is_complete: bool) {
        let wanted = wanted.iter().map(ToString::to_string);
        let active =
            ActivePods { uids: self.tracked.keys().cloned().chain(wanted).collect(), is_complete };
        self.active.send_if_modified(|known| {
            let changed = *known != active;
            if changed {
                *known = active;
            }
            changed
        });
    }

    /// `blocker`: the UID of a pod of the same name that runs and has no worker.
    fn ensure_worker(&mut self, identified: &IdentifiedPod, blocker: Option<&str>) {
        let pod = &identified.pod;
        let uid = pod.metadata.uid.to_string();
        let desired = DesiredPod { pod: pod.clone(), desired_state: DesiredState::Run };
        if let Some(tracked) = self.tracked.get_mut(&uid) {
            // A pod that ends is never revived under its UID; a stated UID that is desired again
            // gets a worker once nothing is left of the first.
            let ends = matches!(tracked.desired.borrow().desired_state, DesiredState::End(_));
            if !ends && *tracked.desired.borrow() != desired {
                self.context.status_store.upsert(pod, &origin(identified));
                tracked.desired.send_replace(desired);
            }
            self.count_wanted_again(&uid);
            return;
        }
        let desired = self.unfinished_end(pod).unwrap_or(desired);
        self.context.status_store.upsert(&desired.pod, &origin(identified));
        // Whether a new pod may run depends on the runtime's abilities.
        let is_runtime_known = self.context.node.borrow().strict_supplemental_groups.is_some();
        if !is_runtime_known && self.context.saved.get(&uid).is_none() {
            self.wait_for_runtime(&uid);
            return;
        }
        match blocker.filter(|blocker| !self.tracked.contains_key(*blocker)) {
            Some(blocker) => self.context.status_store.set_waiting(
                &uid,
                WaitReason {
                    why: format!("another pod of the same name (UID {blocker}) still runs"),
                    next_step: "it starts by itself once every source of pods has spoken"
                        .to_owned(),
                },
            ),
            None => {
                self.track(&uid, TrackedPod::by_name(desired));
                self.count_wanted_again(&uid);
            }
        }
    }

    /// Workers for the pods of the API server: new ones in the order of their creation, in which
    /// they are admitted.
    fn ensure_api_workers(&mut self, api_pods: &ApiPods) {
        let mut new: Vec<&Arc<ApiPodEntry>> = Vec::new();
        for (uid, entry) in &*api_pods.pods {
            if self.tracked.contains_key(&**uid) {
                self.update_api_worker(entry);
            } else {
                new.push(entry);
            }
        }
        new.sort_by(|one, other| {
            let key = |entry: &Arc<ApiPodEntry>| {
                let meta = &entry.pod.metadata;
                (meta.creation_timestamp.map(|at| at.0), meta.name.clone())
            };
            key(one).cmp(&key(other))
        });
        for entry in new {
            self.add_api_worker(entry);
        }
    }

    fn update_api_worker(&mut self, entry: &ApiPodEntry) {
        let uid = &*entry.pod.metadata.uid;
        let Some(tracked) = self.tracked.get_mut(uid) else { return };
        tracked.take_api_status(&entry.status);
        let asked = DesiredState::of_api_pod(&entry.pod, self.context.clock.now());
        let next = {
            let known = tracked.desired.borrow();
            let desired_state = known.desired_state.followed_by(&asked);
            let is_same =
                Arc::ptr_eq(&known.pod, &entry.pod) && desired_state == known.desired_state;
            (!is_same).then(|| DesiredPod { pod: entry.pod.clone(), desired_state })
        };
        let Some(next) = next else { return };
        if next.is_removal_requested() {
            self.context.admissions.is_ending(uid);
        }
        self.context.status_store.upsert(&entry.pod, &api_origin());
        tracked.desired.send_replace(next);
    }

    fn add_api_worker(&mut self, entry: &ApiPodEntry) {
        let uid = &*entry.pod.metadata.uid;
        self.context.status_store.upsert(&entry.pod, &api_origin());
        let is_runtime_known = self.context.node.borrow().strict_supplemental_groups.is_some();
        if !is_runtime_known && self.context.saved.get(uid).is_none() {
            self.wait_for_runtime(uid);
            return;
        }
        let desired_state = DesiredState::of_api_pod(&entry.pod, self.context.clock.now());
        let desired = DesiredPod { pod: entry.pod.clone(), desired_state };
        let pod = TrackedPod::new(desired, uid.to_owned(), Some(&entry.status));
        self.track(uid, pod);
    }

    /// For a desired pod whose removal an earlier agent began and did not finish: that removal goes
    /// on with the pod as it was then, so that the new one starts from nothing.
    fn unfinished_end(&self, pod: &Arc<Pod>) -> Option<DesiredPod> {
        let uid = &*pod.metadata.uid;
        let memory = self.context.saved.get(uid)?;
        let removed = self.context.saved.ending_pod(uid);
        if !PodMemory::is_terminating_by_removal(&memory, removed.is_some()) {
            return None;
        }
        let name = pod.full_name();
        info!(pod = name, pod_uid = uid, "A pod goes on ending before it begins again");
        // The rest of its grace period is in its memory.
        let (cause, requested_at) = (TerminationCause::ManifestRemoved, self.context.clock.now());
        let grace_seconds = self.grace_seconds();
        let end = TerminationRequest { cause, is_removal: true, grace_seconds, requested_at };
        Some(DesiredPod {
            pod: removed.unwrap_or_else(|| pod.clone()),
            desired_state: DesiredState::End(end),
        })
    }

    /// Counts once that a pod is desired while it ends.
    fn count_wanted_again(&mut self, uid: &str) {
        let Some(tracked) = self.tracked.get_mut(uid) else { return };
        let is_over = tracked.desired.borrow().is_removal_requested();
        if is_over && !std::mem::replace(&mut tracked.is_wanted_again, true) {
            self.context.status_store.metrics().count(&names::RESTARTED_PODS, &["true"]);
        }
    }

    /// Sets the pod's status to waiting for the runtime.
    fn wait_for_runtime(&self, uid: &str) {
        let why = match &self.context.node.borrow().runtime_ready {
            Err(why) => format!("the container runtime cannot be used: {why}"),
            Ok(()) => "what the container runtime has is not known yet".to_owned(),
        };
        let next_step = "see that the runtime is up; the pod goes on by itself then".to_owned();
        self.context.status_store.set_waiting(uid, WaitReason { why, next_step });
    }

    fn track(&mut self, uid: &str, mut tracked: TrackedPod) {
        let queue = self.queues.entry(tracked.queue.clone()).or_default();
        queue.push_back(uid.to_owned());
        let is_queued = queue.len() > 1;
        if is_queued {
            let first = queue.front().cloned().unwrap_or_default();
            let waiting = WaitReason {
                why: format!("an earlier pod of the same name (UID {first}) is still ending"),
                next_step: "it starts by itself once nothing is left of the earlier one".to_owned(),
            };
            self.context.status_store.set_waiting(uid, waiting);
        }
        tracked.is_queued = is_queued;
        self.tracked.insert(uid.to_owned(), tracked);
        if !is_queued {
            self.start_worker(uid);
        }
    }

    fn start_worker(&mut self, uid: &str) {
        let Some(tracked) = self.tracked.get_mut(uid) else { return };
        tracked.is_queued = false;
        tracked.restart_at = None;
        let is_first = !std::mem::replace(&mut tracked.has_begun, true);
        // upstream: pod_workers.go: pods that are admitted, not those that only have to end.
        if is_first && tracked.desired.borrow().desired_state == DesiredState::Run {
            let containers = tracked.desired.borrow().pod.spec.containers.iter().map(|_| 1.0).sum();
            let metrics = self.context.status_store.metrics();
            metrics.observe(&names::CONTAINERS_PER_POD, &[], containers);
        }
        let desired = tracked.desired.subscribe();
        let external = tracked.external.subscribe();
        let (pod, desired_state) = {
            let known = tracked.desired.borrow();
            (known.pod.clone(), known.desired_state.clone())
        };
        // A pod that has ended according to the API server takes no resources and never runs again.
        let has_ended = tracked.external.borrow().end.is_some();
        if desired_state == DesiredState::Run && !has_ended {
            if is_first && pod.is_static() {
                self.forget_rejection(uid);
            }
            let saved = self.context.saved.get(uid);
            let was_here = saved.is_some_and(|saved| PodMemory::has_begun(&saved));
            let strict_supplemental_groups =
                self.context.node.borrow().strict_supplemental_groups.unwrap_or(false);
            let victims =
                self.context.admissions.decide(&pod, was_here, strict_supplemental_groups);
            for victim in victims {
                self.preempt(&victim, &pod);
            }
        }
        let desired = worker::PodReceivers { desired, external };
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
            self.context.saved.discard(uid);
        }
    }

    /// Ends a pod to free resources for another one. It stays here as failed.
    fn preempt(&self, victim: &str, pod: &Pod) {
        let Some(tracked) = self.tracked.get(victim) else { return };
        let name = &tracked.full_name;
        info!(pod = name, pod_uid = victim, for_pod = pod.full_name(), "Ending a pod to make room");
        let (reason, message) = (PREEMPTED_REASON.to_owned(), PREEMPTED_MESSAGE.to_owned());
        let event = PodEvent {
            kind: EventType::Warning,
            reason: reason.clone(),
            message: message.clone(),
            field_path: None,
        };
        let now = self.context.clock.now();
        self.context.status_store.emit(&tracked.desired.borrow().pod, event, now);
        let (because, words) = PREEMPTED_DISRUPTION;
        let disruption = Disruption { reason: because.to_owned(), message: words.to_owned() };
        let cause = TerminationCause::Evicted { reason, message, disruption: Some(disruption) };
        let end =
            TerminationRequest { cause, is_removal: false, grace_seconds: None, requested_at: now };
        tracked.desired.send_if_modified(|desired| {
            let runs = desired.desired_state == DesiredState::Run;
            if runs {
                desired.desired_state = DesiredState::End(end);
            }
            runs
        });
    }

    /// Stops waiting for preempted pods after their deadline.
    fn expire_preemptions(&self) {
        for name in self.context.admissions.expire_preemptions(Instant::now()) {
            warn!(pod = name, "The pods that end for this one take too long; it goes on");
        }
    }

    fn mark_unwanted(&mut self, uid: &str) {
        let Some(tracked) = self.tracked.get(uid) else { return };
        self.context.status_store.mark_unwanted(uid);
        self.context.admissions.is_ending(uid);
        if tracked.is_queued || tracked.is_over {
            self.untrack(uid);
            return;
        }
        let is_static = tracked.desired.borrow().pod.is_static();
        let end = DesiredState::End(TerminationRequest {
            cause: match is_static {
                true => TerminationCause::ManifestRemoved,
                false => TerminationCause::Deleted,
            },
            is_removal: true,
            grace_seconds: self.grace_seconds(),
            requested_at: self.context.clock.now(),
        });
        tracked.desired.send_if_modified(|desired| {
            let is_wanted = !desired.is_removal_requested();
            if is_wanted {
                desired.desired_state = desired.desired_state.followed_by(&end);
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
        for tracked in self.tracked.values() {
            tracked.desired.send_if_modified(|desired| match &mut desired.desired_state {
                DesiredState::End(end) if end.grace_seconds != Some(0) => {
                    end.grace_seconds = Some(0);
                    true
                }
                _ => false,
            });
        }
    }

    fn end_orphan(&mut self, uid: &str, name: &RuntimePodName) {
        let RuntimePodName { namespace, name, .. } = name;
        let origin = PodOrigin::default();
        let requested_at = self.context.clock.now();
        if let Some(pod) = self.context.saved.ending_pod(uid) {
            info!(pod = name, namespace, pod_uid = uid, "A pod goes on ending");
            self.context.status_store.upsert(&pod, &origin);
            // The rest of its grace period is in its memory.
            let cause = TerminationCause::ManifestRemoved;
            let grace_seconds = self.grace_seconds();
            let end = TerminationRequest { cause, is_removal: true, grace_seconds, requested_at };
            let desired = DesiredPod { pod, desired_state: DesiredState::End(end) };
            self.track(uid, TrackedPod::by_name(desired));
            return;
        }
        info!(pod = name, namespace, pod_uid = uid, "Ending a pod that is not desired");
        self.context.status_store.metrics().count(&names::ORPHANED_RUNTIME_PODS, &[]);
        let mut pod = Pod::default();
        pod.metadata.uid = Box::from(uid);
        pod.metadata.namespace = Box::from(namespace.as_str());
        pod.metadata.name = Box::from(name.as_str());
        let pod = Arc::new(pod);
        self.context.status_store.upsert(&pod, &origin);
        let end = TerminationRequest {
            cause: TerminationCause::Orphan,
            is_removal: true,
            grace_seconds: Some(ORPHAN_GRACE_SECONDS),
            requested_at,
        };
        let desired = DesiredPod { pod, desired_state: DesiredState::End(end) };
        self.track(uid, TrackedPod::by_name(desired));
    }

    fn on_worker_ended(&mut self, uid: &str, end: Result<WorkerEnd, Panicked>) {
        match end {
            Ok(WorkerEnd::Finished { successor_memory }) => {
                let is_wanted_again =
                    self.tracked.get(uid).is_some_and(|tracked| tracked.is_wanted_again);
                if is_wanted_again && !successor_memory.is_empty() {
                    self.context.saved.remember(uid, successor_memory);
                }
                self.on_finished(uid);
            }
            Ok(WorkerEnd::Restart) => self.start_worker(uid),
            Err(Panicked(why)) => {
                let Some(tracked) = self.tracked.get_mut(uid) else { return };
                let pause = tracked.restart.pause();
                tracked.restart_at = Some(Instant::now() + pause);
                error!(
                    pod = tracked.full_name,
                    pod_uid = uid,
                    panic = why,
                    restart_in_seconds = pause.as_secs(),
                    "The pod's worker panicked and will be restarted; other pods are not affected"
                );
            }
        }
    }

    /// Nothing is left of the pod here. One that the API server still has is deleted there first.
    fn on_finished(&mut self, uid: &str) {
        if self.context.api_pods.entry(uid).is_none() {
            self.untrack(uid);
            return;
        }
        self.context.admissions.release(uid);
        if let Some(tracked) = self.tracked.get_mut(uid) {
            tracked.is_over = true;
        }
        if let Some(reports) = &self.context.reports {
            reports.finish(uid);
        }
    }

    /// Nothing is left of the pod; the next one of its name may start.
    fn untrack(&mut self, uid: &str) {
        let Some(tracked) = self.tracked.remove(uid) else { return };
        self.context.admissions.release(uid);
        if let Some(reports) = &self.context.reports {
            reports.forget(uid);
        }
        let Some(queue) = self.queues.get_mut(&tracked.queue) else { return };
        queue.retain(|queued| queued != uid);
        let next = queue.front().cloned();
        match next {
            None => {
                self.queues.remove(&tracked.queue);
            }
            Some(next) if self.tracked.get(&next).is_some_and(|tracked| tracked.is_queued) => {
                self.start_worker(&next);
            }
            Some(_) => {}
        }
    }

    fn next_restart(&self) -> Option<Instant> {
        self.tracked.values().filter_map(|tracked| tracked.restart_at).min()
    }

    fn restart_due(&mut self) {
        let now = Instant::now();
        let due = |tracked: &TrackedPod| tracked.restart_at.is_some_and(|at| at <= now);
        let uids: Vec<String> = self
            .tracked
            .iter()
            .filter(|(_, tracked)| due(tracked))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in uids {
            self.start_worker(&uid);
        }
    }
}

fn origin(identified: &IdentifiedPod) -> PodOrigin {
    PodOrigin { source: identified.source.into(), manifest: identified.manifest.clone() }
}

fn api_origin() -> PodOrigin {
    PodOrigin { source: PodSource::Api, manifest: String::new() }
}

fn is_named(pod: &Pod, name: &RuntimePodName) -> bool {
    *pod.metadata.name == *name.name && *pod.metadata.namespace == *name.namespace
}
