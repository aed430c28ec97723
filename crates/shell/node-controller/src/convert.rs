//! Conversions between API objects and the decisions' types.
//!
//! Rule: total functions; what cannot be parsed is left out or kept as text, never guessed. Patches
//! carry the resource version or UID that they were made for, so that they fail on any other.

use std::fmt::Write as _;
use std::sync::Arc;

use node_health::cloud::{AddressKind, CloudNode, InstanceFacts, NodeAddress};
use node_health::health::ConditionWrite;
use node_health::no_execute::{Operator, Toleration};
use node_health::pod_cleanup::Phase;
use node_health::taints::mirrored_labels;
use node_health::zones::{ZoneKey, is_excluded};
use node_health::{
    ConditionKind, ConditionState, Conditions, NodeConditionFacts, NodeHealthFacts, RemoteTime,
    Taint, TaintKey,
};
use pod_model::TaintEffect;
use ports::cluster_objects::{self as api, Node, NodeCondition, NodeTaint, Pod, PodCondition};
use ports::{ApiTime, CloudInstance};
use serde_json::{Value, json};

use crate::pods::CachedPod;
use crate::uid::Uid;

pub(crate) fn stamp(time: Option<ApiTime>) -> RemoteTime {
    RemoteTime::from_nanos(time.map_or(0, ApiTime::nanos))
}

fn time(stamp: RemoteTime) -> Option<ApiTime> {
    (stamp != RemoteTime::default()).then(|| ApiTime::from_nanos(stamp.nanos()))
}

pub(crate) fn truth(text: &str) -> ConditionState {
    match text {
        "True" => ConditionState::True,
        "False" => ConditionState::False,
        _ => ConditionState::Unknown,
    }
}

const fn truth_text(truth: ConditionState) -> &'static str {
    match truth {
        ConditionState::True => "True",
        ConditionState::False => "False",
        ConditionState::Unknown => "Unknown",
    }
}

pub(crate) fn conditions(list: &[NodeCondition]) -> Conditions {
    let mut conditions = Conditions::default();
    for kind in ConditionKind::ALL {
        let found = list.iter().find(|condition| condition.kind == kind.name());
        let condition = found.map(|found| NodeConditionFacts {
            status: truth(&found.status),
            heartbeat: stamp(found.last_heartbeat_time),
            transition: stamp(found.last_transition_time),
        });
        conditions.set(kind, condition);
    }
    conditions
}

/// The taints that can be parsed, and whether those were all.
pub(crate) fn taints(list: &[NodeTaint]) -> (Vec<Taint>, bool) {
    let read = |taint: &NodeTaint| {
        Some(Taint {
            key: TaintKey::parse(&taint.key),
            value: taint.value.as_str().into(),
            effect: TaintEffect::parse(&taint.effect).ok()?,
            added: taint.time_added.map(|time| RemoteTime::from_nanos(time.nanos())),
        })
    };
    let taints: Vec<Taint> = list.iter().filter_map(read).collect();
    let all = taints.len() == list.len();
    (taints, all)
}

pub(crate) fn node_facts(node: &Node, version: u64) -> NodeHealthFacts {
    let labels = &node.metadata.labels;
    NodeHealthFacts {
        created: stamp(node.metadata.creation_timestamp),
        version,
        conditions: conditions(&node.status.conditions),
        taints: taints(&node.spec.taints).0,
        unschedulable: node.spec.unschedulable,
        zone: ZoneKey::from_labels(labels),
        excluded: is_excluded(labels),
        label_fixes: mirrored_labels(labels),
    }
}

/// A node's pod CIDRs, from either of the two fields.
pub(crate) fn ranges(node: &Node) -> &[String] {
    match node.spec.pod_cidrs.is_empty() && !node.spec.pod_cidr.is_empty() {
        true => std::slice::from_ref(&node.spec.pod_cidr),
        false => &node.spec.pod_cidrs,
    }
}

/// Writes a key that is equal for equal lists of tolerations only.
pub(crate) fn tolerations_key(list: &[api::Toleration], key: &mut String) {
    key.clear();
    for it in list {
        for part in [&it.key, &it.operator, &it.value, &it.effect] {
            key.push_str(part);
            key.push('\0');
        }
        if let Some(seconds) = it.toleration_seconds {
            // Writing to a `String` cannot fail.
            let _ = write!(key, "{seconds}");
        }
        key.push('\0');
    }
}

pub(crate) fn toleration(toleration: &api::Toleration) -> Toleration {
    let effect = TaintEffect::parse(&toleration.effect);
    let operator = match (toleration.effect.is_empty(), effect.is_ok()) {
        // An unknown effect matches nothing.
        (false, false) => Operator::Other,
        _ => Operator::parse(&toleration.operator),
    };
    Toleration {
        key: (!toleration.key.is_empty()).then(|| TaintKey::parse(&toleration.key)),
        operator,
        value: toleration.value.as_str().into(),
        effect: effect.ok(),
        seconds: toleration.toleration_seconds,
    }
}

fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.conditions.iter().find(|it| it.kind == kind)
}

/// When a pod was bound, from its own condition.
pub(crate) fn bound(pod: &Pod) -> Option<RemoteTime> {
    let scheduled = pod_condition(pod, "PodScheduled").filter(|it| it.status == "True");
    let bound = scheduled.and_then(|it| it.last_transition_time);
    let bound = bound.or(pod.metadata.creation_timestamp);
    bound.map(|time| RemoteTime::from_nanos(time.nanos()))
}

