//! Builds the observation of each pod from the runtime's answer.
//!
//! Rule: drops only what belongs to no pod; sandboxes are sorted newest first.

use super::RuntimePodName;
use pod_lifecycle::{ObservedContainer, ObservedPod};
use ports::ApiTime;
use ports::runtime_objects::{ContainerRecord, RuntimePods, SandboxRecord};
use std::collections::BTreeMap;

const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";

/// Groups an answer by pod.
pub(super) fn by_pod(answer: RuntimePods, as_of: ApiTime) -> BTreeMap<String, ObservedPod> {
    let mut pods: BTreeMap<String, ObservedPod> = BTreeMap::new();
    let empty = || ObservedPod { as_of, ..ObservedPod::default() };
    let owners: BTreeMap<String, String> =
        answer.sandboxes.iter().map(|each| (each.id.clone(), each.uid.clone())).collect();
    for sandbox in answer.sandboxes.into_iter().filter(|each| !each.uid.is_empty()) {
        pods.entry(sandbox.uid.clone()).or_insert_with(empty).sandboxes.push(sandbox);
    }
    for record in answer.containers {
        let uid = record.labels.get(POD_UID_LABEL).or_else(|| owners.get(&record.sandbox_id));
        if let Some(uid) = uid.filter(|uid| !uid.is_empty()).cloned() {
            let container = ObservedContainer { record, ..ObservedContainer::default() };
            pods.entry(uid).or_insert_with(empty).containers.push(container);
        }
    }
    for pod in pods.values_mut() {
        pod.sandboxes.sort_by(newest_first);
        // Kept until the pod changes.
        pod.sandboxes.shrink_to_fit();
        pod.containers.shrink_to_fit();
    }
    pods
}

fn newest_first(one: &SandboxRecord, other: &SandboxRecord) -> std::cmp::Ordering {
    (other.attempt, other.created_at, &other.id).cmp(&(one.attempt, one.created_at, &one.id))
}

/// The pod's name, from its sandboxes or containers.
pub(super) fn name_of(pod: &ObservedPod) -> RuntimePodName {
    let mut labels = pod.sandboxes.iter().map(|each| &each.labels);
    let mut of_containers = pod.containers.iter().map(|each| &each.record.labels);
    let is_kubelet_pod = labels.any(|labels| labels.contains_key(POD_UID_LABEL))
        || of_containers.any(|labels| labels.contains_key(POD_UID_LABEL));
    if let Some(sandbox) = pod.sandboxes.first() {
        let (namespace, name) = (sandbox.namespace.clone(), sandbox.name.clone());
        return RuntimePodName { namespace, name, is_kubelet_pod, is_unread: false };
    }
    let label = |record: &ContainerRecord, key: &str| record.labels.get(key).cloned();
    let record = pod.containers.first().map(|container| &container.record);
    RuntimePodName {
        namespace: record.and_then(|each| label(each, POD_NAMESPACE_LABEL)).unwrap_or_default(),
        name: record.and_then(|each| label(each, POD_NAME_LABEL)).unwrap_or_default(),
        is_kubelet_pod,
        is_unread: false,
    }
}

pub(super) fn is_nothing(pod: &ObservedPod) -> bool {
    pod.sandboxes.is_empty() && pod.containers.is_empty()
}

/// Whether two observations are equal except for their time.
pub(super) fn has_same_content(one: &ObservedPod, other: &ObservedPod) -> bool {
    one.sandboxes == other.sandboxes && one.containers == other.containers
}
