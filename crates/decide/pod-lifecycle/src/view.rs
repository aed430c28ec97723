//! The input of the planner: desired state, observation, node facts, and the time.
//!
//! Plain values that the shell fills in. An observation carries the time when it began, so that one
//! that is too old to act on is recognized.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_model::CopyOnWrite;
use pod_model::pod::Pod;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{PodCondition, PodStatus, ResourceStatus};
use ports::ApiTime;
use ports::runtime_objects::{ContainerRecord, SandboxRecord};
use serde::{Deserialize, Serialize};

use crate::memory::PodMemory;
use crate::oom_kills::OomKillRecords;

/// Everything that a plan depends on.
#[derive(Debug, Clone, Copy)]
pub struct PodView<'a> {
    pub desired: &'a DesiredPod,
    pub observed: &'a ObservedPod,
    pub memory: &'a PodMemory,
    pub facts: &'a LifecycleFacts,
    pub now: ApiTime,
}

/// A pod and its desired state.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredPod {
    pub pod: Arc<Pod>,
    pub desired_state: DesiredState,
}

impl DesiredPod {
    /// Whether the pod is no longer desired. A pod that the node evicted is still desired by its
    /// source: it stays, as failed.
    pub fn is_removal_requested(&self) -> bool {
        matches!(&self.desired_state, DesiredState::End(end) if end.is_removal)
    }

