//! One status update: the object as it is and the facts of now give the object as it should be,
//! whether that is worth a request, and the events that come with it.
//!
//! Rule: a heartbeat alone is no change. A part that cannot be filled in leaves an error and does not
//! keep the others from being updated.
//!
//! upstream: pkg/kubelet/kubelet_node_status.go (updateNode, nodeStatusHasChanged)

use std::collections::BTreeMap;

use ports::ApiTime;
use ports::cluster_objects::NodeCondition;

use crate::addresses::{self, AddressRequest, PROVIDED_ADDRESS};
use crate::object::{
    DaemonEndpoint, DaemonEndpoints, FullNodeStatus, ImageSummary, NodeImage, NodeObject,
    NodeSettings, NodeStatusEvent, NodeStatusInputs, NodeSwap,
};
use crate::{capacity, conditions};

/// More names of one image say nothing to the scheduler.
const MAX_NAMES_PER_IMAGE: usize = 5;

pub(crate) const OS_LABEL: &str = "kubernetes.io/os";
pub(crate) const ARCH_LABEL: &str = "kubernetes.io/arch";
pub(crate) const OPERATING_SYSTEM: &str = "linux";

/// What an update comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUpdate {
    pub node: NodeObject,
    /// Whether something other than a heartbeat differs.
    pub changed: bool,
    pub events: Vec<NodeStatusEvent>,
    /// What could not be filled in, for the log.
    pub errors: Vec<String>,
}

/// What the agent remembers between updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateState {
    /// As the last update saw it.
    pub unschedulable: bool,
    /// The reboot was reported already.
    pub reboot_reported: bool,
}

/// The object as it should be now.
pub fn update(
    settings: &NodeSettings,
    facts: &NodeStatusInputs,
    existing: &NodeObject,
    memory: &mut UpdateState,
    now: ApiTime,
) -> NodeUpdate {
    let mut node = existing.clone();
    for (label, value) in [(OS_LABEL, OPERATING_SYSTEM), (ARCH_LABEL, &settings.architecture)] {
        node.metadata.labels.insert(label.to_owned(), value.to_owned());
    }
    let labels_changed = node.metadata.labels != existing.metadata.labels;
    let (events, errors) = fill(&mut node, settings, facts, memory, now);
    let changed = labels_changed || differs(&existing.status, &node.status);
    NodeUpdate { node, changed, events, errors }
}

/// Fills in everything of the status that is the agent's.
pub(crate) fn fill(
    node: &mut NodeObject,
    settings: &NodeSettings,
    facts: &NodeStatusInputs,
    memory: &mut UpdateState,
    now: ApiTime,
) -> (Vec<NodeStatusEvent>, Vec<String>) {
    let (mut events, mut errors) = (Vec::new(), Vec::new());
    if let Err(error) = fill_addresses(node, settings, facts) {
        errors.push(error.to_string());
    }
    events.extend(reboot(&node.status, settings, facts, memory));
    capacity::fill(&mut node.status, settings, facts);
    fill_info(&mut node.status, settings, facts);
    match &facts.images {
        Some(images) => node.status.images = image_list(images, settings.max_images),
        None => {
            node.status.images = Vec::new();
            errors.push("the runtime's images could not be listed".to_owned());
        }
    }
    node.status.runtime_handlers.clone_from(&facts.runtime_handlers);
    if facts.runtime_features.is_some() {
        node.status.features.clone_from(&facts.runtime_features);
    }
    events.extend(conditions::fill(&mut node.status, settings, facts, now));
    if let Some(volumes) = &facts.volumes_in_use {
        node.status.volumes_in_use.clone_from(volumes);
    }
    if memory.unschedulable != node.spec.unschedulable {
        memory.unschedulable = node.spec.unschedulable;
        let schedulable =
            if node.spec.unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
        events.push(NodeStatusEvent::of_status(&settings.node_name, schedulable));
    }
    node.status.declared_features.clone_from(&facts.declared_features);
    (events, errors)
}

