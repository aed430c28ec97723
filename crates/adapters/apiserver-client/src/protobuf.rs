//! Decodes objects from the API server's protobuf.
//!
//! A watcher of thousands of nodes spends most of its time on decoding, and protobuf takes a
//! fraction of what JSON takes. Only fields that this project reads are declared; others are
//! skipped without a copy.
//!
//! Rule: gives exactly what the same object in JSON gives. Field numbers are the API's and never
//! change (upstream: `generated.proto` of each API group).

use std::collections::BTreeMap;

use bytes::Bytes;
use ports::cluster_objects as api;
use ports::node_object::NodeObject;
use ports::{ApiPod, ApiTime};
use prost::Message;

/// Precedes every object and every list.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// An object type that is listed and watched.
pub trait WatchedObject: api::ApiObject {
    /// Whether it is requested in protobuf; JSON otherwise.
    const IN_PROTOBUF: bool;

    /// Decodes an object from its protobuf form.
    ///
    /// # Errors
    /// When these bytes are not such an object.
    fn from_protobuf(bytes: Bytes) -> Result<Self, String>;
}

fn from_form<Form: Message + Default, T: From<Form>>(bytes: Bytes) -> Result<T, String> {
    Form::decode(bytes).map(Into::into).map_err(|error| error.to_string())
}

impl WatchedObject for api::Node {
    const IN_PROTOBUF: bool = true;
    fn from_protobuf(bytes: Bytes) -> Result<Self, String> {
        from_form::<Node, _>(bytes)
    }
}

impl WatchedObject for api::Pod {
    const IN_PROTOBUF: bool = true;
    fn from_protobuf(bytes: Bytes) -> Result<Self, String> {
        from_form::<Pod, _>(bytes)
    }
}

impl WatchedObject for api::Renewal {
    const IN_PROTOBUF: bool = true;
    fn from_protobuf(bytes: Bytes) -> Result<Self, String> {
        from_form::<Renewal, _>(bytes)
    }
}

/// One object that changes every few minutes: the cost of decoding does not matter.
impl WatchedObject for NodeObject {
    const IN_PROTOBUF: bool = false;
    fn from_protobuf(_: Bytes) -> Result<Self, String> {
        Err("a Node in protobuf; JSON was requested".to_owned())
    }
}

/// Few of them change, and rarely.
impl WatchedObject for api::Service {
    const IN_PROTOBUF: bool = false;
    fn from_protobuf(_: Bytes) -> Result<Self, String> {
        Err("a Service in protobuf; JSON was requested".to_owned())
    }
}

/// Few of them exist.
impl WatchedObject for api::RuntimeClass {
    const IN_PROTOBUF: bool = false;
    fn from_protobuf(_: Bytes) -> Result<Self, String> {
        Err("a RuntimeClass in protobuf; JSON was requested".to_owned())
    }
}

/// Whole pods have hundreds of fields, of which a node reads nearly all.
impl WatchedObject for ApiPod {
    const IN_PROTOBUF: bool = false;
    fn from_protobuf(_: Bytes) -> Result<Self, String> {
        Err("a Pod in protobuf; JSON was requested".to_owned())
    }
}

/// The content of the envelope that objects come in.
pub(crate) fn open(mut bytes: Bytes) -> Result<Bytes, String> {
    if !bytes.starts_with(MAGIC) {
        return Err("an object in protobuf does not begin as one".to_owned());
    }
    let envelope = Envelope::decode(bytes.split_off(MAGIC.len())).map_err(|e| e.to_string())?;
    Ok(envelope.raw)
}

#[derive(Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// A watch event; its object has an envelope of its own.
#[derive(Message)]
pub(crate) struct WatchEventForm {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) kind: Bytes,
    #[prost(message, optional, tag = "2")]
    object: Option<WatchEventObjectForm>,
}

impl WatchEventForm {
    pub(crate) fn object(self) -> Result<Bytes, String> {
        open(self.object.unwrap_or_default().raw)
    }
}

#[derive(Message)]
struct WatchEventObjectForm {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

/// A list whose items are not decoded yet, so that one that cannot be decoded costs only itself.
#[derive(Message)]
pub(crate) struct ObjectList {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ListMeta>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) items: Vec<Bytes>,
}

