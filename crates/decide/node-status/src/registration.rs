//! The Node object for registration, and the reconciliation of an existing one.
//!
//! Rule: on an existing node only default labels, the attach annotation, huge pages and (where the
//! machine is another one) device resources are changed; labels, taints and conditions set by
//! others stay. A name that another live machine holds is an error.
//!
//! upstream: pkg/kubelet/kubelet_node_status.go

use pod_model::Quantity;
use ports::ApiTime;
use ports::cluster_objects::NodeTaint;
use serde_json::{Map, Value, json};

use crate::object::{
    MachineResources, NodeObject, NodeSettings, NodeStatusEvent, NodeStatusInputs,
    is_extended_resource, is_huge_page_resource,
};
use crate::update::{ARCH_LABEL, OPERATING_SYSTEM, OS_LABEL, UpdateState, fill};

const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
const ATTACH_ANNOTATION: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Labels that are the agent's to set on a node that exists.
const DEFAULT_LABELS: &[&str] = &[
    HOSTNAME_LABEL,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS_LABEL,
    ARCH_LABEL,
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The node as it registers, with the events of its first conditions and what could not be filled in.
pub fn initial_node(
    settings: &NodeSettings,
    facts: &NodeStatusInputs,
    now: ApiTime,
) -> (NodeObject, Vec<NodeStatusEvent>, Vec<String>) {
    let mut node = node_without_status(settings);
    let mut memory = UpdateState { unschedulable: settings.unschedulable, ..Default::default() };
    let (events, errors) = fill(&mut node, settings, facts, &mut memory, now);
    (node, events, errors)
}

/// The part of it that the configuration alone decides.
pub fn node_without_status(settings: &NodeSettings) -> NodeObject {
    let mut node = NodeObject::default();
    node.metadata.name.clone_from(&settings.node_name);
    let architecture = settings.architecture.as_str();
    for (label, value) in [
        (HOSTNAME_LABEL, settings.hostname.as_str()),
        (OS_LABEL, OPERATING_SYSTEM),
        (ARCH_LABEL, architecture),
        ("beta.kubernetes.io/os", OPERATING_SYSTEM),
        ("beta.kubernetes.io/arch", architecture),
    ] {
        node.metadata.labels.insert(label.to_owned(), value.to_owned());
    }
    node.metadata.labels.extend(settings.labels.clone());
    if settings.controller_attaches_volumes {
        node.metadata.annotations.insert(ATTACH_ANNOTATION.to_owned(), "true".to_owned());
    }
    node.spec.unschedulable = settings.unschedulable;
    node.spec.provider_id.clone_from(&settings.provider_id);
    node.spec.taints.clone_from(&settings.taints);
    if settings.unschedulable && !has_taint(&node, UNSCHEDULABLE_TAINT) {
        node.spec.taints.push(taint(UNSCHEDULABLE_TAINT, ""));
    }
    if settings.external_cloud_provider {
        node.spec.taints.push(taint(UNINITIALIZED_TAINT, "true"));
    }
    node
}

fn has_taint(node: &NodeObject, key: &str) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == key)
}

fn taint(key: &str, value: &str) -> NodeTaint {
    let effect = "NoSchedule".to_owned();
    NodeTaint { key: key.to_owned(), value: value.to_owned(), effect, time_added: None }
}

/// The object as the body of a create request.
pub fn create_body(node: &NodeObject) -> Value {
    let mut spec = Map::new();
    if !node.spec.provider_id.is_empty() {
        spec.insert("providerID".to_owned(), json!(node.spec.provider_id));
    }
    if !node.spec.taints.is_empty() {
        spec.insert("taints".to_owned(), json!(node.spec.taints));
    }
    if node.spec.unschedulable {
        spec.insert("unschedulable".to_owned(), json!(true));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.metadata.name,
            "labels": node.metadata.labels,
            "annotations": node.metadata.annotations,
        },
        "spec": spec,
        "status": node.status,
    })
}

/// The existing node after reconciliation, or nothing where nothing differs.
pub fn reconciled(
    initial: &NodeObject,
    existing: &NodeObject,
    resets_devices: bool,
) -> Option<NodeObject> {
    let mut node = existing.clone();
    let annotation = initial.metadata.annotations.get(ATTACH_ANNOTATION);
    match annotation {
        Some(value) => {
            node.metadata.annotations.insert(ATTACH_ANNOTATION.to_owned(), value.clone());
        }
        None => {
            node.metadata.annotations.remove(ATTACH_ANNOTATION);
        }
    }
    for label in DEFAULT_LABELS {
        match initial.metadata.labels.get(*label) {
            Some(value) if value.is_empty() => {
                node.metadata.labels.remove(*label);
            }
            Some(value) => {
                node.metadata.labels.insert((*label).to_owned(), value.clone());
            }
            None => {}
        }
    }
    if node.status.capacity.is_empty() {
        node.status.capacity.clone_from(&initial.status.capacity);
    }
    if node.status.allocatable.is_empty() {
        node.status.allocatable.clone_from(&initial.status.allocatable);
    }
    if resets_devices {
        reset_devices(&mut node);
    }
    reconcile_huge_pages(initial, &mut node);
    (node != *existing).then_some(node)
}

fn reset_devices(node: &mut NodeObject) {
    let status = &mut node.status;
    let names: Vec<String> =
        status.capacity.keys().filter(|name| is_extended_resource(name)).cloned().collect();
    for name in names {
        status.capacity.insert(name.clone(), Quantity::ZERO);
        status.allocatable.insert(name, Quantity::ZERO);
    }
}

fn reconcile_huge_pages(initial: &NodeObject, node: &mut NodeObject) {
    let kept =
        |name: &String| !is_huge_page_resource(name) || initial.status.capacity.contains_key(name);
    node.status.capacity.retain(|name, _| kept(name));
    node.status.allocatable.retain(|name, _| kept(name));
    let status = &initial.status;
    for (from, to) in [
        (&status.capacity, &mut node.status.capacity),
        (&status.allocatable, &mut node.status.allocatable),
    ] {
        let pages = from.iter().filter(|(name, _)| is_huge_page_resource(name));
        to.extend(pages.map(|(name, amount)| (name.clone(), *amount)));
    }
}

/// What the node's Lease shows of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    pub renewed: ApiTime,
    pub duration_seconds: i64,
}

/// Why this machine may not use the name, if another live one uses it: the object names another
/// machine by both ids, and its Lease was renewed within its duration. A machine that was
/// reinstalled, or that takes a dead one's name, gets it.
pub fn name_conflict(
    existing: &NodeObject,
    machine: &MachineResources,
    lease: Option<ObservedLease>,
    now: ApiTime,
) -> Option<String> {
    let info = &existing.status.node_info;
    let another = |theirs: &str, ours: &str| {
        !theirs.is_empty() && !ours.is_empty() && !theirs.eq_ignore_ascii_case(ours)
    };
    let other_machine = another(&info.machine_id, &machine.machine_id)
        && another(&info.system_uuid, &machine.system_uuid);
    let seen = lease?;
    let age = now.nanos().saturating_sub(seen.renewed.nanos());
    let alive = age < seen.duration_seconds.saturating_mul(1_000_000_000);
    (other_machine && alive).then(|| {
        format!(
            "node {} belongs to another machine that is alive (machine id {}, renewed its Lease {} s \
             ago); start this one with another --hostname-override",
            existing.metadata.name,
            info.machine_id,
            age.max(0) / 1_000_000_000
        )
    })
}

#[cfg(test)]
mod tests;
