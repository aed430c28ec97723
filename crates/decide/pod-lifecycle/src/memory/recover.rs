//! Recovers the memory when an agent starts: from saved state, or from what runs alone.
//!
//! Rules: saved state is used when it is complete and of a known version, and otherwise ignored;
//! then restart counts come from the containers' annotations, and the back-off is presumed to be
//! where that many restarts have brought it. No action is in flight.

use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, PodStatus};
use pod_model::pod::{Container, Pod};
use ports::ApiTime;
use ports::runtime_objects::ContainerState;
use serde::{Deserialize, Serialize};

use crate::back_off::RestartBackOff;
use crate::containers_by_name::{self, ContainersByName, restart_count};
use crate::input::Milestone;
use crate::time::{between, plus, seconds};
use crate::view::{DesiredPod, ObservedPod, PodLifecycleSettings};

use super::action_ended::MAX_START_RETRY_DELAY;
use super::{
    ConditionMemory, ContainerExit, ContainerMemory, PersistedMemory, PodMemory, Reported,
    TerminalStatus,
};

const VERSION: u32 = 1;
/// The default grace period.
const USUAL_GRACE_SECONDS: i64 = 30;

#[derive(Serialize)]
pub(super) struct SavedMemoryRef<'a> {
    pub(super) version: u32,
    pub(super) pod: &'a PersistedMemory,
}

#[derive(Deserialize)]
pub(super) struct SavedMemoryDocument {
    pub(super) version: u32,
    pub(super) pod: PersistedMemory,
}

impl PodMemory {
    /// The memory of a pod when an agent starts, or when the pod is first seen. `saved` is the
    /// output of `to_saved`; anything else is ignored.
    pub fn recover(
        desired: &DesiredPod,
        observed: &ObservedPod,
        saved: Option<&[u8]>,
        settings: &PodLifecycleSettings,
        now: ApiTime,
    ) -> Self {
        let mut persisted = saved.and_then(read).unwrap_or_default();
        persisted.clamp_future_times(&desired.pod, now);
        let mut memory = Self { persisted, ..Self::default() };
        if memory.persisted.start_time.is_none() {
            let api = desired.pod.status.start_time.map(|at| at.0.saturating_mul(1_000_000_000));
            let oldest = observed.sandboxes.iter().map(|sandbox| sandbox.created_at).min();
            memory.persisted.start_time = api.or(oldest).map(|at| at.min(now.nanos()));
        }
        let api = &desired.pod.status;
        if memory.persisted.terminal_status.is_none()
            && matches!(api.phase, PodPhase::Succeeded | PodPhase::Failed)
        {
            memory.persisted.terminal_status = Some(TerminalStatus {
                failed: api.phase == PodPhase::Failed,
                reason: api.reason.to_string(),
                message: api.message.to_string(),
                // The API server has the condition already.
                disruption: None,
            });
        }
        let containers_by_name = ContainersByName::new(observed);
        for name in containers_by_name.names() {
            if !memory.persisted.containers.contains_key(name)
                && let Some(reconstructed) =
                    reconstruct_container(desired, settings, &containers_by_name, name, now)
            {
                memory.persisted.containers.insert(name.to_owned(), Box::new(reconstructed));
            }
        }
        memory.record_restart_counts(observed);
        // Milestones from before the agent's restart are not recorded again.
        if !observed.sandboxes.is_empty() {
            memory.marked.extend([Milestone::Seen, Milestone::Admitted, Milestone::FirstReady]);
        }
        memory
    }

    /// Takes over from the API server what neither saved state nor the runtime tells: an agent of
    /// another kind, or one that lost its disk, may have run the pod before.
    pub fn adopt_api_status(&mut self, api: &PodStatus) {
        let all = api
            .init_container_statuses
            .iter()
            .chain(&api.container_statuses)
            .chain(&api.ephemeral_container_statuses);
        for status in all {
            match self.persisted.containers.get_mut(&*status.name) {
                None => self.container_mut(&status.name).report(status),
                Some(known) if known.reported == Reported::Nothing => {
                    let ended = status.last_state.terminated.as_deref();
                    known.last_exit = known.last_exit.take().or(ended.map(ContainerExit::of));
                }
                Some(_) => {}
            }
        }
        for condition in &api.conditions {
            let Some(since) = condition.last_transition_time else { continue };
            let since = since.0.saturating_mul(1_000_000_000);
            let met = condition.status == ConditionStatus::True;
            let kind = condition.kind.to_string();
            self.persisted.conditions.entry(kind).or_insert(ConditionMemory { met, since });
        }
        if self.persisted.pod_ips.is_empty() {
            self.persisted.pod_ips = api.pod_ips.iter().map(|entry| entry.ip.to_string()).collect();
        }
        if let Some(start) = api.start_time {
            self.persisted.start_time = Some(start.0.saturating_mul(1_000_000_000));
        }
    }

    /// The state that cannot be observed, as versioned JSON.
    pub fn to_saved(&self) -> Vec<u8> {
        let saved = SavedMemoryRef { version: VERSION, pod: &self.persisted };
        serde_json::to_vec(&saved).unwrap_or_default()
    }

