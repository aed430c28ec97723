//! Which devices a container gets.
//!
//! Rule: what a container has it keeps. Devices of init containers that have ended come first, then
//! those that the plugin prefers, then any that are free and healthy. The order of the checks and
//! the texts are the reference's.
//!
//! upstream: pkg/kubelet/cm/devicemanager/manager.go (devicesToAllocate)

use std::collections::{BTreeMap, BTreeSet};

use pod_model::pod::Pod;
use ports::plugins::{DeviceAllocation, PreferredDevices};

use crate::device_table::{AllocatedResource, DeviceTable};
use crate::pod_requests::{ContainerRequest, containers};

#[cfg(test)]
pub(crate) mod tests;

/// Stands for no NUMA node in the checkpoint.
const NO_NUMA_NODE: i64 = -1;

/// The reason of a pod that is rejected for want of its devices.
pub const REJECTION_REASON: &str = "UnexpectedAdmissionError";

/// The message of such a pod.
// upstream: pkg/kubelet/cm/admission/errors.go
pub fn rejection_message(error: &str) -> String {
    format!("Allocate failed due to {error}, which is unexpected")
}

/// A container's need of one resource.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRequest<'a> {
    pub pod: &'a Pod,
    pub request: &'a ContainerRequest,
    /// What the plugin prefers; None until it was asked.
    pub preferred: Option<&'a [String]>,
}

impl DeviceRequest<'_> {
    fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }
}

/// What is to be done for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The container has all that it needs.
    Nothing,
    /// The plugin is to be asked what it prefers, and the choice to be made again.
    AskPreferred { endpoint: String, request: PreferredDevices },
    /// These devices are reserved: the plugin is to allocate them, then the answer to be recorded.
    Allocate { endpoint: String, devices: Vec<String> },
}

/// Why a container gets no devices, in the reference's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    #[error(
        "pod {uid:?} container {container:?} changed request for resource {resource:?} from {from} to {to}"
    )]
    Changed { uid: String, container: String, resource: String, from: usize, to: usize },
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    NoLongerHealthy(String),
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    TooFew { resource: String, requested: usize, available: usize },
    #[error("unknown Device Plugin {0}")]
    NoPlugin(String),
}

impl DeviceTable {
    /// Chooses the devices of one request, and reserves them.
    pub fn choose(&mut self, asked: &DeviceRequest<'_>) -> Result<DeviceChoice, AllocationError> {
        let ContainerRequest { container, resource, count } = asked.request;
        let had = self.allocated(asked.uid(), container, resource).map(AllocatedResource::ids);
        if let Some(had) = had.as_ref().filter(|had| had.len() != *count) {
            return Err(AllocationError::Changed {
                uid: asked.uid().to_owned(),
                container: container.clone(),
                resource: resource.clone(),
                from: had.len(),
                to: *count,
            });
        }
        let entry = self.resources.get(resource).filter(|entry| entry.is_known);
        let entry = entry.ok_or_else(|| AllocationError::Unregistered(resource.clone()))?;
        let healthy = entry.healthy();
        if healthy.is_empty() {
            return Err(AllocationError::NoneHealthy(resource.clone()));
        }
        if let Some(had) = had {
            let is_healthy = had.iter().all(|id| healthy.contains(id));
            return if is_healthy {
                Ok(DeviceChoice::Nothing)
            } else {
                Err(AllocationError::NoLongerHealthy(resource.clone()))
            };
        }
        if *count == 0 {
            return Ok(DeviceChoice::Nothing);
        }
        let connection = entry.connection();
        let connection = connection.ok_or_else(|| AllocationError::NoPlugin(resource.clone()))?;
        let endpoint = connection.endpoint.clone();
        let mut chosen: BTreeSet<&str> =
            self.reusable(asked.pod, container, resource).into_iter().take(*count).collect();
        let missing = count - chosen.len();
        let free: BTreeSet<&str> = self.free(resource, &healthy);
        if missing > 0 {
            if free.len() < missing {
                return Err(AllocationError::TooFew {
                    resource: resource.clone(),
                    requested: missing,
                    available: free.len(),
                });
            }
            if connection.options.preferred_allocation && asked.preferred.is_none() {
                let request = preferred_request(&chosen, &free, *count);
                return Ok(DeviceChoice::AskPreferred { endpoint, request });
            }
            let preferred = asked.preferred.unwrap_or_default().iter().map(String::as_str);
            let preferred = preferred.filter(|id| free.contains(id));
            let all: Vec<&str> = preferred.chain(free.iter().copied()).collect();
            for id in all {
                if chosen.len() < *count {
                    chosen.insert(id);
                }
            }
        }
        let devices: Vec<String> = chosen.into_iter().map(str::to_owned).collect();
        let reserved = self.reserved.entry(resource.clone()).or_default();
        reserved.extend(devices.iter().map(|id| (id.clone(), asked.uid().to_owned())));
        Ok(DeviceChoice::Allocate { endpoint, devices })
    }

