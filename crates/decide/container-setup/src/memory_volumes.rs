//! How much a volume in memory may hold.
//!
//! Rule: what pods may use of the node, what this pod may use (by its cgroup's limit), what its
//! manifest says: the least of them.
//!
//! upstream: pkg/volume/emptydir

use pod_model::pod::Pod;
use pod_model::pod::resources::MEMORY;

use crate::cgroups::pod_limits;
use crate::inputs::{NodeFacts, PodFacts};
use crate::pod_resources::amount;

#[cfg(test)]
mod tests;

/// In bytes; none where nobody limits it.
pub fn size(pod: &Pod, node: &NodeFacts, said: Option<u64>) -> Option<u64> {
    let of_node = amount(&node.allocatable, MEMORY).value();
    let of_pod = pod_limits(pod, node, &PodFacts::default()).memory_bytes.unwrap_or(0);
    let known = [of_node, of_pod].map(|bytes| u64::try_from(bytes).unwrap_or(0));
    known.into_iter().chain(said).filter(|bytes| *bytes > 0).min()
}