    /// For the next pod with this UID, once nothing is left of this one: a static pod that comes
    /// back goes on counting its containers' restarts.
    pub fn to_saved_for_successor(&self) -> Vec<u8> {
        let containers = self.persisted.containers.iter().map(|(name, memory)| {
            let ContainerMemory { restart_count, highest, .. } = **memory;
            let kept = ContainerMemory { restart_count, highest, ..ContainerMemory::default() };
            (name.clone(), Box::new(kept))
        });
        let pod =
            PersistedMemory { containers: containers.collect(), ..PersistedMemory::default() };
        let saved = SavedMemoryRef { version: VERSION, pod: &pod };
        serde_json::to_vec(&saved).unwrap_or_default()
    }

    /// Whether the pod was started by an earlier agent, or by an earlier worker.
    pub fn has_begun(saved: &[u8]) -> bool {
        read(saved).is_some_and(|persisted| persisted.start_time.is_some())
    }

    /// Whether the pod was rejected. A rejection holds for one run of the agent: after a restart
    /// there may be room.
    ///
    /// upstream: kubelet.go (HandlePodAdditions): of a static pod only the status manager knows
    pub fn was_rejected(saved: &[u8]) -> bool {
        let terminal_status = read(saved).and_then(|persisted| persisted.terminal_status);
        terminal_status.is_some_and(|terminal_status| terminal_status.rejection().is_some())
    }

    /// Whether the pod was terminating because it was removed, so that it may be created anew once
    /// it has terminated. `is_written_down`: a record says that it was removed.
    ///
    /// A pod that ends by itself has its terminal phase from the first step of its termination. A
    /// removed pod may get one too, when its containers have exited: then only the record
    /// distinguishes the two.
    pub fn is_terminating_by_removal(saved: &[u8], is_written_down: bool) -> bool {
        let is_asked =
            |persisted: &PersistedMemory| is_written_down || persisted.terminal_status.is_none();
        read(saved).is_some_and(|persisted| persisted.termination.is_some() && is_asked(&persisted))
    }
}

/// None where it was not written by an agent of this version.
fn read(saved: &[u8]) -> Option<PersistedMemory> {
    let saved = serde_json::from_slice::<SavedMemoryDocument>(saved).ok()?;
    (saved.version == VERSION).then_some(saved.pod)
}

impl PersistedMemory {
    /// Clamps times in the future to now: the clock was set back since, and delays that began then
    /// begin again now. Otherwise they would last until the old time is reached.
    fn clamp_future_times(&mut self, pod: &Pod, now: ApiTime) {
        let now_nanos = now.nanos();
        self.start_time = self.start_time.map(|at| at.min(now_nanos));
        for condition in self.conditions.values_mut() {
            condition.since = condition.since.min(now_nanos);
        }
        for termination in [&mut self.termination, &mut self.clearing].into_iter().flatten() {
            let ahead = termination.since.saturating_sub(now_nanos).max(0);
            termination.since = termination.since.saturating_sub(ahead);
            termination.deadline = termination.deadline.saturating_sub(ahead);
        }
        let endings = [&self.termination, &self.clearing].into_iter().flatten();
        let pod_graces =
            [pod.spec.termination_grace_period_seconds, pod.metadata.deletion_grace_period_seconds];
        let graces = endings
            .map(|termination| termination.grace_seconds)
            .chain(pod_graces.into_iter().flatten());
        let longest = graces.fold(USUAL_GRACE_SECONDS, i64::max);
        for (name, container) in &mut self.containers {
            if let Some(back_off) = &mut container.back_off {
                back_off.updated_at = back_off.updated_at.min(now_nanos);
            }
            if let Some(stop) = &mut container.stop {
                let own = containers_by_name::find(pod, name)
                    .map_or(0, |(_, spec)| longest_probe_grace(spec));
                let most = plus(now, seconds(longest.max(own)));
                stop.deadline = stop.deadline.min(most.nanos());
            }
            if let Some(failure) = &mut container.start_failure {
                let most = plus(now, MAX_START_RETRY_DELAY).nanos();
                failure.retry_at = failure.retry_at.map(|at| at.min(most));
            }
        }
    }
}

/// A probe may set a longer grace period for a container than its pod.
fn longest_probe_grace(container: &Container) -> i64 {
    let probes = [&container.liveness_probe, &container.startup_probe];
    let graces =
        probes.into_iter().flatten().filter_map(|probe| probe.termination_grace_period_seconds);
    graces.max().unwrap_or(0)
}

/// The presumed memory of a container without saved state.
fn reconstruct_container(
    desired: &DesiredPod,
    settings: &PodLifecycleSettings,
    containers_by_name: &ContainersByName<'_>,
    name: &str,
    now: ApiTime,
) -> Option<ContainerMemory> {
    let (_, container) = containers_by_name::find(&desired.pod, name)?;
    let record = containers_by_name.latest(name)?;
    let restarts = restart_count(record);
    let started = ApiTime::from_nanos(record.started_at);
    let mut memory = ContainerMemory {
        restart_count: restarts,
        back_off: RestartBackOff::reconstructed(container, restarts, started, settings),
        ..ContainerMemory::default()
    };
    // One that has run for longer than its startup probe allows must have passed it.
    if record.state == ContainerState::Running
        && record.started_at > 0
        && let Some(probe) = &container.startup_probe
    {
        let tries = i64::from(probe.failure_threshold.max(1));
        let most = i64::from(probe.initial_delay_seconds.max(0))
            + tries
                * (i64::from(probe.period_seconds.max(1))
                    + i64::from(probe.timeout_seconds.max(1)));
        if between(started, now) > seconds(most) {
            memory.startup_passed = Some(record.id.clone());
        }
    }
    Some(memory)
}
