//! What others see of the devices: the Node's capacity, the health in a pod's status, the pod
//! resources API.

use std::collections::{BTreeMap, BTreeSet};

use pod_model::pod::container::ContainerRestartPolicy;
use pod_model::pod::{Container, Pod};
use ports::plugins::{PluginDevice, ReportedContainer, ReportedDevices, ReportedPod};

use crate::device_table::{AllocatedResource, DeviceTable};

#[cfg(test)]
mod tests;

/// Numbers of devices by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    pub capacity: BTreeMap<String, usize>,
    pub allocatable: BTreeMap<String, usize>,
    /// Resources whose plugins are gone for good.
    pub removed: BTreeSet<String>,
}

/// A device of a container, as its plugin sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    pub id: String,
    pub healthy: bool,
}

/// The devices of one container and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceHealthReport {
    pub resource: String,
    pub devices: Vec<DeviceHealth>,
}

impl DeviceTable {
    /// For the Node's status.
    pub fn counts(&self) -> DeviceCounts {
        let known = || self.resources.iter().filter(|(_, entry)| entry.is_known);
        DeviceCounts {
            capacity: known().map(|(name, entry)| (name.clone(), entry.devices.len())).collect(),
            allocatable: known()
                .map(|(name, entry)| (name.clone(), entry.healthy().len()))
                .collect(),
            removed: self.removed.clone(),
        }
    }

    /// The health of a pod's devices, by container. A device that its plugin does not list any more
    /// counts as healthy, as in the reference.
    pub fn health_of(&self, uid: &str) -> BTreeMap<String, Vec<ResourceHealthReport>> {
        let containers = self.pods.get(uid).into_iter().flatten();
        containers
            .map(|(container, resources)| {
                let reports =
                    resources.iter().map(|(name, allocated)| self.health(name, allocated));
                (container.clone(), reports.collect())
            })
            .collect()
    }

    fn health(&self, resource: &str, allocated: &AllocatedResource) -> ResourceHealthReport {
        let listed = self.resources.get(resource).map(|entry| &entry.devices);
        let devices = allocated.ids().into_iter().map(|id| {
            let device = listed.and_then(|listed| listed.get(id));
            DeviceHealth { id: id.to_owned(), healthy: device.is_none_or(|device| device.healthy) }
        });
        ResourceHealthReport { resource: resource.to_owned(), devices: devices.collect() }
    }

    /// A pod for the pod resources API: its sidecars and containers.
    pub fn reported_pod(&self, pod: &Pod) -> ReportedPod {
        let report = |sidecar| {
            move |container: &Container| ReportedContainer {
                name: container.name.to_string(),
                sidecar,
                devices: self.reported_devices(&pod.metadata.uid, &container.name),
            }
        };
        let is_sidecar = |container: &&Container| {
            container.restart_policy == Some(ContainerRestartPolicy::Always)
        };
        let sidecars = pod.spec.init_containers.iter().filter(is_sidecar).map(report(true));
        ReportedPod {
            namespace: pod.metadata.namespace.to_string(),
            name: pod.metadata.name.to_string(),
            containers: sidecars.chain(pod.spec.containers.iter().map(report(false))).collect(),
        }
    }

    fn reported_devices(&self, uid: &str, container: &str) -> Vec<ReportedDevices> {
        let resources = self.of_container(uid, container).into_iter().flatten();
        let devices = resources.flat_map(|(resource, allocated)| {
            allocated.ids().into_iter().flat_map(move |id| {
                let on_node = |ids: &Vec<String>| ids.iter().any(|each| each == id);
                let nodes = allocated.by_numa_node.iter();
                let nodes = nodes.filter(|(node, ids)| **node >= 0 && on_node(ids));
                reported_device(resource, id, nodes.map(|(node, _)| *node).collect())
            })
        });
        devices.collect()
    }

    /// The healthy devices for the pod resources API.
    pub fn reported_allocatable(&self) -> Vec<ReportedDevices> {
        let devices = self.resources.iter().flat_map(|(resource, entry)| {
            let healthy = entry.healthy();
            let devices = entry.devices.values().filter(move |it| healthy.contains(&*it.id));
            devices.flat_map(|PluginDevice { id, numa_nodes, .. }| {
                reported_device(resource, id, numa_nodes.clone())
            })
        });
        devices.collect()
    }
}

/// One entry for each NUMA node of a device, or one without a node, as the reference reports them.
// upstream: pkg/kubelet/cm/container_manager.go (containerDevicesFromResourceDeviceInstances)
fn reported_device(resource: &str, id: &str, numa_nodes: Vec<i64>) -> Vec<ReportedDevices> {
    let entry = |numa_nodes| ReportedDevices {
        resource: resource.to_owned(),
        ids: vec![id.to_owned()],
        numa_nodes,
    };
    if numa_nodes.is_empty() {
        return vec![entry(Vec::new())];
    }
    numa_nodes.into_iter().map(|node| entry(vec![node])).collect()
}