#[derive(Message)]
pub(crate) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(crate) resource_version: String,
    #[prost(string, tag = "3")]
    pub(crate) token: String,
}

#[derive(Message)]
pub(crate) struct ApiStatus {
    #[prost(string, tag = "3")]
    pub(crate) message: String,
    #[prost(string, tag = "4")]
    pub(crate) reason: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    pub(crate) code: i32,
}

#[derive(Message)]
pub(crate) struct StatusDetails {
    #[prost(int32, tag = "5")]
    pub(crate) retry_after_seconds: i32,
}

/// Only the metadata, for objects that cannot be decoded otherwise, and for bookmarks.
#[derive(Message)]
pub(crate) struct AnyObject {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<AnyMeta>,
}

#[derive(Message)]
pub(crate) struct AnyMeta {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "6")]
    pub(crate) resource_version: String,
}

#[derive(Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// A time that was never set is absent, or empty.
fn time(time: Option<Time>) -> Option<ApiTime> {
    let Time { seconds, nanos } = time?;
    let whole = seconds.saturating_mul(1_000_000_000);
    (seconds != 0 || nanos != 0).then(|| ApiTime::from_nanos(whole.saturating_add(nanos.into())))
}

/// Metadata as kept of pods: without labels and annotations.
#[derive(Message)]
struct Meta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    created: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deleted: Option<Time>,
    #[prost(int64, optional, tag = "10")]
    deletion_grace_period_seconds: Option<i64>,
    #[prost(message, repeated, tag = "13")]
    owners: Vec<OwnerForm>,
}

impl From<Meta> for api::ObjectMeta {
    fn from(meta: Meta) -> Self {
        Self {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            creation_timestamp: time(meta.created),
            deletion_timestamp: time(meta.deleted),
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            owner_references: meta.owners.into_iter().map(Into::into).collect(),
        }
    }
}

#[derive(Message)]
struct OwnerForm {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
}

impl From<OwnerForm> for api::OwnerReference {
    fn from(owner: OwnerForm) -> Self {
        let OwnerForm { kind, name, uid, api_version, controller } = owner;
        Self { api_version, kind, name, uid, controller }
    }
}

#[derive(Message)]
pub struct Renewal {
    #[prost(message, optional, tag = "1")]
    metadata: Option<RenewalMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<RenewalSpec>,
}

#[derive(Message)]
struct RenewalMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "6")]
    resource_version: String,
}

#[derive(Message)]
struct RenewalSpec {
    #[prost(message, optional, tag = "4")]
    renewed: Option<Time>,
}

impl From<Renewal> for api::Renewal {
    fn from(renewal: Renewal) -> Self {
        let RenewalMeta { name, resource_version } = renewal.metadata.unwrap_or_default();
        Self { name, resource_version, renewed: time(renewal.spec.unwrap_or_default().renewed) }
    }
}

#[derive(Message)]
pub struct Node {
    #[prost(message, optional, tag = "1")]
    metadata: Option<NodeMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<NodeStatus>,
}

#[derive(Message)]
struct NodeMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    created: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deleted: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

#[derive(Message)]
struct NodeSpec {
    #[prost(string, tag = "1")]
    pod_cidr: String,
    #[prost(string, tag = "3")]
    provider_id: String,
    #[prost(bool, tag = "4")]
    unschedulable: bool,
    #[prost(message, repeated, tag = "5")]
    taints: Vec<Taint>,
    #[prost(string, repeated, tag = "7")]
    pod_cidrs: Vec<String>,
}

#[derive(Message)]
struct Taint {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(string, tag = "3")]
    effect: String,
    #[prost(message, optional, tag = "4")]
    added: Option<Time>,
}

#[derive(Message)]
struct NodeStatus {
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<NodeCondition>,
    #[prost(message, repeated, tag = "5")]
    addresses: Vec<NodeAddress>,
}

