//! The devices that a pod's containers ask for, in the order in which they are allocated.
//!
//! Rule: init containers come first, and what they had is used again by the containers after them,
//! unless they go on running.

use pod_model::pod::container::ContainerRestartPolicy;
use pod_model::pod::{Container, Pod};

#[cfg(test)]
mod tests;

/// What one container asks of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest {
    pub container: String,
    pub resource: String,
    pub count: usize,
}

/// A container, as the reuse of devices sees it.
pub(crate) struct ContainerOrder<'a> {
    pub(crate) name: &'a str,
    /// An init container that ends before the next one starts.
    pub(crate) ends_first: bool,
}

/// In the order of allocation.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = (ContainerOrder<'_>, &Container)> {
    let init = pod.spec.init_containers.iter().map(|container| {
        let stays = container.restart_policy == Some(ContainerRestartPolicy::Always);
        (ContainerOrder { name: &container.name, ends_first: !stays }, container)
    });
    let regular = pod.spec.containers.iter();
    init.chain(
        regular.map(|container| {
            (ContainerOrder { name: &container.name, ends_first: false }, container)
        }),
    )
}

/// Whether a container of the pod asks for a resource that could be a device plugin's: such
/// resources have a domain in their names.
pub fn may_need_devices(pod: &Pod) -> bool {
    let mut containers = containers(pod);
    containers.any(|(_, it)| it.resources.limits.keys().any(|name| name.contains('/')))
}

/// What the pod's containers, or only the one of that name, ask of the resources that `is_device`
/// names.
pub fn container_requests(
    pod: &Pod,
    only: Option<&str>,
    is_device: impl Fn(&str) -> bool,
) -> Vec<ContainerRequest> {
    let mut requests = Vec::new();
    for (order, container) in containers(pod) {
        if only.is_some_and(|only| only != order.name) {
            continue;
        }
        for (resource, amount) in container.resources.limits.iter() {
            // A device plugin's resource has a domain; this spares most pods the look-up.
            if !resource.contains('/') || !is_device(resource) {
                continue;
            }
            requests.push(ContainerRequest {
                container: order.name.to_owned(),
                resource: resource.to_owned(),
                count: usize::try_from(amount.value()).unwrap_or(0),
            });
        }
    }
    requests
}
