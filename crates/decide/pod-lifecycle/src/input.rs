//! Events that the memory of a pod absorbs, and their results: Kubernetes events, timeline
//! milestones, save requests.
//!
//! Plain values. Events have upstream's reasons and texts; none of them contains a secret.

use pod_model::pod::handler::Probe;
use pod_model::pod::{Container, Pod};
use ports::ApiTime;
use serde::{Deserialize, Serialize};

use crate::action::{Action, ActionKey};
use crate::plan::PodPlan;
use crate::view::ObservedPod;

#[derive(Debug, Clone)]
pub enum PodInput<'a> {
    /// A plan was made and is executed: its status becomes the last reported one.
    Planned(&'a PodPlan),
    /// The action was dispatched.
    ActionBegun(&'a Action),
    Ended {
        key: ActionKey,
        outcome: ActionOutcome,
    },
    Observed(&'a ObservedPod),
    Probe {
        container: String,
        container_id: String,
        kind: ProbeKind,
        result: ProbeResult,
    },
    /// The pod or its desired state changed.
    DesiredStateChanged,
}

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionOutcome {
    /// PreparePod, StopSandbox, RemoveSandbox, RemoveContainer, CleanUpPod; an error carries its
    /// message.
    Done(Result<(), String>),
    /// RunSandbox: its id.
    SandboxRun(Result<String, String>),
    /// StartContainer: its id.
    ContainerStarted(Result<String, StartFailure>),
    /// RunPreStop, StopContainer.
    ContainerStopped {
        /// The preStop hook failed.
        hook_failed: bool,
        result: Result<(), String>,
    },
    /// It was aborted by its replacement, or by a restart of the worker. Its outcome is unknown.
    Aborted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    pub stage: StartStage,
    /// One sentence, shown in the status. For a hook it must not contain anything that could be
    /// secret: the event has a fixed text.
    pub message: String,
    /// Set where the container was created.
    pub id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartStage {
    /// CreateContainerConfigError
    Config,
    /// CreateContainerError
    Create,
    /// RunContainerError
    Start,
    /// PostStartHookError; the container runs and will be killed.
    PostStart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProbeKind {
    Liveness,
    Readiness,
    Startup,
}

impl ProbeKind {
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The specification of this probe of a container.
    pub fn of<'a>(self, pod: &'a Pod, container: &str) -> Option<&'a Probe> {
        let (_, _, container) =
            pod.spec.all_containers().find(|(_, _, each)| &*each.name == container)?;
        self.in_container(container)
    }

    pub(crate) fn in_container(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Liveness => container.liveness_probe.as_deref(),
            Self::Readiness => container.readiness_probe.as_deref(),
            Self::Startup => container.startup_probe.as_deref(),
        }
    }

    /// The name of the probe at the start of the reference's events.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
            Self::Startup => "Startup",
        }
    }
}

/// The result of one attempt of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    Success,
    /// Counts as a success, with a warning.
    Warning(String),
    Failure(String),
    /// The attempt itself failed (no answer from the runtime). It is ignored.
    Unknown(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    Normal,
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    pub kind: EventType,
    pub reason: String,
    pub message: String,
    /// Such as `spec.containers{web}`.
    pub field_path: Option<String>,
}

/// A milestone of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Milestone {
    Seen,
    Admitted,
    SandboxBegan,
    SandboxRan,
    PullBegan { container: String },
    ImageReady { container: String },
    CreateBegan { container: String, attempt: u32 },
    Started { container: String, attempt: u32 },
    FirstReady,
    TerminationRequested,
    ContainersEnded,
    CleanedUp,
}

/// Whether and when the memory must be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SaveUrgency {
    #[default]
    Not,
    /// In the background, soon.
    Soon,
    /// Before the next action begins; for a start, before the new container runs.
    BeforeNextAction,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodEffects {
    pub events: Vec<PodEvent>,
    /// Each with its time.
    pub marks: Vec<(ApiTime, Milestone)>,
    pub save: SaveUrgency,
}
