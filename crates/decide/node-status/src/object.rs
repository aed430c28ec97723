//! The facts and settings that a Node object is made from, and the events that come of it.

use std::collections::BTreeMap;

use ports::cluster_objects::NodeTaint;

pub use ports::node_object::{
    DaemonEndpoint, DaemonEndpoints, FullNodeStatus, NodeFeatures, NodeImage, NodeInfo, NodeObject,
    NodeSwap, ResourceMap, RuntimeHandler, RuntimeHandlerFeatures,
};

/// What the configuration says of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    pub node_name: String,
    pub hostname: String,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `--register-with-taints`.
    pub taints: Vec<NodeTaint>,
    /// `--register-schedulable` is false.
    pub unschedulable: bool,
    pub external_cloud_provider: bool,
    /// `enableControllerAttachDetach`.
    pub controller_attaches_volumes: bool,
    pub provider_id: String,
    pub max_pods: i64,
    pub pods_per_core: i64,
    pub port: u16,
    /// `nodeStatusMaxImages`; no limit when negative.
    pub max_images: i64,
    /// Kubernetes' word for the processor, such as `amd64`.
    pub architecture: String,
    /// With a leading `v`.
    pub kubelet_version: String,
    /// `localStorageCapacityIsolation`.
    pub counts_local_storage: bool,
}

/// A snapshot of the machine and the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStatusInputs {
    /// Nothing where the machine could not be read.
    pub machine: Option<MachineResources>,
    /// Of the file system of the root directory, in bytes.
    pub ephemeral_storage: Option<i64>,
    /// What is kept from pods: reserved for the system and the agent, and hard eviction thresholds.
    pub reservation: ResourceMap,
    pub devices: DeviceResources,
    pub addresses: crate::addresses::HostAddressSources,
    pub kernel_version: String,
    pub os_image: String,
    pub runtime_name: String,
    /// Nothing while the runtime does not answer.
    pub runtime_version: Option<String>,
    /// Nothing where they could not be listed.
    pub images: Option<Vec<ImageSummary>>,
    pub runtime_handlers: Vec<RuntimeHandler>,
    pub runtime_features: Option<NodeFeatures>,
    pub pressure: NodePressure,
    /// Why the node is not ready: runtime, network, storage, shutdown, in this order.
    pub errors: Vec<String>,
    /// What does not keep the node from being ready but is shown beside it.
    pub warning: Option<String>,
    /// Nothing until volumes have been reconstructed after a start.
    pub volumes_in_use: Option<Vec<String>>,
    pub declared_features: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineResources {
    pub cpus: i64,
    pub memory: i64,
    /// Bytes by resource name, such as `hugepages-2Mi`.
    pub huge_pages: BTreeMap<String, i64>,
    pub swap: i64,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
}

/// What device plugins offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceResources {
    pub capacity: ResourceMap,
    pub allocatable: ResourceMap,
    /// Resources whose plugin went away.
    pub removed: Vec<String>,
}

/// An image of the runtime's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSummary {
    pub id: String,
    pub digests: Vec<String>,
    pub tags: Vec<String>,
    pub size_bytes: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePressure {
    pub memory: bool,
    pub disk: bool,
    pub pid: bool,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatusEvent {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl NodeStatusEvent {
    /// The event that a change of the status comes with.
    pub(crate) fn of_status(node_name: &str, reason: &'static str) -> Self {
        let message = format!("Node {node_name} status is now: {reason}");
        Self { warning: false, reason, message }
    }
}

/// Whether this is a resource that something beside Kubernetes brought: a device, or a cluster's own.
// upstream: pkg/apis/core/v1/helper/helpers.go
pub(crate) fn is_extended_resource(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}

pub(crate) fn is_huge_page_resource(name: &str) -> bool {
    name.starts_with("hugepages-")
}