fn fill_addresses(
    node: &mut NodeObject,
    settings: &NodeSettings,
    facts: &NodeStatusInputs,
) -> Result<(), addresses::NodeAddressError> {
    let request = AddressRequest {
        node_name: &settings.node_name,
        hostname: &settings.hostname,
        external_cloud_provider: settings.external_cloud_provider,
        existing: &node.status.addresses,
    };
    let chosen = addresses::choose(request, &facts.addresses)?;
    node.status.addresses = chosen.addresses;
    let annotations = &mut node.metadata.annotations;
    match chosen.annotation {
        Some(value) => annotations.insert(PROVIDED_ADDRESS.to_owned(), value),
        None => annotations.remove(PROVIDED_ADDRESS),
    };
    Ok(())
}

fn reboot(
    status: &FullNodeStatus,
    settings: &NodeSettings,
    facts: &NodeStatusInputs,
    memory: &mut UpdateState,
) -> Option<NodeStatusEvent> {
    let boot_id = &facts.machine.as_ref()?.boot_id;
    let before = &status.node_info.boot_id;
    if before.is_empty() || before == boot_id || memory.reboot_reported {
        return None;
    }
    memory.reboot_reported = true;
    let name = &settings.node_name;
    let message = format!("Node {name} has been rebooted, boot id: {boot_id}");
    Some(NodeStatusEvent { warning: true, reason: "Rebooted", message })
}

fn fill_info(status: &mut FullNodeStatus, settings: &NodeSettings, facts: &NodeStatusInputs) {
    let info = &mut status.node_info;
    if let Some(machine) = &facts.machine {
        info.machine_id.clone_from(&machine.machine_id);
        info.system_uuid.clone_from(&machine.system_uuid);
        info.boot_id.clone_from(&machine.boot_id);
        if machine.swap != 0 {
            info.swap = Some(NodeSwap { capacity: machine.swap });
        }
    }
    info.kernel_version.clone_from(&facts.kernel_version);
    info.os_image.clone_from(&facts.os_image);
    let version = facts.runtime_version.as_deref().unwrap_or("Unknown");
    let version = version.strip_prefix('v').unwrap_or(version);
    info.container_runtime_version = format!("{}://{version}", facts.runtime_name);
    info.kubelet_version.clone_from(&settings.kubelet_version);
    info.kube_proxy_version.clear();
    OPERATING_SYSTEM.clone_into(&mut info.operating_system);
    info.architecture.clone_from(&settings.architecture);
    status.daemon_endpoints =
        DaemonEndpoints { kubelet_endpoint: DaemonEndpoint { port: settings.port } };
}

/// The largest images first, as many as asked for.
fn image_list(images: &[ImageSummary], most: i64) -> Vec<NodeImage> {
    let mut sorted: Vec<&ImageSummary> = images.iter().collect();
    sorted.sort_by(|one, other| {
        other.size_bytes.cmp(&one.size_bytes).then_with(|| one.id.cmp(&other.id))
    });
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let listed = sorted.into_iter().take(most).map(|image| {
        let names = image.digests.iter().chain(&image.tags).take(MAX_NAMES_PER_IMAGE);
        NodeImage { names: names.cloned().collect(), size_bytes: image.size_bytes }
    });
    listed.collect()
}

/// Whether two statuses differ in anything but the times of heartbeats and the order of conditions.
fn differs(one: &FullNodeStatus, other: &FullNodeStatus) -> bool {
    let conditions = |status: &FullNodeStatus| -> BTreeMap<String, NodeCondition> {
        let conditions = status.conditions.iter().map(|condition| {
            let silent = NodeCondition { last_heartbeat_time: None, ..condition.clone() };
            (condition.kind.clone(), silent)
        });
        conditions.collect()
    };
    let rest =
        |status: &FullNodeStatus| FullNodeStatus { conditions: Vec::new(), ..status.clone() };
    conditions(one) != conditions(other) || rest(one) != rest(other)
}

#[cfg(test)]
mod tests;
