//! The status that a node writes for a pod: phase, conditions, addresses, containers.
//!
//! The rule it keeps: fields, names and what is left out when empty are those of a v1 PodStatus of
//! Kubernetes 1.36; a time that is not known is written as null, as the reference writes it.
//! Nothing is computed here.

use super::codec::{object, string_enum};
use super::container::RecursiveReadOnly;
use super::resources::{QosClass, ResourceList, ResourceRequirements};
use super::spec::PodPhase;
use super::values::Timestamp;

#[cfg(test)]
mod tests;

string_enum! {
    pub enum ConditionStatus { True, False, Unknown }
}

object! {
    pub struct PodStatus {
        "observedGeneration" observed_generation: i64;
        "phase" phase: PodPhase;
        "conditions" conditions: Vec<PodCondition>;
        "message" message: Box<str>;
        "reason" reason: Box<str>;
        "hostIP" host_ip: Box<str>;
        "hostIPs" host_ips: Vec<AddressEntry>;
        "podIP" pod_ip: Box<str>;
        "podIPs" pod_ips: Vec<AddressEntry>;
        "startTime" start_time: Option<Timestamp>;
        "initContainerStatuses" init_container_statuses: Vec<ContainerStatus>;
        "containerStatuses" container_statuses: Vec<ContainerStatus>;
        "qosClass" qos_class: QosClass;
        "ephemeralContainerStatuses" ephemeral_container_statuses: Vec<ContainerStatus>;
        "resources" resources: Option<Box<ResourceRequirements>>;
        "allocatedResources" allocated_resources: ResourceList;
    }

    pub struct AddressEntry {
        "ip" ip: Box<str>, always;
    }

    pub struct PodCondition {
        "type" kind: Box<str>, always;
        "observedGeneration" observed_generation: i64;
        "status" status: ConditionStatus, always;
        "lastProbeTime" last_probe_time: Option<Timestamp>, always;
        "lastTransitionTime" last_transition_time: Option<Timestamp>, always;
        "reason" reason: Box<str>;
        "message" message: Box<str>;
    }

    pub struct ContainerStatus {
        "name" name: Box<str>, always;
        "state" state: ContainerStateNow, always;
        "lastState" last_state: ContainerStateNow, always;
        "ready" ready: bool, always;
        "restartCount" restart_count: i32, always;
        "image" image: Box<str>, always;
        "imageID" image_id: Box<str>, always;
        "containerID" container_id: Box<str>;
        "started" started: Option<bool>;
        "allocatedResources" allocated_resources: ResourceList;
        "resources" resources: Option<Box<ResourceRequirements>>;
        "volumeMounts" volume_mounts: Vec<VolumeMountStatus>;
        "user" user: Option<Box<ContainerUser>>;
        "allocatedResourcesStatus" allocated_resources_status: Vec<ResourceStatus>;
    }

    pub struct ResourceStatus {
        "name" name: Box<str>, always;
        "resources" resources: Vec<ResourceHealth>;
    }

    pub struct ResourceHealth {
        "resourceID" resource_id: Box<str>, always;
        "health" health: Box<str>;
    }

    /// Exactly one of the three is set for a container that exists; none for a last state that does
    /// not.
    pub struct ContainerStateNow {
        "waiting" waiting: Option<Box<ContainerWaiting>>;
        "running" running: Option<ContainerRunning>;
        "terminated" terminated: Option<Box<ContainerTerminated>>;
    }

    pub struct ContainerWaiting {
        "reason" reason: Box<str>;
        "message" message: Box<str>;
    }

    pub struct ContainerRunning {
        "startedAt" started_at: Option<Timestamp>, always;
    }

    pub struct ContainerTerminated {
        "exitCode" exit_code: i32, always;
        "signal" signal: i32;
        "reason" reason: Box<str>;
        "message" message: Box<str>;
        "startedAt" started_at: Option<Timestamp>, always;
        "finishedAt" finished_at: Option<Timestamp>, always;
        "containerID" container_id: Box<str>;
    }

    pub struct VolumeMountStatus {
        "name" name: Box<str>, always;
        "mountPath" mount_path: Box<str>, always;
        "readOnly" read_only: bool;
        "recursiveReadOnly" recursive_read_only: Option<RecursiveReadOnly>;
    }

    pub struct ContainerUser {
        "linux" linux: Option<LinuxContainerUser>;
    }

    pub struct LinuxContainerUser {
        "uid" uid: i64, always;
        "gid" gid: i64, always;
        "supplementalGroups" supplemental_groups: Vec<i64>;
    }
}

impl PodStatus {
    pub fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.conditions.iter().find(|condition| &*condition.kind == kind)
    }

    /// The status of a container of any of the three kinds.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.init_container_statuses
            .iter()
            .chain(&self.container_statuses)
            .chain(&self.ephemeral_container_statuses)
            .find(|status| &*status.name == name)
    }

    /// Whether the phase is one that a pod never leaves.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}

impl ContainerStateNow {
    pub fn is_waiting_for(reason: &str, message: &str) -> Self {
        let waiting = ContainerWaiting { reason: reason.into(), message: message.into() };
        Self { waiting: Some(Box::new(waiting)), ..Self::default() }
    }
}
