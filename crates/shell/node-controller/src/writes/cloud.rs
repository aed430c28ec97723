//! What the cloud says of a node, and the writes that follow from it.
//!
//! Rule: both sides are read live right before anything is written; a cloud that does not answer
//! changes nothing. upstream: cloud-provider/controllers

use node_health::cloud::{CloudProblem, Fate, Instance, addresses, describe, fate};
use node_health::health::NodeEvent;
use node_health::{ConditionKind, Taint};
use ports::cloud_provider::InstanceState;
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind};
use ports::cluster_objects::Node;
use ports::{CloudError, CloudInstance, CloudNodeName};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{info, warn};

use super::Target;
use crate::convert;
use crate::events::{About, Said};
use crate::gate::{Failure, Gate};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Whether a node that is not ready still exists, and runs.
    Fate,
    /// The first description of a node.
    Describe,
    /// Whether its addresses are still those.
    Addresses,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Settled,
    Changed,
}

/// Why it could not be done now.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Api(#[from] Failure),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(transparent)]
    Problem(#[from] CloudProblem),
    #[error("no answer from the cloud in time")]
    Late,
}

pub(crate) async fn perform(gate: &Gate, target: &Target, task: Task) -> Result<Outcome, Trouble> {
    let Some(node) = gate.read_node(&target.name).await?.filter(|node| target.is(node)) else {
        return Ok(Outcome::Settled);
    };
    let (taints, readable) = convert::taints(&node.spec.taints);
    if !readable {
        return Ok(Outcome::Settled);
    }
    match task {
        Task::Fate => decide_fate(gate, target, &node, &taints).await,
        Task::Describe => describe_node(gate, target, &node, &taints).await,
        Task::Addresses => match ask(gate, &node).await? {
            Some(found) => keep_addresses(gate, &node, &taints, &found).await,
            None => Ok(Outcome::Settled),
        },
    }
}

async fn ask(gate: &Gate, node: &Node) -> Result<Option<CloudInstance>, Trouble> {
    let Some(cloud) = &gate.shared().cloud else { return Err(Trouble::Late) };
    let name = CloudNodeName {
        name: node.metadata.name.clone(),
        provider_id: node.spec.provider_id.clone(),
    };
    let limit = gate.shared().checked.config.writes.deadline;
    match timeout(limit, cloud.instance(&name)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Trouble::Late),
    }
}

async fn decide_fate(
    gate: &Gate,
    target: &Target,
    node: &Node,
    taints: &[Taint],
) -> Result<Outcome, Trouble> {
    let ready = convert::conditions(&node.status.conditions).status(ConditionKind::Ready);
    let instance = match node_health::cloud::must_ask(ready) {
        false => Instance::NoAnswer,
        true => match ask(gate, node).await? {
            None => Instance::Gone,
            Some(found) => match found.state {
                InstanceState::Running => Instance::Running,
                InstanceState::ShutDown => Instance::ShutDown,
                InstanceState::Unknown => Instance::Exists,
            },
        },
    };
    match fate(ready, taints, instance, gate.now()) {
        Fate::Stays => Ok(Outcome::Settled),
        Fate::Taint(patch) => {
            let wall = gate.shared().clock.wall();
            let wanted = patch.apply(taints);
            let version = &node.metadata.resource_version;
            let body = convert::taints_patch(version, &wanted, taints, wall);
            send(gate, target, body, false).await?;
            Ok(Outcome::Changed)
        }
        Fate::Delete => delete(gate, target).await,
    }
}

async fn delete(gate: &Gate, target: &Target) -> Result<Outcome, Trouble> {
    let component = "cloud-node-lifecycle-controller";
    let event = NodeEvent::Deleting;
    let about = About::target(target);
    let events = &gate.shared().events;
    let message = event.message(&target.name);
    info!(node = &*target.name, "Deleting a node that the cloud does not have");
    events.tell(&about, Said::normal(component, event.reason(), message));
    let deletion = Deletion { uid: Some(target.uid.to_string()), ..Deletion::default() };
    let path = ObjectPath::node(&target.name);
    match gate.pass("nodes", gate.api().delete(&path, deletion)).await {
        Ok(()) => Ok(Outcome::Changed),
        Err(failure) if failure.is_gone() || failure.is_conflict() => Ok(Outcome::Settled),
        Err(failure) => {
            let message = format!("Failed deleting node {}: {failure}", target.name);
            events.tell(&about, Said::warning(component, "DeletingNodeFailed", message));
            Err(failure.into())
        }
    }
}

async fn describe_node(
    gate: &Gate,
    target: &Target,
    node: &Node,
    taints: &[Taint],
) -> Result<Outcome, Trouble> {
    // A cloud that has never heard of a new node may yet do so; only silence makes it gone.
    let Some(found) = ask(gate, node).await? else { return Ok(Outcome::Settled) };
    let instance = convert::instance_facts(&found);
    let Some(description) = describe(&convert::cloud_node(node), taints, &instance)? else {
        return Ok(Outcome::Settled);
    };
    if !description.refused_labels.is_empty() {
        let labels = description.refused_labels.join(", ");
        warn!(node = &*target.name, labels, "Labels that the cloud wants are not its to set");
    }
    // The addresses come first: the taint says that they are not known yet.
    let free: Vec<Taint> = description.patch.apply(taints);
    let mut node = node.clone();
    if let Some(list) = addresses(&convert::cloud_node(&node), &free, &instance)? {
        let body = convert::addresses_patch(&node.metadata.resource_version, &list);
        node.metadata.resource_version = send(gate, target, body, true).await?;
    }
    let wall = gate.shared().clock.wall();
    let version = &node.metadata.resource_version;
    let body = convert::taints_patch(version, &free, taints, wall);
    let mut body: Value = serde_json::from_slice(&body)
        .map_err(|error| Failure::Unreadable(format!("our own patch: {error}")))?;
    body["metadata"]["labels"] = json!(description.labels);
    if let Some(id) = &description.provider_id {
        body["spec"]["providerID"] = json!(id);
    }
    send(gate, target, body.to_string().into_bytes(), false).await?;
    let event = NodeEvent::Synced;
    let message = event.message(&target.name);
    let said = Said::normal("cloud-node-controller", event.reason(), message);
    gate.shared().events.tell(&About::target(target), said);
    Ok(Outcome::Changed)
}

async fn keep_addresses(
    gate: &Gate,
    node: &Node,
    taints: &[Taint],
    found: &CloudInstance,
) -> Result<Outcome, Trouble> {
    let instance = convert::instance_facts(found);
    let Some(list) = addresses(&convert::cloud_node(node), taints, &instance)? else {
        return Ok(Outcome::Settled);
    };
    let body = convert::addresses_patch(&node.metadata.resource_version, &list);
    let patch = Patch { kind: PatchKind::Merge, subresource: Some("status".into()), body };
    let path = ObjectPath::node(&node.metadata.name);
    gate.pass("nodes", gate.api().patch(&path, patch)).await?;
    Ok(Outcome::Changed)
}

/// Patches the node; the version that it has now.
async fn send(
    gate: &Gate,
    target: &Target,
    body: Vec<u8>,
    status: bool,
) -> Result<String, Failure> {
    let subresource = status.then_some("status".into());
    let patch = Patch { kind: PatchKind::Merge, subresource, body };
    let path = ObjectPath::node(&target.name);
    Ok(gate.pass("nodes", gate.api().patch(&path, patch)).await?.resource_version)
}
