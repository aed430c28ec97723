//! Makes a pod a static pod: its name on this node, its source annotation, its UID.
//!
//! The rules it keeps: the node's name is appended, the namespace is `default` unless said, the
//! pod is bound to this node and tolerates every NoExecute taint when it comes from a file. A UID
//! that the manifest does not set is the caller's to give: the reference hashes a dump of Go memory,
//! of which only the hash itself can be had here.
//!
//! upstream: pkg/kubelet/config/common.go, config.go, pkg/api/pod/util.go

use pod_model::pod::Pod;
use pod_model::pod::scheduling::{Toleration, TolerationEffect, TolerationOperator};
use pod_model::pod::spec::PodPhase;

mod references;
mod uid_hash;

#[cfg(test)]
mod tests;

pub use pod_model::pod::SourceKind;
pub use references::{ApiReference, api_reference, reference_beyond_contents};
pub use uid_hash::{HashedSource, fnv128a, reference_uid};

pub const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
pub const CONFIG_SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";
pub const CONFIG_HASH_ANNOTATION: &str = "kubernetes.io/config.hash";

/// Binds a pod to this node, all but its UID.
pub fn apply(pod: &mut Pod, node_name: &str, source: SourceKind) {
    let metadata = &mut pod.metadata;
    metadata.name = Box::from(format!("{}-{}", metadata.name, node_name.to_lowercase()));
    if metadata.namespace.is_empty() {
        metadata.namespace = Box::from("default");
    }
    metadata.annotations.insert(CONFIG_SOURCE_ANNOTATION, Box::from(source.word()));
    pod.spec.node_name = Box::from(node_name);
    if source == SourceKind::File {
        tolerate_no_execute(&mut pod.spec.tolerations);
    }
    pod.status.phase = PodPhase::Pending;
}

/// Sets a static pod's UID, unless the manifest did, and records when it was first seen.
pub fn identify(pod: &mut Pod, uid: &str, seen: &str) {
    if pod.metadata.uid.is_empty() {
        pod.metadata.uid = Box::from(uid);
    }
    let hash = pod.metadata.uid.clone();
    pod.metadata.annotations.insert(CONFIG_HASH_ANNOTATION, hash);
    pod.metadata.annotations.insert(CONFIG_SEEN_ANNOTATION, Box::from(seen));
}

/// Adds the toleration, or puts it in place of ones that differ only in how long they tolerate.
fn tolerate_no_execute(tolerations: &mut Vec<Toleration>) {
    let always = Toleration {
        operator: TolerationOperator::Exists,
        effect: TolerationEffect::NoExecute,
        ..Toleration::default()
    };
    let mut found = false;
    for present in tolerations.iter_mut() {
        let alike = Toleration { toleration_seconds: None, ..present.clone() };
        if alike == always {
            present.toleration_seconds = None;
            found = true;
        }
    }
    if !found {
        tolerations.push(always);
    }
}
