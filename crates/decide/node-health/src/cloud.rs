//! What a cloud's answer means for a node: deletion, the shutdown taint, addresses and labels.
//!
//! The cloud is queried about existence only for nodes that are not ready, and a node is deleted
//! only on a clear "not found". A failed query changes nothing. A node with the "uninitialized"
//! taint is initialized in one write that also removes the taint; its addresses are kept up to date
//! afterwards. An address that the kubelet was configured with must be known to the cloud.
//! upstream: cloud-provider/controllers

use std::collections::BTreeMap;
use std::net::IpAddr;

use pod_model::{TaintEffect, parse_ip};

use crate::facts::{ConditionState, Taint, TaintKey};
use crate::taints::TaintPatch;
use crate::time::ControllerTime;

/// Whether the cloud has an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceStatus {
    /// The instance is running.
    Running,
    /// The instance exists but is shut down.
    ShutDown,
    /// The instance exists; whether it is shut down is unknown.
    Exists,
    /// The cloud does not have the instance.
    Gone,
    /// The query failed.
    NoAnswer,
}

/// What to do with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudAction {
    /// Nothing.
    Keep,
    /// Patch its shutdown taint.
    Taint(TaintPatch),
    /// Delete it and record an event.
    Delete,
}

/// Whether the cloud has to be queried about a node.
pub fn needs_cloud_query(ready: Option<ConditionState>) -> bool {
    ready != Some(ConditionState::True)
}

/// Decides about a node. `instance` is ignored for a node that is ready.
pub fn cloud_action(
    ready: Option<ConditionState>,
    taints: &[Taint],
    instance: InstanceStatus,
    now: ControllerTime,
) -> CloudAction {
    let effect = TaintEffect::NoSchedule;
    let tainted = taints.iter().any(|taint| taint.is(&TaintKey::CloudShutdown, effect));
    if !needs_cloud_query(ready) {
        let remove = vec![(TaintKey::CloudShutdown, effect)];
        return if tainted {
            CloudAction::Taint(TaintPatch { add: Vec::new(), remove })
        } else {
            CloudAction::Keep
        };
    }
    match instance {
        InstanceStatus::Gone => CloudAction::Delete,
        InstanceStatus::ShutDown if !tainted => {
            let taint = Taint::new(TaintKey::CloudShutdown, effect, Some(now.stamp()));
            CloudAction::Taint(TaintPatch { add: vec![taint], remove: Vec::new() })
        }
        InstanceStatus::ShutDown
        | InstanceStatus::Running
        | InstanceStatus::Exists
        | InstanceStatus::NoAnswer => CloudAction::Keep,
    }
}

/// A kind of node address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressKind {
    /// The machine's host name.
    HostName,
    /// An address within the cluster's network.
    InternalIp,
    /// An address reachable from outside the cluster.
    ExternalIp,
    /// A name within the cluster's network.
    InternalDns,
    /// A name that resolves outside the cluster.
    ExternalDns,
}

/// One address of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAddress {
    /// Its kind.
    pub kind: AddressKind,
    /// The address or name.
    pub address: String,
}

/// What a cloud reports about an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceFacts {
    /// Its id in the cloud.
    pub provider_id: String,
    /// Its instance type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// Its region.
    pub region: String,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// Other labels that the cloud sets on the node.
    pub labels: BTreeMap<String, String>,
}

/// The fields of the node that the cloud decisions read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudNode {
    /// Its id in the cloud, if already set.
    pub provider_id: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// The annotation with the addresses that its kubelet was configured with (`--node-ip`).
    pub wanted_addresses: Option<String>,
}

/// Cloud data that cannot be used; retried later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudDescriptionError {
    /// Neither cloud nor node has a provider id; it could never be set later.
    #[error("the cloud gives no provider id for this node")]
    NoProviderId,
    /// The kubelet's configured address is not an IP address.
    #[error("the node's own address {text:?} is no IP address")]
    BadAddress { text: String },
    /// The cloud does not know the kubelet's configured address.
    #[error("the node's own address {address} is not among the cloud's addresses")]
    UnknownAddress { address: IpAddr },
}

/// The initialization of a node: one write, which also removes the taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescription {
    /// The provider id to set, if the node has none.
    pub provider_id: Option<String>,
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// Labels from the cloud that are not allowed.
    pub refused_labels: Vec<String>,
    /// The taint to remove.
    pub patch: TaintPatch,
}

