//! Requests and limits of containers and pods, summed for the pod; and the QoS class that follows
//! from them.
//!
//! The rules it keeps: containers that run together add up; an init container runs alone with the
//! sidecars that started before it, so the pod needs the larger of the two; pod-level resources
//! replace the sum; overhead is added.
//!
//! upstream: component-helpers/resource/helpers.go, pkg/apis/core/v1/helper/qos

use super::codec::{object, string_enum};
use super::container::Container;
use super::spec::{Pod, PodSpec};
use super::values::SortedMap;
use crate::Quantity;

#[cfg(test)]
mod tests;

/// Amounts by resource name.
pub type ResourceList = SortedMap<Quantity>;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const HUGE_PAGES_PREFIX: &str = "hugepages-";

string_enum! {
    pub enum QosClass { Guaranteed, Burstable, BestEffort }
}

object! {
    pub struct ResourceRequirements {
        "limits" limits: ResourceList;
        "requests" requests: ResourceList;
        "claims" claims: Vec<ResourceClaim>;
    }

    pub struct ResourceClaim {
        "name" name: Box<str>, always;
        "request" request: Box<str>;
    }
}

/// Whether a resource may be set at pod level.
pub fn is_pod_level_resource(name: &str) -> bool {
    name == CPU || name == MEMORY || name.starts_with(HUGE_PAGES_PREFIX)
}

/// Which of its two lists of a container is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceSide {
    Requests,
    Limits,
}

impl ResourceRequirements {
    pub fn side(&self, side: ResourceSide) -> &ResourceList {
        match side {
            ResourceSide::Requests => &self.requests,
            ResourceSide::Limits => &self.limits,
        }
    }
}

/// Adds amounts up. A sum that no quantity can hold stays at the larger of the two.
fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more.iter() {
        let total = match sum.get(name) {
            Some(present) => present.checked_add(amount).unwrap_or_else(|| *present.max(amount)),
            None => *amount,
        };
        sum.insert(name, total);
    }
}

/// Keeps the larger of both for each name.
fn raise(highest: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other.iter() {
        if highest.get(name).is_none_or(|present| amount > present) {
            highest.insert(name, *amount);
        }
    }
}

/// The total of a pod's containers, without pod-level resources and without overhead.
pub fn containers_total(spec: &PodSpec, side: ResourceSide) -> ResourceList {
    let of = |container: &Container| container.resources.side(side).clone();
    let mut together = ResourceList::default();
    for container in &spec.containers {
        add(&mut together, &of(container));
    }
    let mut sidecars = ResourceList::default();
    let mut while_starting = ResourceList::default();
    for container in &spec.init_containers {
        let mut running = of(container);
        if container.is_restarted_always() {
            add(&mut together, &running);
            add(&mut sidecars, &running);
            running.clone_from(&sidecars);
        } else {
            add(&mut running, &sidecars);
        }
        raise(&mut while_starting, &running);
    }
    raise(&mut together, &while_starting);
    together
}

/// The pod's total requests: what admission and the cgroup count.
pub fn effective_requests(spec: &PodSpec) -> ResourceList {
    let mut requests = containers_total(spec, ResourceSide::Requests);
    replace_with_pod_level(&mut requests, spec, ResourceSide::Requests);
    add(&mut requests, &spec.overhead);
    requests
}

/// The pod's total limits. Overhead is added only where there is a limit to add it to.
pub fn effective_limits(spec: &PodSpec) -> ResourceList {
    let mut limits = containers_total(spec, ResourceSide::Limits);
    replace_with_pod_level(&mut limits, spec, ResourceSide::Limits);
    for (name, amount) in spec.overhead.iter() {
        if let Some(limit) = limits.get(name).copied().filter(|limit| !limit.is_zero()) {
            limits.insert(name, limit.checked_add(amount).unwrap_or(limit));
        }
    }
    limits
}

fn replace_with_pod_level(total: &mut ResourceList, spec: &PodSpec, side: ResourceSide) {
    let Some(resources) = &spec.resources else { return };
    for (name, amount) in resources.side(side).iter() {
        if is_pod_level_resource(name) {
            total.insert(name, *amount);
        }
    }
}

/// The QoS class of a pod: the one in its status if there is one, otherwise computed.
pub fn qos_class(pod: &Pod) -> QosClass {
    if pod.status.qos_class.is_known() {
        return pod.status.qos_class.clone();
    }
    computed_qos_class(&pod.spec)
}

/// The QoS class that follows from a specification.
pub fn computed_qos_class(spec: &PodSpec) -> QosClass {
    let mut requests = ResourceList::default();
    let mut limits = ResourceList::default();
    let mut limited = true;
    if let Some(resources) = &spec.resources {
        // Pod-level resources decide alone; containers are ignored.
        add(&mut requests, &counted(&resources.requests));
        add(&mut limits, &counted(&resources.limits));
        limited = resources.limits.is_empty() || is_fully_limited(resources);
    } else {
        for container in spec.containers.iter().chain(&spec.init_containers) {
            add(&mut requests, &counted(&container.resources.requests));
            add(&mut limits, &counted(&container.resources.limits));
            limited &= is_fully_limited(&container.resources);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        QosClass::BestEffort
    } else if limited && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

/// The amounts that determine the class: CPU and memory above zero.
fn counted(list: &ResourceList) -> ResourceList {
    list.iter()
        .filter(|(name, amount)| (*name == CPU || *name == MEMORY) && amount.sign() > 0)
        .map(|(name, amount)| (name, *amount))
        .collect()
}

fn is_fully_limited(resources: &ResourceRequirements) -> bool {
    counted(&resources.limits).len() == 2
}
