//! The memory of an agent that has just started: from what was saved, or from what runs alone.
//!
//! Rules: what was saved is believed when it is whole and of a version we know, and otherwise taken
//! as nothing; then the annotations of the containers tell the restart counts, and a crash loop is
//! presumed to be where that many restarts have brought it. Nothing is in flight.

use pod_model::pod::spec::PodPhase;
use ports::ApiTime;
use ports::runtime_objects::ContainerState;
use serde::{Deserialize, Serialize};

use crate::back_off::BackOff;
use crate::happening::Mark;
use crate::lineup::{self, Lineup, restart_count};
use crate::time::{between, seconds};
use crate::view::{DesiredPod, ObservedPod};

use super::{ContainerMemory, Kept, PodMemory, Verdict};

const VERSION: u32 = 1;

#[derive(Serialize)]
struct SavedOut<'a> {
    version: u32,
    pod: &'a Kept,
}

#[derive(Deserialize)]
struct SavedIn {
    version: u32,
    pod: Kept,
}

impl PodMemory {
    /// The memory of an agent that has just started, or just heard of the pod. `saved` is what
    /// `to_saved` gave; anything else is taken as nothing.
    pub fn recover(
        desired: &DesiredPod,
        observed: &ObservedPod,
        saved: Option<&[u8]>,
        now: ApiTime,
    ) -> Self {
        let kept = saved
            .and_then(|bytes| serde_json::from_slice::<SavedIn>(bytes).ok())
            .filter(|saved| saved.version == VERSION)
            .map(|saved| saved.pod);
        let mut memory = Self { kept: kept.unwrap_or_default(), ..Self::default() };
        if memory.kept.start_time.is_none() {
            let api = desired.pod.status.start_time.map(|at| at.0.saturating_mul(1_000_000_000));
            let oldest = observed.sandboxes.iter().map(|sandbox| sandbox.created_at).min();
            memory.kept.start_time = api.or(oldest).map(|at| at.min(now.nanos()));
        }
        let api = &desired.pod.status;
        if memory.kept.verdict.is_none()
            && matches!(api.phase, PodPhase::Succeeded | PodPhase::Failed)
        {
            memory.kept.verdict = Some(Verdict {
                failed: api.phase == PodPhase::Failed,
                reason: api.reason.to_string(),
                message: api.message.to_string(),
                // The API server has the condition already.
                disruption: None,
            });
        }
        let lineup = Lineup::new(observed);
        for name in lineup.names() {
            if !memory.kept.containers.contains_key(name)
                && let Some(presumed) = presume(desired, &lineup, name, now)
            {
                memory.kept.containers.insert(name.to_owned(), presumed);
            }
        }
        memory.remember_numbers(observed);
        // What the timeline had before the agent's restart is not marked again.
        if !observed.sandboxes.is_empty() {
            memory.marked.extend([Mark::Seen, Mark::Admitted, Mark::FirstReady]);
        }
        memory
    }

    /// What cannot be observed, as versioned JSON.
    pub fn to_saved(&self) -> Vec<u8> {
        let saved = SavedOut { version: VERSION, pod: &self.kept };
        serde_json::to_vec(&saved).unwrap_or_default()
    }
}

/// What can be told of a container of which nothing was saved.
fn presume(
    desired: &DesiredPod,
    lineup: &Lineup<'_>,
    name: &str,
    now: ApiTime,
) -> Option<ContainerMemory> {
    let (_, container) = lineup::find(&desired.pod, name)?;
    let record = lineup.latest(name)?;
    let restarts = restart_count(record);
    let started = ApiTime::from_nanos(record.started_at);
    let mut memory = ContainerMemory {
        restart_count: restarts,
        back_off: BackOff::presumed(container, restarts, started),
        ..ContainerMemory::default()
    };
    // One that has run for longer than its startup probe would have let it must have passed.
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
