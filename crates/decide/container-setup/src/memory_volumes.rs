//! The size limit of a memory-backed volume.
//!
//! Rule: the minimum of the node's allocatable memory, the pod's memory limit (of its cgroup), and
//! the `sizeLimit` in its manifest.
//!
//! upstream: pkg/volume/emptydir

use pod_model::pod::Pod;
use pod_model::pod::resources::MEMORY;

use crate::cgroups::pod_limits;
use crate::inputs::{NodeSetupInputs, PodSetupInputs};
use crate::pod_resources::amount;

#[cfg(test)]
mod tests;

/// In bytes; none where there is no limit.
pub fn size(pod: &Pod, node: &NodeSetupInputs, size_limit: Option<u64>) -> Option<u64> {
    let of_node = amount(&node.allocatable, MEMORY).value();
    let of_pod = pod_limits(pod, node, &PodSetupInputs::default()).memory_bytes.unwrap_or(0);
    let known = [of_node, of_pod].map(|bytes| u64::try_from(bytes).unwrap_or(0));
    known.into_iter().chain(size_limit).filter(|bytes| *bytes > 0).min()
}
