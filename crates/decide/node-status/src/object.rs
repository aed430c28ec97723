//! The Node object as the agent reads and writes it, and the facts and settings it is made from.
//!
//! Rule: what the API server sent and is not named here is not kept, because updates are patches of
//! single fields; nothing here is ever sent back as a whole but at the first registration.

use std::collections::BTreeMap;

use pod_model::Quantity;
use ports::cluster_objects::{NodeAddress, NodeCondition, NodeMeta, NodeSpec, NodeTaint};
use serde::{Deserialize, Deserializer, Serialize};

/// Amounts by resource name.
pub type ResourceMap = BTreeMap<String, Quantity>;

/// A Node with all of the status that an agent writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    pub metadata: NodeMeta,
    pub spec: NodeSpec,
    pub status: FullNodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FullNodeStatus {
    #[serde(deserialize_with = "null_is_default")]
    pub capacity: ResourceMap,
    #[serde(deserialize_with = "null_is_default")]
    pub allocatable: ResourceMap,
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<NodeCondition>,
    #[serde(deserialize_with = "null_is_default")]
    pub addresses: Vec<NodeAddress>,
    pub daemon_endpoints: DaemonEndpoints,
    pub node_info: NodeInfo,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<NodeImage>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes_in_use: Vec<String>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub runtime_handlers: Vec<RuntimeHandler>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<NodeFeatures>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub declared_features: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonEndpoints {
    pub kubelet_endpoint: DaemonEndpoint,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct DaemonEndpoint {
    #[serde(rename = "Port")]
    pub port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    #[serde(rename = "machineID")]
    pub machine_id: String,
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
    #[serde(rename = "bootID")]
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    pub container_runtime_version: String,
    pub kubelet_version: String,
    /// Deprecated; emptied where an older kubelet filled it.
    pub kube_proxy_version: String,
    pub operating_system: String,
    pub architecture: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<NodeSwap>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct NodeSwap {
    pub capacity: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeImage {
    #[serde(deserialize_with = "null_is_default")]
    pub names: Vec<String>,
    pub size_bytes: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RuntimeHandler {
    pub name: String,
    pub features: RuntimeHandlerFeatures,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeHandlerFeatures {
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFeatures {
    pub supplemental_groups_policy: bool,
}

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

/// What is known of the machine and the runtime at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Nothing where the machine could not be read.
    pub machine: Option<Machine>,
    /// Of the file system of the root directory, in bytes.
    pub ephemeral_storage: Option<i64>,
    /// What is kept from pods: reserved for the system and the agent, and hard eviction thresholds.
    pub reservation: ResourceMap,
    pub devices: DeviceResources,
    pub addresses: crate::addresses::AddressFacts,
    pub kernel_version: String,
    pub os_image: String,
    pub runtime_name: String,
    /// Nothing while the runtime does not answer.
    pub runtime_version: Option<String>,
    /// Nothing where they could not be listed.
    pub images: Option<Vec<ImageFact>>,
    pub runtime_handlers: Vec<RuntimeHandler>,
    pub runtime_features: Option<NodeFeatures>,
    pub pressure: Pressure,
    /// Why the node is not ready: runtime, network, storage, shutdown, in this order.
    pub errors: Vec<String>,
    /// What does not keep the node from being ready but is shown beside it.
    pub warning: Option<String>,
    /// Nothing until volumes have been reconstructed after a start.
    pub volumes_in_use: Option<Vec<String>>,
    pub declared_features: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
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
pub struct ImageFact {
    pub id: String,
    pub digests: Vec<String>,
    pub tags: Vec<String>,
    pub size_bytes: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub memory: bool,
    pub disk: bool,
    pub pid: bool,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl NodeEvent {
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

/// Go writes lists and maps that are empty as `null`.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