    /// Records the plugin's answer: the container has the devices from now on.
    pub fn record(
        &mut self,
        pod: &Pod,
        request: &ContainerRequest,
        devices: &[String],
        answer: DeviceAllocation,
    ) {
        let uid = &*pod.metadata.uid;
        let ContainerRequest { container, resource, .. } = request;
        let mut by_numa_node: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let listed = self.resources.get(resource).map(|entry| &entry.devices);
        for id in devices {
            let device = listed.and_then(|listed| listed.get(id));
            let nodes = device.map(|device| device.numa_nodes.clone()).unwrap_or_default();
            let nodes = if nodes.is_empty() { vec![NO_NUMA_NODE] } else { nodes };
            for node in nodes {
                by_numa_node.entry(node).or_default().push(id.clone());
            }
        }
        let DeviceAllocation { setup, encoded } = answer;
        self.cancel(resource, devices);
        self.insert(uid, container, resource, AllocatedResource { by_numa_node, encoded, setup });
    }

    /// The plugin has not allocated the devices that were reserved.
    pub fn cancel(&mut self, resource: &str, devices: &[String]) {
        if let Some(reserved) = self.reserved.get_mut(resource) {
            reserved.retain(|id, _| !devices.contains(id));
        }
    }

    /// Healthy devices that no container has.
    fn free<'a>(&self, resource: &str, healthy: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let reserved = self.reserved.get(resource).into_iter().flat_map(BTreeMap::keys);
        let containers = self.pods.values().flat_map(BTreeMap::values);
        let used = containers.filter_map(|container| container.get(resource));
        let used = used.flat_map(AllocatedResource::ids);
        let used: BTreeSet<&str> = used.chain(reserved.map(String::as_str)).collect();
        healthy.iter().filter(|id| !used.contains(*id)).copied().collect()
    }

    /// Devices of the pod's earlier containers that have ended when this one starts.
    fn reusable<'a>(&'a self, pod: &Pod, container: &str, resource: &str) -> BTreeSet<&'a str> {
        let mut reusable = BTreeSet::new();
        for (order, _) in containers(pod) {
            if order.name == container {
                break;
            }
            let devices = self.allocated(&pod.metadata.uid, order.name, resource);
            for id in devices.map(AllocatedResource::ids).unwrap_or_default() {
                if order.ends_first {
                    reusable.insert(id);
                } else {
                    reusable.remove(id);
                }
            }
        }
        reusable
    }
}

fn preferred_request(
    chosen: &BTreeSet<&str>,
    free: &BTreeSet<&str>,
    size: usize,
) -> PreferredDevices {
    let texts = |ids: &BTreeSet<&str>| ids.iter().map(ToString::to_string).collect();
    let available = chosen.union(free).copied().collect();
    PreferredDevices { available: texts(&available), must_include: texts(chosen), size }
}