    /// The condition `DisruptionTarget`, where the desired state has one.
    pub(crate) fn disruption(&self) -> Option<&Disruption> {
        match &self.desired_state {
            DesiredState::End(TerminationRequest {
                cause: TerminationCause::Evicted { disruption, .. },
                ..
            }) => disruption.as_ref(),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum DesiredState {
    #[default]
    Run,
    End(TerminationRequest),
}

impl DesiredState {
    /// The state of a pod of the API server: it runs until it is deleted there.
    pub fn of_api_pod(pod: &Pod, now: ApiTime) -> Self {
        if pod.metadata.deletion_timestamp.is_none() {
            return Self::Run;
        }
        Self::End(TerminationRequest {
            cause: TerminationCause::Deleted,
            is_removal: true,
            grace_seconds: pod.metadata.deletion_grace_period_seconds,
            requested_at: now,
        })
    }

    /// This state after another request. A termination is never taken back; the first cause stays,
    /// a removal is added to it, and the grace period can only shrink.
    #[must_use]
    pub fn followed_by(&self, next: &Self) -> Self {
        match (self, next) {
            (Self::Run, next) => next.clone(),
            (known, Self::Run) => known.clone(),
            (Self::End(known), Self::End(next)) => {
                let shorter = match (known.grace_seconds, next.grace_seconds) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                Self::End(TerminationRequest {
                    is_removal: known.is_removal || next.is_removal,
                    grace_seconds: shorter,
                    ..known.clone()
                })
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TerminationRequest {
    pub cause: TerminationCause,
    /// The pod is gone from its source, or deleted there: nothing of it stays. False for an evicted
    /// pod that was not deleted (yet).
    pub is_removal: bool,
    /// Overrides the pod's own grace period; a later change can only shorten it.
    pub grace_seconds: Option<i64>,
    pub requested_at: ApiTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminationCause {
    /// Deleted at the API server.
    Deleted,
    /// Its manifest, or the pod in it, was removed or became another pod.
    ManifestRemoved,
    /// The node is under pressure, or shuts down. Phase Failed with this reason and message, and
    /// the condition `DisruptionTarget` where there is one. The pod stays until it is no longer
    /// desired.
    Evicted { reason: String, message: String, disruption: Option<Disruption> },
    /// It runs here, and no source knows it.
    Orphan,
}

/// Reason and message of the condition `DisruptionTarget`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Disruption {
    pub reason: String,
    pub message: String,
}

/// The runtime's state of the pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObservedPod {
    /// When this observation began.
    pub as_of: ApiTime,
    /// Newest first.
    pub sandboxes: CopyOnWrite<Vec<SandboxRecord>>,
    pub containers: CopyOnWrite<Vec<ObservedContainer>>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObservedContainer {
    pub record: ContainerRecord,
    /// Its termination message (from the file or the end of the log), within its cap.
    pub termination_message: Option<String>,
    /// OOM kills in it.
    pub oom_kills: OomKillRecords,
}

/// Node facts that concern this pod.
#[derive(Debug, Clone, PartialEq)]
pub struct LifecycleFacts {
    pub admission: Admission,
    /// The error says why the network is not ready.
    pub network_ready: Result<(), String>,
    /// The error says why the runtime is not ready.
    pub runtime_ready: Result<(), String>,
    /// By container name. Boxed, as a map has room for eleven from its first entry.
    pub images: BTreeMap<String, Box<AttemptImage>>,
    pub volumes: VolumesState,
    /// The highest attempt among the log files of each container, read once when the worker began:
    /// a runtime that lost its state must not overwrite old logs.
    pub highest_log_numbers: BTreeMap<String, u32>,
    /// The main address first. Empty: unknown (the status then has none).
    pub host_ips: Vec<String>,
    /// Conditions set by other components (readiness gates), as the API server has them.
    pub external_conditions: Vec<PodCondition>,
    /// A terminal phase that the API server has; a pod never leaves it.
    pub external_end: Option<ExternalEnd>,
    /// Whether the final status has been reported to the API server (always true without one).
    /// Container records are removed only then.
    pub final_status_reported: bool,
    /// The health of devices, by container.
    pub allocated_resources: BTreeMap<String, Vec<ResourceStatus>>,
    pub settings: Arc<PodLifecycleSettings>,
}

impl Default for LifecycleFacts {
    /// A healthy node without an API server; not yet admitted.
    fn default() -> Self {
        Self {
            admission: Admission::Pending,
            network_ready: Ok(()),
            runtime_ready: Ok(()),
            images: BTreeMap::new(),
            volumes: VolumesState::Pending(Vec::new()),
            highest_log_numbers: BTreeMap::new(),
            host_ips: Vec::new(),
            external_conditions: Vec::new(),
            external_end: None,
            final_status_reported: true,
            allocated_resources: BTreeMap::new(),
            settings: Arc::default(),
        }
    }
}

/// A terminal phase in the API server, with its reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalEnd {
    pub failed: bool,
    pub reason: String,
    pub message: String,
}

impl ExternalEnd {
    /// None where the phase is not terminal.
    pub fn of(status: &PodStatus) -> Option<Self> {
        status.is_terminal().then(|| Self {
            failed: status.phase == PodPhase::Failed,
            reason: status.reason.to_string(),
            message: status.message.to_string(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Admission {
    #[default]
    Pending,
    /// As soon as these pods, by their full names, have ended.
    WaitingForPreemption(Vec<String>),
    /// As soon as its devices are allocated.
    WaitingForDevices,
    Admitted,
    /// The reason is one word, such as `OutOfcpu`.
    Rejected {
        reason: String,
        message: String,
    },
}

/// The state of a container's image, for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptImage {
    /// As in the `RequiredImage` that this answers; a fact for another attempt counts as unknown.
    pub attempt: u32,
    pub state: ImageState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageState {
    Pulling,
    Present {
        image_ref: String,
    },
    /// The reason is upstream's: `ErrImagePull`, `ImagePullBackOff`, `ErrImageNeverPull`,
    /// `InvalidImageName`, ... The image service retries by itself.
    Failed {
        reason: String,
        message: String,
        retry_at: Option<ApiTime>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumesState {
    /// The names that are not there yet.
    Pending(Vec<String>),
    Ready,
    /// Failed; retried by itself.
    Failed(String),
}

/// The node's settings for pods.
#[derive(Debug, Clone, PartialEq)]
pub struct PodLifecycleSettings {
    pub node_name: String,
    /// The prefix of ids in statuses, such as `containerd`.
    pub runtime_name: String,
    /// `crashLoopBackOff.maxContainerRestartPeriod`, 300 s by default.
    pub max_restart_period: Duration,
    /// The first delay of a crash loop.
    pub base_restart_period: Duration,
    /// Whether the node prefers IPv6 (its main address is one).
    pub prefers_ipv6: bool,
    /// Gates `ContainerRestartRules` and `RestartAllContainersOnContainerExits`.
    pub restart_rules: bool,
    pub restart_all: bool,
    /// Whether the runtime's handlers can mount read-only recursively, by handler name.
    pub recursive_read_only: BTreeMap<String, bool>,
}

impl Default for PodLifecycleSettings {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            runtime_name: String::from("containerd"),
            max_restart_period: Duration::from_secs(300),
            base_restart_period: Duration::from_secs(10),
            prefers_ipv6: false,
            restart_rules: true,
            restart_all: true,
            recursive_read_only: BTreeMap::new(),
        }
    }
}
