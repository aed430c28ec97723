//! Texts that other programs read: reasons, condition types, messages, all as in the reference.

use pod_model::pod::Pod;

pub(crate) const CONTAINER_CREATING: &str = "ContainerCreating";
pub(crate) const POD_INITIALIZING: &str = "PodInitializing";
pub(crate) const CRASH_LOOP: &str = "CrashLoopBackOff";
pub(crate) const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
pub(crate) const RESTARTING_ALL: &str = "RestartingAllContainers";
pub(crate) const OUT_OF_MEMORY: &str = "OOMKilled";
pub(crate) const NOT_THE_MAIN_PROCESS: &str =
    "the kernel killed a process of it for want of memory, not the first one";

pub(crate) const RESTARTING_ALL_MESSAGE: &str =
    "The container is removed because RestartAllContainers in place";
pub(crate) const LOST_WHILE_RUNNING: &str = "The container could not be located when the pod was \
     deleted.  The container used to be Running";
pub(crate) const LOST_AT_THE_END: &str =
    "The container could not be located when the pod was terminated";
pub(crate) const PRESUMED_COMPLETED: &str = "Unable to get init container status from container \
     runtime and pod has been initialized, treat it as exited normally";
pub(crate) const DEADLINE_REASON: &str = "DeadlineExceeded";
pub(crate) const DEADLINE_MESSAGE: &str =
    "Pod was active on the node longer than the specified deadline";

pub(crate) mod condition {
    pub(crate) const READY: &str = "Ready";
    pub(crate) const CONTAINERS_READY: &str = "ContainersReady";
    pub(crate) const INITIALIZED: &str = "Initialized";
    pub(crate) const SCHEDULED: &str = "PodScheduled";
    pub(crate) const READY_TO_START: &str = "PodReadyToStartContainers";
    pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
    pub(crate) const ALL_RESTARTING: &str = "AllContainersRestarting";
}

/// The prefix of a rejection's reason in the pod's message.
pub(crate) const REJECTED: &str = "Pod was rejected: ";

/// `name_namespace(uid)`, as the reference names pods in messages.
pub(crate) fn pod_in_messages(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}_{}({})", meta.name, meta.namespace, meta.uid)
}

/// The field path of a container in the specification, such as `spec.containers{web}`.
pub(crate) fn field_path(pod: &Pod, container: &str) -> Option<String> {
    let (list, _, _) = pod.spec.all_containers().find(|(_, _, each)| &*each.name == container)?;
    Some(format!("spec.{}{{{container}}}", list.field()))
}

/// Whether the pod comes from a manifest, not from an API server.
pub(crate) fn is_static(pod: &Pod) -> bool {
    pod.metadata
        .annotations
        .get("kubernetes.io/config.source")
        .is_some_and(|source| &**source != "api")
}