const TYPE_LABELS: [&str; 2] =
    ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"];
const ZONE_LABELS: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
const REGION_LABELS: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];

/// Builds the initialization of a node with the "uninitialized" taint; none for other nodes.
pub fn describe(
    node: &CloudNode,
    taints: &[Taint],
    instance: &InstanceFacts,
) -> Result<Option<NodeDescription>, CloudDescriptionError> {
    let uninitialized = taints.iter().filter(|taint| taint.key == TaintKey::CloudUninitialized);
    let remove: Vec<_> = uninitialized.map(|taint| (taint.key.clone(), taint.effect)).collect();
    if remove.is_empty() {
        return Ok(None);
    }
    if node.provider_id.is_empty() && instance.provider_id.is_empty() {
        return Err(CloudDescriptionError::NoProviderId);
    }
    prefer_kubelet_addresses(node, instance.addresses.clone())?;
    let mut labels = BTreeMap::new();
    let pairs = [
        (TYPE_LABELS, &instance.instance_type),
        (ZONE_LABELS, &instance.zone),
        (REGION_LABELS, &instance.region),
    ];
    for (keys, value) in pairs {
        for key in keys.into_iter().filter(|_| !value.is_empty()) {
            labels.insert(key.to_owned(), value.clone());
        }
    }
    let mut refused_labels = Vec::new();
    for (key, value) in &instance.labels {
        let present = labels.get(key).or_else(|| node.labels.get(key));
        if is_reserved(key) || present.is_some_and(|present| present != value) {
            refused_labels.push(key.clone());
        } else if present.is_none() {
            labels.insert(key.clone(), value.clone());
        }
    }
    let provider_id = node.provider_id.is_empty().then(|| instance.provider_id.clone());
    let patch = TaintPatch { add: Vec::new(), remove };
    Ok(Some(NodeDescription { provider_id, labels, refused_labels, patch }))
}

/// Whether a label's prefix is reserved for Kubernetes.
fn is_reserved(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"].into_iter().any(|domain| {
        prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    })
}

/// The addresses that a node should have; none if they are right, or the cloud reports none.
pub fn addresses(
    node: &CloudNode,
    taints: &[Taint],
    instance: &InstanceFacts,
) -> Result<Option<Vec<NodeAddress>>, CloudDescriptionError> {
    let undescribed = taints.iter().any(|taint| taint.key == TaintKey::CloudUninitialized);
    if undescribed || instance.addresses.is_empty() {
        return Ok(None);
    }
    let mut wanted = instance.addresses.clone();
    // If the cloud reports no host name, the kubelet's stays.
    if !wanted.iter().any(|it| it.kind == AddressKind::HostName) {
        wanted.extend(node.addresses.iter().filter(|it| it.kind == AddressKind::HostName).cloned());
    }
    let wanted = prefer_kubelet_addresses(node, wanted)?;
    let same = {
        let sorted = |list: &[NodeAddress]| {
            let mut list = list.to_vec();
            list.sort();
            list
        };
        sorted(&wanted) == sorted(&node.addresses)
    };
    Ok((!same).then_some(wanted))
}

/// The addresses that the kubelet was configured with come first, and are the only ones of their
/// type.
fn prefer_kubelet_addresses(
    node: &CloudNode,
    known: Vec<NodeAddress>,
) -> Result<Vec<NodeAddress>, CloudDescriptionError> {
    let Some(text) = &node.wanted_addresses else { return Ok(known) };
    let mut first = Vec::new();
    for part in text.split(',').map(str::trim) {
        let own =
            parse_ip(part).map_err(|_| CloudDescriptionError::BadAddress { text: text.clone() })?;
        let before = first.len();
        first.extend(known.iter().filter(|it| parse_ip(&it.address) == Ok(own)).cloned());
        if first.len() == before {
            return Err(CloudDescriptionError::UnknownAddress { address: own });
        }
    }
    let kinds: Vec<AddressKind> = first.iter().map(|it| it.kind).collect();
    first.extend(known.into_iter().filter(|it| !kinds.contains(&it.kind)));
    Ok(first)
}

#[cfg(test)]
mod tests;
