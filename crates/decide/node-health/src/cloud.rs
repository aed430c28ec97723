//! What a cloud's facts mean for a node: gone, shut down, its addresses and labels.
//!
//! The cloud is asked about existence only for nodes that are not ready, and a node is deleted only
//! on a clear "no". An answer that failed changes nothing. A node that carries the "uninitialized"
//! taint is described once, whole, and then freed of it; addresses are kept up afterwards. Where a
//! kubelet named its own address, the cloud must know it. upstream: cloud-provider/controllers

use std::collections::BTreeMap;
use std::net::IpAddr;

use pod_model::{TaintEffect, parse_ip};

use crate::facts::{Taint, TaintKey, Truth};
use crate::taints::TaintPatch;
use crate::time::Moment;

/// Whether the cloud has an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// It runs.
    Running,
    /// It is there but shut down.
    ShutDown,
    /// It is there; whether it is shut down could not be learnt.
    Exists,
    /// The cloud does not have it.
    Gone,
    /// The cloud did not answer.
    NoAnswer,
}

/// What becomes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Stays,
    /// Its shutdown taint is to change.
    Taint(TaintPatch),
    /// It is to be deleted, and told.
    Delete,
}

/// Whether the cloud needs to be asked about a node at all.
pub fn must_ask(ready: Option<Truth>) -> bool {
    ready != Some(Truth::True)
}

/// Decides on a node. `instance` is not looked at for a node that is ready.
pub fn fate(ready: Option<Truth>, taints: &[Taint], instance: Instance, now: Moment) -> Fate {
    let effect = TaintEffect::NoSchedule;
    let tainted = taints.iter().any(|taint| taint.is(&TaintKey::CloudShutdown, effect));
    if !must_ask(ready) {
        let remove = vec![(TaintKey::CloudShutdown, effect)];
        return if tainted {
            Fate::Taint(TaintPatch { add: Vec::new(), remove })
        } else {
            Fate::Stays
        };
    }
    match instance {
        Instance::Gone => Fate::Delete,
        Instance::ShutDown if !tainted => {
            let taint = Taint::new(TaintKey::CloudShutdown, effect, Some(now.stamp()));
            Fate::Taint(TaintPatch { add: vec![taint], remove: Vec::new() })
        }
        Instance::ShutDown | Instance::Running | Instance::Exists | Instance::NoAnswer => {
            Fate::Stays
        }
    }
}

/// A kind of node address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressKind {
    /// The machine's host name.
    HostName,
    /// An address within the cluster's network.
    InternalIp,
    /// An address that the world reaches.
    ExternalIp,
    /// A name within the cluster's network.
    InternalDns,
    /// A name that the world resolves.
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

/// What a cloud says about an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceFacts {
    /// Its id in the cloud.
    pub provider_id: String,
    /// Its size class.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// Its region.
    pub region: String,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// Other labels that the cloud wants on the node.
    pub labels: BTreeMap<String, String>,
}

/// What we know of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudNode {
    /// Its id in the cloud, if it has one already.
    pub provider_id: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// The addresses that its kubelet was told to use: the annotation's text.
    pub wanted_addresses: Option<String>,
}

/// A description that cannot be used; tried again later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudProblem {
    /// Neither cloud nor node knows an id; it could never be set later.
    #[error("the cloud gives no provider id for this node")]
    NoProviderId,
    /// The kubelet's own address is not one.
    #[error("the node's own address {text:?} is no IP address")]
    BadAddress { text: String },
    /// The cloud does not know the kubelet's own address.
    #[error("the node's own address {address} is not among the cloud's addresses")]
    UnknownAddress { address: IpAddr },
}

/// The first description of a node: one write, which also takes the taint away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The id to set, if the node has none.
    pub provider_id: Option<String>,
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// Labels that the cloud wanted and does not get.
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

/// Describes a node that still carries the "uninitialized" taint; nothing for one that does not.
pub fn describe(
    node: &CloudNode,
    taints: &[Taint],
    instance: &InstanceFacts,
) -> Result<Option<Description>, CloudProblem> {
    let uninitialized = taints.iter().filter(|taint| taint.key == TaintKey::CloudUninitialized);
    let remove: Vec<_> = uninitialized.map(|taint| (taint.key.clone(), taint.effect)).collect();
    if remove.is_empty() {
        return Ok(None);
    }
    if node.provider_id.is_empty() && instance.provider_id.is_empty() {
        return Err(CloudProblem::NoProviderId);
    }
    prefer_own(node, instance.addresses.clone())?;
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
    Ok(Some(Description { provider_id, labels, refused_labels, patch }))
}

/// Whether a label's prefix belongs to the project itself.
fn is_reserved(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"].into_iter().any(|domain| {
        prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    })
}

/// The addresses that a node is to have; nothing if they are right, or the cloud names none.
pub fn addresses(
    node: &CloudNode,
    taints: &[Taint],
    instance: &InstanceFacts,
) -> Result<Option<Vec<NodeAddress>>, CloudProblem> {
    let undescribed = taints.iter().any(|taint| taint.key == TaintKey::CloudUninitialized);
    if undescribed || instance.addresses.is_empty() {
        return Ok(None);
    }
    let mut wanted = instance.addresses.clone();
    // A cloud that says nothing of the host name leaves the kubelet's.
    if !wanted.iter().any(|it| it.kind == AddressKind::HostName) {
        wanted.extend(node.addresses.iter().filter(|it| it.kind == AddressKind::HostName).cloned());
    }
    let wanted = prefer_own(node, wanted)?;
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

/// The addresses that the kubelet was told to use come first, and alone of their kind.
fn prefer_own(node: &CloudNode, known: Vec<NodeAddress>) -> Result<Vec<NodeAddress>, CloudProblem> {
    let Some(text) = &node.wanted_addresses else { return Ok(known) };
    let mut first = Vec::new();
    for part in text.split(',').map(str::trim) {
        let own = parse_ip(part).map_err(|_| CloudProblem::BadAddress { text: text.clone() })?;
        let before = first.len();
        first.extend(known.iter().filter(|it| parse_ip(&it.address) == Ok(own)).cloned());
        if first.len() == before {
            return Err(CloudProblem::UnknownAddress { address: own });
        }
    }
    let kinds: Vec<AddressKind> = first.iter().map(|it| it.kind).collect();
    first.extend(known.into_iter().filter(|it| !kinds.contains(&it.kind)));
    Ok(first)
}

#[cfg(test)]
mod tests;