/// The entry of a pod, from its object; its node and binding time are the caller's.
pub(crate) fn pod_entry(
    pod: &Pod,
    uid: Uid,
    namespace: Arc<str>,
    tolerations: Arc<[Toleration]>,
) -> CachedPod {
    CachedPod {
        uid,
        namespace,
        name: pod.metadata.name.as_str().into(),
        node: None,
        tolerations,
        created: stamp(pod.metadata.creation_timestamp),
        bound: None,
        phase: Phase::parse(&pod.status.phase),
        ready: pod_condition(pod, "Ready").map(|it| truth(&it.status)),
        evicted: pod.status.reason == "Evicted",
        terminating: pod.metadata.deletion_timestamp.is_some(),
        version: pod.metadata.resource_version.parse().unwrap_or(0),
        list: 0,
    }
}

fn body(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// A strategic merge patch of the status that sets conditions to Unknown.
pub(crate) fn conditions_patch(version: &str, writes: &[ConditionWrite], wall: ApiTime) -> Vec<u8> {
    let conditions: Vec<NodeCondition> = writes
        .iter()
        .map(|write| NodeCondition {
            kind: write.kind.name().to_owned(),
            status: truth_text(write.condition.status).to_owned(),
            last_heartbeat_time: time(write.condition.heartbeat),
            last_transition_time: Some(wall),
            reason: write.because.reason().to_owned(),
            message: write.because.message().to_owned(),
        })
        .collect();
    body(&json!({
        "metadata": {"resourceVersion": version},
        "status": {"conditions": conditions},
    }))
}

/// The complete list of taints; new ones get the wall-clock time.
pub(crate) fn taints_patch(
    version: &str,
    taints: &[Taint],
    known: &[Taint],
    wall: ApiTime,
) -> Vec<u8> {
    let list: Vec<NodeTaint> = taints
        .iter()
        .map(|taint| {
            let kept = known.contains(taint);
            let added = taint.added.map(|added| match kept {
                true => ApiTime::from_nanos(added.nanos()),
                false => wall,
            });
            NodeTaint {
                key: taint.key.as_str().to_owned(),
                value: taint.value.to_string(),
                effect: taint.effect.to_string(),
                time_added: added,
            }
        })
        .collect();
    body(&json!({
        "metadata": {"resourceVersion": version},
        "spec": {"taints": list},
    }))
}

pub(crate) fn labels_patch(version: &str, labels: &[(Box<str>, Box<str>)]) -> Vec<u8> {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    body(&json!({"metadata": {"resourceVersion": version, "labels": labels}}))
}

/// The annotation of fence writes, whose only purpose is a new resource version. It is removed when
/// the node gets its pod CIDR.
pub(crate) const FENCE: &str = "keelson/range-fence";

/// Changes nothing but the resource version; the value must differ from the node's.
pub(crate) fn fence_patch(version: &str, value: &str) -> Vec<u8> {
    body(&json!({"metadata": {"resourceVersion": version, "annotations": {FENCE: value}}}))
}

pub(crate) fn ranges_patch(version: &str, ranges: &[String]) -> Vec<u8> {
    body(&json!({
        "metadata": {"resourceVersion": version, "annotations": {FENCE: null}},
        "spec": {"podCIDR": ranges.first(), "podCIDRs": ranges},
    }))
}

/// A patch of a pod's status, guarded by UID and resource version.
pub(crate) fn pod_status_patch(uid: &Uid, version: &str, status: &Value) -> Vec<u8> {
    let metadata = json!({"uid": uid.to_string(), "resourceVersion": version});
    body(&json!({"metadata": metadata, "status": status}))
}

const ADDRESS_KINDS: [(AddressKind, &str); 5] = [
    (AddressKind::HostName, "Hostname"),
    (AddressKind::InternalIp, "InternalIP"),
    (AddressKind::ExternalIp, "ExternalIP"),
    (AddressKind::InternalDns, "InternalDNS"),
    (AddressKind::ExternalDns, "ExternalDNS"),
];

fn address(kind: &str, address: &str) -> Option<NodeAddress> {
    let found = ADDRESS_KINDS.into_iter().find(|(_, name)| *name == kind)?;
    Some(NodeAddress { kind: found.0, address: address.to_owned() })
}

fn address_kind(kind: AddressKind) -> &'static str {
    ADDRESS_KINDS.into_iter().find(|(known, _)| *known == kind).map_or("", |(_, name)| name)
}

/// The annotation with the addresses that the kubelet was configured with.
const OWN_ADDRESS: &str = "alpha.kubernetes.io/provided-node-ip";

pub(crate) fn cloud_node(node: &Node) -> CloudNode {
    let addresses = node.status.addresses.iter();
    CloudNode {
        provider_id: node.spec.provider_id.clone(),
        labels: node.metadata.labels.clone(),
        addresses: addresses.filter_map(|it| address(&it.kind, &it.address)).collect(),
        wanted_addresses: node.metadata.annotations.get(OWN_ADDRESS).cloned(),
    }
}

pub(crate) fn instance_facts(instance: &CloudInstance) -> InstanceFacts {
    let addresses = instance.addresses.iter();
    InstanceFacts {
        provider_id: instance.provider_id.clone(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        region: instance.region.clone(),
        addresses: addresses.filter_map(|it| address(&it.kind, &it.address)).collect(),
        labels: instance.labels.clone(),
    }
}

/// Replaces a node's addresses: a merge patch of the status.
pub(crate) fn addresses_patch(version: &str, addresses: &[NodeAddress]) -> Vec<u8> {
    let list: Vec<api::NodeAddress> = addresses
        .iter()
        .map(|it| api::NodeAddress {
            kind: address_kind(it.kind).to_owned(),
            address: it.address.clone(),
        })
        .collect();
    body(&json!({
        "metadata": {"resourceVersion": version},
        "status": {"addresses": list},
    }))
}

#[cfg(test)]
mod tests;
