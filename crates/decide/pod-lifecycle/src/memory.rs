//! The node's memory of a pod: history that no observation of the runtime shows.
//!
//! One value per pod, owned by its worker. It changes only by `apply_input` (an event) and is created by
//! `recover` (an agent starts). It also holds the actions in flight, the only part that is lost
//! when the agent stops.

use std::collections::{BTreeMap, BTreeSet};

use pod_model::pod::status::ContainerTerminated;
use pod_model::pod::{Timestamp, spec::PodPhase};
use ports::ApiTime;
use ports::runtime_objects::ContainerRecord;
use serde::{Deserialize, Serialize};

use crate::action::{Action, ActionKey};
use crate::back_off::RestartBackOff;
use crate::containers_by_name::restart_count;
use crate::input::{Milestone, ProbeKind};
use crate::sandbox;
use crate::status_text::REJECTED;
use crate::view::{Disruption, ObservedPod};

mod action_ended;
mod apply_input;
mod events;
mod planned;
mod probes;
mod recover;

#[cfg(test)]
mod tests;

/// Owned by the pod's worker; changed only by `apply_input`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodMemory {
    pub(crate) persisted: PersistedMemory,
    /// Boxed, as a map has room for eleven from its first entry, and most pods have one container.
    pub(crate) transient: BTreeMap<String, Box<Transient>>,
    pub(crate) in_flight: BTreeMap<ActionKey, InFlight>,
    /// When the last action of each key finished.
    pub(crate) last_end: BTreeMap<ActionKey, ApiTime>,
    /// The last error of each key; cleared by the next success.
    pub(crate) failures: BTreeMap<ActionKey, ActionFailure>,
    /// Whether cgroup and directories were created by this agent.
    pub(crate) prepared: bool,
    /// The back-off that the last plan proposed for a start.
    proposed: BTreeMap<String, RestartBackOff>,
    /// What events have reported already, by topic.
    emitted: BTreeMap<String, String>,
    marked: BTreeSet<Milestone>,
    /// The newest sandbox that was observed ready.
    ready_sandbox: Option<String>,
    /// A sandbox that was ready and no longer is, though this agent did not stop it, and since
    /// when.
    lost_sandbox: Option<(String, ApiTime)>,
}

/// The part that is saved across restarts of the agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PersistedMemory {
    /// Nanoseconds since the epoch, as all times here.
    pub(crate) start_time: Option<i64>,
    /// Boxed for the same reason.
    pub(crate) containers: BTreeMap<String, Box<ContainerMemory>>,
    pub(crate) conditions: BTreeMap<String, ConditionMemory>,
    #[serde(rename = "verdict")]
    pub(crate) terminal_status: Option<TerminalStatus>,
    #[serde(rename = "ending")]
    pub(crate) termination: Option<Ending>,
    /// All containers are being stopped, but the pod continues in a new sandbox (or is done).
    pub(crate) clearing: Option<Ending>,
    /// Sandboxes that were stopped, including their network; a dead one may still have it.
    pub(crate) stopped_sandboxes: BTreeSet<String>,
    pub(crate) pod_ips: Vec<String>,
    /// By container id: the OOM kills that events have reported.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(rename = "killsTold")]
    pub(crate) reported_kills: BTreeMap<String, ReportedKills>,
    /// Whether clean-up was done; `true` when it included the directories.
    pub(crate) cleaned: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) action: Action,
    pub(crate) began_at: ApiTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionFailure {
    pub(crate) message: String,
    pub(crate) retry_at: ApiTime,
}

/// Its terminal state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct TerminalStatus {
    pub(crate) failed: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The condition that goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disruption: Option<Disruption>,
}

/// Containers are being stopped; the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ending {
    pub(crate) since: i64,
    pub(crate) grace_seconds: i64,
    pub(crate) deadline: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ConditionMemory {
    pub(crate) met: bool,
    pub(crate) since: i64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerMemory {
    pub(crate) restart_count: u32,
    /// The highest attempt that was ever observed started: no attempt number is used twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) highest: Option<u32>,
    pub(crate) reported: Reported,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_exit: Option<ContainerExit>,
    /// The container whose startup probe has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) startup_passed: Option<String>,
    /// The last result of the readiness probe, and its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) readiness: Option<(String, bool)>,
    /// The container that failed its liveness or startup probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_probe: Option<(String, ProbeKind)>,
    /// The container that we killed in order to restart it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) killed: Option<String>,
    /// The container whose postStart hook failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) post_start_failed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop: Option<ContainerStop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) back_off: Option<RestartBackOff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_failure: Option<SavedStartFailure>,
}

/// Up to which kill the kills of a container were reported; a restarted agent reads the same kills
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ReportedKills {
    /// The last one with an identified process.
    pub(crate) order: u64,
    /// How many without an identified process.
    pub(crate) unnamed: u64,
}

/// The part of a container's memory that is not saved.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Transient {
    /// The container that the runtime reported stopped, and when.
    pub(crate) stop_done: Option<(String, ApiTime)>,
    /// The last waiting reason in the status.
    pub(crate) shown_start_blocker: Option<(String, String)>,
    pub(crate) streaks: BTreeMap<ProbeKind, Streak>,
}

/// What was last reported of a container.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) enum Reported {
    #[default]
    Nothing,
    Waiting,
    Running {
        id: String,
    },
    Exited {
        exit: ContainerExit,
        image: String,
        image_id: String,
    },
}

