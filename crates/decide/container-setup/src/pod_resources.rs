//! A pod's total requests and limits, with or without pod-level resources.
//!
//! Rule: pod-level resources are ignored while the gate `PodLevelResources` is off. The sums
//! themselves are computed by the model.
//!
//! upstream: component-helpers/resource/helpers.go

use pod_model::pod::resources::{
    ResourceRequirements, ResourceSide, containers_total, effective_limits, effective_requests,
    is_pod_level_resource,
};
use pod_model::pod::{Pod, ResourceList};
use pod_model::{Quantity, pod::Container};

use crate::inputs::SetupGates;

#[cfg(test)]
mod tests;

/// The pod-level resources, where the gate is on.
pub(crate) fn pod_level<'p>(pod: &'p Pod, gates: &SetupGates) -> Option<&'p ResourceRequirements> {
    let pod_level_resources =
        pod.spec.resources.as_deref().filter(|_| gates.pod_level_resources)?;
    let mut names = pod_level_resources.requests.keys().chain(pod_level_resources.limits.keys());
    names.any(is_pod_level_resource).then_some(pod_level_resources)
}

pub(crate) fn has_pod_level_limits(pod: &Pod, gates: &SetupGates) -> bool {
    pod_level(pod, gates).is_some_and(|pod_level_resources| {
        pod_level_resources.limits.keys().any(is_pod_level_resource)
    })
}

pub(crate) fn has_pod_level_requests(pod: &Pod, gates: &SetupGates) -> bool {
    pod_level(pod, gates).is_some_and(|pod_level_resources| {
        pod_level_resources.requests.keys().any(is_pod_level_resource)
    })
}

/// The pod's requests, overhead included.
pub fn requests(pod: &Pod, gates: &SetupGates) -> ResourceList {
    if gates.pod_level_resources {
        return effective_requests(&pod.spec);
    }
    let mut sum = containers_total(&pod.spec, ResourceSide::Requests);
    for (name, amount) in pod.spec.overhead.iter() {
        let total = sum.get(name).and_then(|present| present.checked_add(amount));
        sum.insert(name, total.unwrap_or(*amount));
    }
    sum
}

/// The pod's limits, overhead included.
pub fn limits(pod: &Pod, gates: &SetupGates) -> ResourceList {
    if gates.pod_level_resources {
        return effective_limits(&pod.spec);
    }
    let mut spec = pod.spec.clone();
    spec.resources = None;
    effective_limits(&spec)
}

/// The same without overhead.
pub(crate) fn without_overhead(pod: &Pod, gates: &SetupGates, side: ResourceSide) -> ResourceList {
    let mut sum = containers_total(&pod.spec, side);
    if let Some(pod_level_resources) = pod_level(pod, gates) {
        for (name, amount) in pod_level_resources.side(side).iter() {
            if is_pod_level_resource(name) {
                sum.insert(name, *amount);
            }
        }
    }
    sum
}

/// The amount of a resource; zero when unset.
pub(crate) fn amount(list: &ResourceList, name: &str) -> Quantity {
    list.get(name).copied().unwrap_or(Quantity::ZERO)
}

/// A container's limit or, where it has none, the pod's.
pub(crate) fn limit_of(
    pod: &Pod,
    container: &Container,
    gates: &SetupGates,
    name: &str,
) -> Quantity {
    let own = amount(&container.resources.limits, name);
    match pod_level(pod, gates) {
        Some(pod_level_resources) if own.is_zero() => amount(&pod_level_resources.limits, name),
        _ => own,
    }
}
