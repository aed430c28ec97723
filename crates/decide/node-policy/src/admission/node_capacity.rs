//! The resources that a node lacks for a pod.
//!
//! Rules: the requests of all admitted pods count as used, whether they use them or not; CPU counts
//! in millicores. A plugin's resource that the node does not know is not checked; of any other
//! unknown resource the node has zero.
//!
//! upstream: pkg/scheduler/framework/plugins/noderesources/fit.go, pkg/kubelet/lifecycle/predicate.go

use pod_model::Quantity;
use pod_model::pod::Pod;
use pod_model::pod::resources::{CPU, MEMORY, effective_requests};

use super::NodeCapacity;

pub(super) const PODS: &str = "pods";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// These come first and in this order; the others follow by name.
const FIRST: [&str; 3] = [CPU, MEMORY, EPHEMERAL_STORAGE];

/// A resource of which there is too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) resource: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Shortage {
    /// How much more there would have to be.
    pub(super) fn lacking(&self) -> i64 {
        self.requested.saturating_add(self.used).saturating_sub(self.capacity)
    }

    /// For a pod that is refused for it.
    pub(super) fn reason(&self) -> String {
        format!("OutOf{}", self.resource)
    }

    pub(super) fn message(&self) -> String {
        format!(
            "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}",
            self.resource, self.requested, self.used, self.capacity
        )
    }
}

/// How much a pod takes of a resource.
pub(super) fn demand(pod: &Pod, resource: &str) -> i64 {
    if resource == PODS {
        return 1;
    }
    effective_requests(&pod.spec).get(resource).map_or(0, |asked| amount(resource, asked))
}

fn amount(resource: &str, quantity: &Quantity) -> i64 {
    match resource {
        CPU => quantity.milli_value(),
        _ => quantity.value(),
    }
}

/// What the node has too little of for one more pod.
pub(super) fn shortages(pod: &Pod, node_capacity: &NodeCapacity, others: &[&Pod]) -> Vec<Shortage> {
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
    let pods = Shortage {
        resource: PODS.to_owned(),
        requested: 1,
        used: count,
        capacity: node_capacity.pods,
    };
    let asked = effective_requests(&pod.spec);
    let first = FIRST.iter().filter_map(|name| asked.get(name).map(|amount| (*name, amount)));
    let rest = asked.iter().filter(|(name, _)| !FIRST.contains(name));
    let of_resources = first.chain(rest).filter_map(|(name, wanted)| {
        let capacity = node_capacity.allocatable.get(name);
        if capacity.is_none() && is_of_plugin(name) {
            return None;
        }
        let requested = amount(name, wanted);
        let used = others.iter().fold(0_i64, |sum, other| sum.saturating_add(demand(other, name)));
        let capacity = capacity.map_or(0, |capacity| amount(name, capacity));
        (requested > 0).then(|| Shortage { resource: name.to_owned(), requested, used, capacity })
    });
    [pods].into_iter().chain(of_resources).filter(|each| each.lacking() > 0).collect()
}

/// Whether a resource is offered by a plugin of the node or by the cluster.
fn is_of_plugin(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}
