//! Actions on a pod. Each is complete (it carries every parameter) and idempotent.
//!
//! An action has a key; at most one per key is in flight, except where a new one replaces the old
//! (a grace period that became shorter). The shell executes actions.

use std::time::Duration;

/// The object of an action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionKey {
    Pod,
    Sandbox,
    /// By container name.
    Container(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContainerKind {
    Init,
    Sidecar,
    Regular,
    Ephemeral,
}

/// Why a container is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillReason {
    /// The pod terminates, or its sandbox is replaced.
    PodEnds,
    LivenessProbe,
    StartupProbe,
    /// Image or name in the specification changed.
    Changed,
    /// The runtime reports an unknown state; stopped so that there are never two.
    StateUnknown,
    FailedPostStartHook,
    RestartAllContainers,
    /// No container of this name is in the specification any more.
    NotInSpecification,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Creates the cgroup and directories.
    PreparePod,
    RunSandbox {
        attempt: u32,
    },
    StopSandbox {
        id: String,
    },
    RemoveSandbox {
        id: String,
    },
    /// Set up, create, start, then the postStart hook. When the hook fails the action ends with
    /// `StartStage::PostStart`; the planner then orders the stop.
    StartContainer {
        name: String,
        kind: ContainerKind,
        /// The restart count, as in the annotation, the metadata and the log file's name.
        attempt: u32,
        sandbox_id: String,
        /// Addresses of the sandbox, first the main one; empty on the host network.
        pod_ips: Vec<String>,
        image_ref: String,
        /// For an ephemeral container with a target: the id of the container to join.
        target_id: Option<String>,
    },
    /// The preStop hook alone: for a sidecar that is stopped only later.
    RunPreStop {
        id: String,
        name: String,
        /// How long the hook may take.
        limit: Duration,
    },
    /// The preStop hook within the grace period where `pre_stop` is set, then a stop with the
    /// remaining grace, but at least two seconds.
    StopContainer {
        id: String,
        name: String,
        grace: Duration,
        pre_stop: bool,
        reason: KillReason,
        /// For the event; none is emitted where it is empty.
        message: String,
        /// Abort the action of this key that is in flight, and do this.
        replaces: bool,
    },
    RemoveContainer {
        id: String,
        name: String,
        /// Whether its log files stay.
        keep_logs: bool,
    },
    /// Unmounts volumes and removes the cgroup; when the pod is no longer desired, its directories
    /// too.
    CleanUpPod {
        forget: bool,
    },
}

impl Action {
    pub fn key(&self) -> ActionKey {
        match self {
            Self::PreparePod | Self::CleanUpPod { .. } => ActionKey::Pod,
            Self::RunSandbox { .. } | Self::StopSandbox { .. } | Self::RemoveSandbox { .. } => {
                ActionKey::Sandbox
            }
            Self::StartContainer { name, .. }
            | Self::RunPreStop { name, .. }
            | Self::StopContainer { name, .. }
            | Self::RemoveContainer { name, .. } => ActionKey::Container(name.clone()),
        }
    }

    /// Whether it replaces the action of the same key that is in flight.
    pub fn replaces(&self) -> bool {
        matches!(self, Self::StopContainer { replaces: true, .. })
    }
}