/// A container's exit, as reported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerExit {
    pub(crate) code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Seconds since the epoch.
    pub(crate) started_at: Option<i64>,
    pub(crate) finished_at: Option<i64>,
    pub(crate) container_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStop {
    pub(crate) id: String,
    pub(crate) deadline: i64,
    /// Whether its preStop hook has finished.
    pub(crate) hook_done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SavedStartFailure {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) retry_at: Option<i64>,
}

/// Consecutive equal results of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Streak {
    pub(crate) container_id: String,
    pub(crate) success: bool,
    pub(crate) length: u32,
}

impl PodMemory {
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerMemory> {
        self.persisted.containers.get(name).map(Box::as_ref)
    }

    /// Records used attempt numbers, so that they stay used when the runtime forgets them.
    fn record_restart_counts(&mut self, observed: &ObservedPod) {
        for container in &observed.containers {
            let record = &container.record;
            if record.started_at > 0 || record.finished_at > 0 {
                let count = restart_count(record);
                let memory = self.container_mut(&record.name);
                memory.highest = Some(memory.highest.unwrap_or(0).max(count));
            }
        }
    }

    fn container_mut(&mut self, name: &str) -> &mut ContainerMemory {
        self.persisted.containers.entry(name.to_owned()).or_default()
    }

    fn transient_mut(&mut self, name: &str) -> &mut Transient {
        self.transient.entry(name.to_owned()).or_default()
    }

    /// When a sandbox was first observed not ready without an action of ours.
    pub(crate) fn lost_at(&self, sandbox_id: &str) -> Option<ApiTime> {
        self.lost_sandbox.as_ref().filter(|(id, _)| id == sandbox_id).map(|(_, at)| *at)
    }

    fn track_sandboxes(&mut self, observed: &ObservedPod, now: ApiTime) {
        let of_id = |id: &str| observed.sandboxes.iter().find(|sandbox| sandbox.id == *id);
        if let Some(before) = self.ready_sandbox.take()
            && of_id(&before).is_some_and(|sandbox| !sandbox.ready)
            && !self.has_stopped(&before)
        {
            self.lost_sandbox = Some((before, now));
        }
        let is_here = self.lost_sandbox.as_ref().is_some_and(|(id, _)| of_id(id).is_some());
        if !is_here {
            self.lost_sandbox = None;
        }
        self.ready_sandbox = sandbox::active(observed).map(|sandbox| sandbox.id.clone());
    }

    /// Whether we have stopped a sandbox, or are just stopping it.
    fn has_stopped(&self, sandbox_id: &str) -> bool {
        let flight = self.in_flight.get(&ActionKey::Sandbox).map(|flight| &flight.action);
        let is_stopping = matches!(flight, Some(Action::StopSandbox { id }) if id == sandbox_id);
        is_stopping || self.persisted.stopped_sandboxes.contains(sandbox_id)
    }

    /// Whether the pod was reported as ended: it never runs again.
    pub fn has_ended(&self) -> bool {
        self.persisted.terminal_status.is_some()
    }

    pub(crate) fn is_in_flight(&self, key: &ActionKey) -> bool {
        self.in_flight.contains_key(key)
    }

    pub(crate) fn container_in_flight(&self, name: &str) -> Option<&InFlight> {
        self.in_flight.get(&ActionKey::Container(name.to_owned()))
    }

    /// When an action on this key last finished.
    pub fn last_action_end(&self, key: &ActionKey) -> Option<ApiTime> {
        self.last_end.get(key).copied()
    }

    /// When any action on this pod last finished: an observation must be newer to be acted on.
    pub fn last_end(&self) -> Option<ApiTime> {
        self.last_end.values().max().copied()
    }

    pub fn action_in_flight(&self, key: &ActionKey) -> Option<&Action> {
        self.in_flight.get(key).map(|each| &each.action)
    }

    /// The actions in flight.
    pub fn actions_in_flight(&self) -> impl Iterator<Item = &Action> {
        self.in_flight.values().map(|each| &each.action)
    }
}

impl InFlight {
    /// Whether this is the container that is being started, by its attempt number, which is unique;
    /// the runtime's clock may differ from ours.
    pub(crate) fn started(&self, record: &ContainerRecord) -> bool {
        matches!(self.action, Action::StartContainer { attempt, .. }
            if attempt == restart_count(record))
    }
}

impl TerminalStatus {
    /// The reason for its rejection, where it was rejected.
    pub(crate) fn rejection(&self) -> Option<&str> {
        self.message.strip_prefix(REJECTED).filter(|_| self.failed)
    }

    pub(crate) fn phase(&self) -> PodPhase {
        if self.failed { PodPhase::Failed } else { PodPhase::Succeeded }
    }
}

impl ContainerExit {
    pub(crate) fn of(terminated: &ContainerTerminated) -> Self {
        Self {
            code: terminated.exit_code,
            reason: terminated.reason.to_string(),
            message: terminated.message.to_string(),
            started_at: terminated.started_at.map(|at| at.0),
            finished_at: terminated.finished_at.map(|at| at.0),
            container_id: terminated.container_id.to_string(),
        }
    }

    pub(crate) fn to_status(&self) -> ContainerTerminated {
        ContainerTerminated {
            exit_code: self.code,
            signal: 0,
            reason: self.reason.as_str().into(),
            message: self.message.as_str().into(),
            started_at: self.started_at.map(Timestamp),
            finished_at: self.finished_at.map(Timestamp),
            container_id: self.container_id.as_str().into(),
        }
    }
}
