//! What can be done about a pod. Each action is complete (it carries every choice) and idempotent.
//!
//! An action belongs to a key; at most one per key is in flight, except where a new one replaces
//! the old (a grace period that became shorter). How an action is done is the shell's business.

use std::time::Duration;

/// What an action is about.
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
    /// The pod ends, or its sandbox is replaced.
    PodEnds,
    LivenessProbe,
    StartupProbe,
    /// Image or name in the specification changed.
    Changed,
    /// The runtime does not know its state; stopped so that there are never two.
    StateUnknown,
    FailedPostStartHook,
    RestartAllContainers,
    /// No container of this name is in the specification any more.
    NotInSpecification,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// cgroup and folders.
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
        /// The restart count: what the annotation, the metadata and the log file's name say.
        attempt: u32,
        sandbox_id: String,
        /// Addresses of the sandbox, first the main one; empty on the host network.
        pod_ips: Vec<String>,
        image_ref: String,
        /// For an ephemeral container with a target: the id of the container to join.
        target_id: Option<String>,
    },
    /// The preStop hook alone: for a sidecar whose own end must wait for its turn.
    RunPreStop {
        id: String,
        name: String,
        /// How long the hook may take.
        limit: Duration,
    },
    /// The preStop hook within the grace where `pre_stop`, then stop with what is left, but never
    /// less than two seconds.
    StopContainer {
        id: String,
        name: String,
        grace: Duration,
        pre_stop: bool,
        reason: KillReason,
        /// For the event; none is told where it is empty.
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
    /// Volumes down and cgroup gone; and, when nobody wishes the pod any more, its folders too.
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

    /// Whether it takes the place of the action of the same key that is in flight.
    pub fn replaces(&self) -> bool {
        matches!(self, Self::StopContainer { replaces: true, .. })
    }
}
