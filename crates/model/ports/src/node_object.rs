//! The Node object with all of the status that a node agent writes.
//!
//! Rule: what the API server sent and is not named here is not kept, because updates are patches of
//! single fields; nothing here is ever sent back as a whole but at the first registration.

use std::collections::BTreeMap;

use pod_model::Quantity;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cluster_api::Resource;
use crate::cluster_objects::{
    ApiObject, NodeAddress, NodeCondition, NodeMeta, NodeSpec, ObjectIdentity,
};

#[cfg(test)]
mod tests;

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
    /// Deprecated; cleared where an older kubelet set it.
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

impl ApiObject for NodeObject {
    const RESOURCE: Resource = Resource::NODES;
    fn identity(&self) -> ObjectIdentity<'_> {
        ObjectIdentity {
            namespace: "",
            name: &self.metadata.name,
            uid: &self.metadata.uid,
            resource_version: &self.metadata.resource_version,
        }
    }
}

/// Go encodes empty lists and maps as `null`.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
