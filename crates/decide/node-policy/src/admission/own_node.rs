//! The node's capacity for pods as its own Node object has it.
//!
//! Rules: labels, taints and allocatable are the object's, whichever client wrote them. A Node
//! without any allocatable has no status yet and keeps what this machine would report; the operating
//! system is this machine's.
//!
//! upstream: pkg/kubelet/kubelet_nodecache.go, pkg/kubelet/lifecycle/predicate.go

use pod_model::Quantity;
use ports::node_object::NodeObject;

use super::node_capacity::PODS;
use super::{NodeCapacity, OS_LABEL, THIS_OS};

#[cfg(test)]
mod tests;

impl NodeCapacity {
    /// `self`, which is of this machine, with what `node` says instead.
    #[must_use]
    pub fn with_node(&self, node: &NodeObject) -> Self {
        let mut labels = node.metadata.labels.clone();
        labels.insert(OS_LABEL.to_owned(), THIS_OS.to_owned());
        let known = Self { labels, taints: node.spec.taints.clone(), ..self.clone() };
        let reported = &node.status.allocatable;
        if reported.is_empty() {
            return known;
        }
        Self {
            pods: reported.get(PODS).map_or(0, Quantity::value),
            allocatable: reported.iter().map(|(name, amount)| (name, *amount)).collect(),
            ..known
        }
    }
}