#[derive(Message)]
struct NodeCondition {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(message, optional, tag = "3")]
    heartbeat: Option<Time>,
    #[prost(message, optional, tag = "4")]
    transition: Option<Time>,
    #[prost(string, tag = "5")]
    reason: String,
    #[prost(string, tag = "6")]
    message: String,
}

#[derive(Message)]
struct NodeAddress {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    address: String,
}

impl From<Node> for api::Node {
    fn from(node: Node) -> Self {
        Self {
            metadata: node.metadata.unwrap_or_default().into(),
            spec: node.spec.unwrap_or_default().into(),
            status: node.status.unwrap_or_default().into(),
        }
    }
}

impl From<NodeMeta> for api::NodeMeta {
    fn from(meta: NodeMeta) -> Self {
        Self {
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            creation_timestamp: time(meta.created),
            deletion_timestamp: time(meta.deleted),
            labels: meta.labels,
            annotations: meta.annotations,
        }
    }
}

impl From<NodeSpec> for api::NodeSpec {
    fn from(spec: NodeSpec) -> Self {
        let taints = spec.taints.into_iter().map(|taint| api::NodeTaint {
            key: taint.key,
            value: taint.value,
            effect: taint.effect,
            time_added: time(taint.added),
        });
        Self {
            taints: taints.collect(),
            pod_cidr: spec.pod_cidr,
            pod_cidrs: spec.pod_cidrs,
            provider_id: spec.provider_id,
            unschedulable: spec.unschedulable,
        }
    }
}

impl From<NodeStatus> for api::NodeStatus {
    fn from(status: NodeStatus) -> Self {
        let conditions = status.conditions.into_iter().map(|condition| api::NodeCondition {
            kind: condition.kind,
            status: condition.status,
            last_heartbeat_time: time(condition.heartbeat),
            last_transition_time: time(condition.transition),
            reason: condition.reason,
            message: condition.message,
        });
        let addresses = status.addresses.into_iter();
        let addresses = addresses.map(|it| api::NodeAddress { kind: it.kind, address: it.address });
        Self { conditions: conditions.collect(), addresses: addresses.collect() }
    }
}

#[derive(Message)]
pub struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Meta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<PodStatus>,
}

#[derive(Message)]
struct PodSpec {
    #[prost(string, tag = "10")]
    node_name: String,
    #[prost(message, repeated, tag = "22")]
    tolerations: Vec<Toleration>,
}

#[derive(Message)]
struct Toleration {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    operator: String,
    #[prost(string, tag = "3")]
    value: String,
    #[prost(string, tag = "4")]
    effect: String,
    #[prost(int64, optional, tag = "5")]
    seconds: Option<i64>,
}

#[derive(Message)]
struct PodStatus {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(message, repeated, tag = "2")]
    conditions: Vec<PodCondition>,
    #[prost(string, tag = "4")]
    reason: String,
}

#[derive(Message)]
struct PodCondition {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(message, optional, tag = "4")]
    transition: Option<Time>,
    #[prost(string, tag = "5")]
    reason: String,
    #[prost(string, tag = "6")]
    message: String,
}

impl From<Pod> for api::Pod {
    fn from(pod: Pod) -> Self {
        Self {
            metadata: pod.metadata.unwrap_or_default().into(),
            spec: pod.spec.unwrap_or_default().into(),
            status: pod.status.unwrap_or_default().into(),
        }
    }
}

impl From<PodSpec> for api::PodSpec {
    fn from(spec: PodSpec) -> Self {
        let tolerations = spec.tolerations.into_iter().map(|it| api::Toleration {
            key: it.key,
            operator: it.operator,
            value: it.value,
            effect: it.effect,
            toleration_seconds: it.seconds,
        });
        Self { node_name: spec.node_name, tolerations: tolerations.collect() }
    }
}

impl From<PodStatus> for api::PodStatus {
    fn from(status: PodStatus) -> Self {
        let conditions = status.conditions.into_iter().map(|it| api::PodCondition {
            kind: it.kind,
            status: it.status,
            last_transition_time: time(it.transition),
            reason: it.reason,
            message: it.message,
        });
        Self { phase: status.phase, reason: status.reason, conditions: conditions.collect() }
    }
}

#[cfg(test)]
mod tests;
