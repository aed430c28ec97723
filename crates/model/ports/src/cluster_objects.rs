//! Nodes, pods and leases of the API, with only the fields that this project reads.
//!
//! Rule: fields that are not named are skipped while reading and never written back; so these
//! values are for reading and for patches, not for replacing whole objects. A missing field and a
//! `null` are the same. Does not validate: a condition of an unknown kind is kept as text.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api_time::ApiTime;
use crate::cluster_api::Resource;

/// An object of the API that this project reads.
pub trait ApiObject: DeserializeOwned + Send + 'static {
    const RESOURCE: Resource;
    fn identity(&self) -> ObjectIdentity<'_>;
}

/// Which object it is, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectIdentity<'a> {
    /// Empty for objects without a namespace.
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// Opaque text; only the API server may compare it.
    pub resource_version: &'a str,
}

/// Metadata without labels and annotations, which may be large and are rarely needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub creation_timestamp: Option<ApiTime>,
    pub deletion_timestamp: Option<ApiTime>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    fn identity(&self) -> ObjectIdentity<'_> {
        ObjectIdentity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: NodeMeta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMeta {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub creation_timestamp: Option<ApiTime>,
    pub deletion_timestamp: Option<ApiTime>,
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    #[serde(rename = "podCIDRs", deserialize_with = "null_is_default")]
    pub pod_cidrs: Vec<String>,
    #[serde(rename = "providerID")]
    pub provider_id: String,
    pub unschedulable: bool,
    #[serde(deserialize_with = "null_is_default")]
    pub taints: Vec<NodeTaint>,
}

/// A taint; written back as it was read, to the second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTaint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_seconds")]
    pub time_added: Option<ApiTime>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<NodeCondition>,
    #[serde(deserialize_with = "null_is_default")]
    pub addresses: Vec<NodeAddress>,
}

/// A node's condition; lists of them merge by their type in a strategic merge patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    #[serde(serialize_with = "in_seconds")]
    pub last_heartbeat_time: Option<ApiTime>,
    #[serde(serialize_with = "in_seconds")]
    pub last_transition_time: Option<ApiTime>,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

/// A pod, with the fields that the node controllers read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Empty while the pod is not bound to a node.
    pub node_name: String,
    #[serde(deserialize_with = "null_is_default")]
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    pub reason: String,
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<PodCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(serialize_with = "in_seconds")]
    pub last_transition_time: Option<ApiTime>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A lease: a node's heartbeat, or the record of a leader election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub metadata: ObjectMeta,
    pub spec: LeaseSpec,
}

/// The spec of a lease. An absent field is written as `null`, so that writing clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    pub holder_identity: Option<String>,
    pub lease_duration_seconds: Option<i32>,
    #[serde(serialize_with = "in_micros")]
    pub acquire_time: Option<ApiTime>,
    #[serde(serialize_with = "in_micros")]
    pub renew_time: Option<ApiTime>,
    pub lease_transitions: Option<i32>,
}

/// A lease as a heartbeat: its holder and when it was renewed. In a large cluster these arrive all
/// the time, so nothing else of them is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RenewalDocument")]
pub struct Renewal {
    pub name: String,
    pub resource_version: String,
    pub renewed: Option<ApiTime>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RenewalDocument {
    metadata: RenewalMeta,
    spec: RenewalSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RenewalMeta {
    name: String,
    resource_version: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RenewalSpec {
    renew_time: Option<ApiTime>,
}

impl From<RenewalDocument> for Renewal {
    fn from(RenewalDocument { metadata, spec }: RenewalDocument) -> Self {
        let RenewalMeta { name, resource_version } = metadata;
        Self { name, resource_version, renewed: spec.renew_time }
    }
}

/// A service, as far as containers get its address in their environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: NamedMeta,
    pub spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `None` for a headless service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    #[serde(deserialize_with = "null_is_default")]
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServicePort {
    pub name: String,
    pub protocol: String,
    pub port: i32,
}

/// A runtime class: the name of a handler of the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RuntimeClass {
    pub metadata: NamedMeta,
    pub handler: String,
}

/// Names and version alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedMeta {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

impl NamedMeta {
    fn identity(&self) -> ObjectIdentity<'_> {
        let Self { namespace, name, uid, resource_version } = self;
        ObjectIdentity { namespace, name, uid, resource_version }
    }
}

impl ApiObject for Service {
    const RESOURCE: Resource = Resource::SERVICES;
    fn identity(&self) -> ObjectIdentity<'_> {
        self.metadata.identity()
    }
}

impl ApiObject for RuntimeClass {
    const RESOURCE: Resource = Resource::RUNTIME_CLASSES;
    fn identity(&self) -> ObjectIdentity<'_> {
        self.metadata.identity()
    }
}

impl ApiObject for Node {
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

impl ApiObject for Pod {
    const RESOURCE: Resource = Resource::PODS;
    fn identity(&self) -> ObjectIdentity<'_> {
        self.metadata.identity()
    }
}

impl ApiObject for Renewal {
    const RESOURCE: Resource = Resource::LEASES;
    fn identity(&self) -> ObjectIdentity<'_> {
        let Self { name, resource_version, .. } = self;
        ObjectIdentity { namespace: "", name, uid: "", resource_version }
    }
}

/// Go writes an empty list or map as `null` now and then.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[allow(clippy::ref_option, reason = "the signature is serde's")]
fn in_seconds<S: Serializer>(time: &Option<ApiTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(ApiTime::to_seconds_text).serialize(serializer)
}

#[allow(clippy::ref_option, reason = "the signature is serde's")]
fn in_micros<S: Serializer>(time: &Option<ApiTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(ApiTime::to_micros_text).serialize(serializer)
}
