//! Mirror pods: objects in the API server that show the static pods of this node.
//!
//! Rules: one for each static pod, with the hash of its version; another version, or a mirror that is
//! being deleted, is replaced; a mirror stays while its static pod ends, and without a static pod it
//! is removed once every source has reported. Deleting one never ends a static pod.
//!
//! upstream: pkg/kubelet/pod/mirror_client.go, pkg/kubelet/kubelet.go (tryReconcileMirrorPods)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_manifest::static_pod::CONFIG_HASH_ANNOTATION;
use pod_model::pod::Pod;
use serde_json::{Value, json};

use crate::api_pods::{ApiPods, CONFIG_MIRROR_ANNOTATION, MirrorPod};

#[cfg(test)]
mod tests;

/// A step towards the right mirror pods.
#[derive(Debug, Clone, PartialEq)]
pub enum MirrorStep {
    Create(Arc<Pod>),
    /// At once, and only this UID.
    Delete(Arc<MirrorPod>),
}

impl MirrorStep {
    /// Namespace and name.
    pub fn object(&self) -> (&str, &str) {
        match self {
            Self::Create(pod) => (&pod.metadata.namespace, &pod.metadata.name),
            Self::Delete(mirror) => (&mirror.namespace, &mirror.name),
        }
    }
}

/// The static pods of the node.
#[derive(Debug, Clone, Default)]
pub struct StaticPodSet {
    pub desired: Vec<Arc<Pod>>,
    /// Those that still end; their mirrors show how.
    pub ending: Vec<Arc<Pod>>,
    /// Every source of static pods has reported.
    pub is_complete: bool,
}

/// The next step for each name that needs one.
pub fn mirror_steps(static_pods: &StaticPodSet, api_pods: &ApiPods) -> Vec<MirrorStep> {
    if !api_pods.is_listed {
        return Vec::new();
    }
    let name = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    let mirrors: BTreeMap<_, _> = api_pods
        .mirrors
        .values()
        .map(|mirror| (name(&mirror.namespace, &mirror.name), mirror))
        .collect();
    let mut steps = Vec::new();
    let ending = static_pods.ending.iter();
    let mut shown: BTreeSet<_> =
        ending.map(|pod| name(&pod.metadata.namespace, &pod.metadata.name)).collect();
    for pod in &static_pods.desired {
        let key = name(&pod.metadata.namespace, &pod.metadata.name);
        // Its successor waits for it too.
        if shown.contains(&key) {
            continue;
        }
        match mirrors.get(&key) {
            None => steps.push(MirrorStep::Create(pod.clone())),
            Some(mirror) if mirror.is_deleted || mirror.hash != config_hash(pod) => {
                steps.push(MirrorStep::Delete(Arc::clone(mirror)));
            }
            Some(_) => {}
        }
        shown.insert(key);
    }
    if static_pods.is_complete {
        let left = mirrors.iter().filter(|(key, _)| !shown.contains(*key));
        steps.extend(left.map(|(_, mirror)| MirrorStep::Delete(Arc::clone(mirror))));
    }
    steps
}

/// The version of a static pod that its mirror shows.
pub fn config_hash(pod: &Pod) -> Box<str> {
    pod.metadata.annotations.get(CONFIG_HASH_ANNOTATION).cloned().unwrap_or_default()
}

/// The object to create; it belongs to the Node.
pub fn mirror_body(pod: &Pod, node_name: &str, node_uid: &str) -> Value {
    let mut annotations = pod.metadata.annotations.clone();
    annotations.insert(CONFIG_MIRROR_ANNOTATION, config_hash(pod));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "labels": pod.metadata.labels,
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Node",
                "name": node_name,
                "uid": node_uid,
                "controller": true,
            }],
        },
        "spec": pod.spec,
    })
}
