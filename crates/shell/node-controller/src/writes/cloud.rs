//! Cloud queries about a node, and the writes that follow from them.
//!
//! Rule: two steps. The query blocks nothing: it has its own slots and no write to the node waits
//! for its answer. Only what follows from an answer is a write; it is queued like others, and reads
//! the live node right before it. A cloud that does not answer changes nothing. upstream:
//! cloud-provider/controllers

use node_health::cloud::{
    CloudAction, CloudDescriptionError, InstanceStatus, NodeAddress, NodeDescription, addresses,
    cloud_action, describe,
};
use node_health::health::NodeHealthEvent;
use node_health::taints::TaintPatch;
use node_health::{ConditionKind, ControllerTime, Taint};
use ports::cloud_provider::InstanceState;
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind};
use ports::cluster_objects::Node;
use ports::{CloudError, CloudInstance, CloudNodeName};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{info, warn};

use super::NodeTarget;
use crate::api_gate::{ApiGate, RequestError};
use crate::convert;
use crate::events::{EventObject, EventText};

/// The kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CloudTask {
    /// Whether a node that is not ready still exists, and runs.
    CloudAction,
    /// The initialization of a node.
    Describe,
    /// Whether its addresses changed.
    Addresses,
}

/// The cloud's answer.
#[derive(Clone, Debug)]
enum InstanceReply {
    /// No query was needed: the node is ready.
    NotAsked,
    Gone,
    Found(Box<CloudInstance>),
}

/// An answer from which something follows.
#[derive(Clone, Debug)]
pub(crate) struct CloudAnswer {
    pub(crate) task: CloudTask,
    pub(crate) asked: ControllerTime,
    /// The provider id that was queried.
    provider_id: String,
    reply: InstanceReply,
}

/// The result of applying an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloudOutcome {
    Settled,
    Changed,
}

/// Why a query or its write failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CloudWriteError {
    #[error(transparent)]
    Api(#[from] RequestError),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(transparent)]
    Problem(#[from] CloudDescriptionError),
    #[error("no answer from the cloud in time")]
    Timeout,
}

/// A node as read right before a decision about it.
struct LiveNode {
    node: Node,
    taints: Vec<Taint>,
}

/// What a node gets from the cloud when it joins.
struct NodeInitialization {
    description: NodeDescription,
    /// None if the node keeps those that it has.
    addresses: Option<Vec<NodeAddress>>,
}

/// What follows from an answer for the current node.
enum CloudPlan {
    Nothing,
    Taint(TaintPatch),
    Delete,
    Describe(Box<NodeInitialization>),
    Addresses(Vec<NodeAddress>),
}

/// Queries the cloud; none if nothing follows from its answer.
pub(crate) async fn ask(
    api_gate: &ApiGate,
    target: &NodeTarget,
    task: CloudTask,
) -> Result<Option<CloudAnswer>, CloudWriteError> {
    let Some(live) = read(api_gate, target).await? else { return Ok(None) };
    let node = &live.node;
    let ready = convert::conditions(&node.status.conditions).status(ConditionKind::Ready);
    let asked = api_gate.now();
    let reply = if task == CloudTask::CloudAction && !node_health::cloud::needs_cloud_query(ready) {
        InstanceReply::NotAsked
    } else {
        query_instance(api_gate, node)
            .await?
            .map_or(InstanceReply::Gone, |found| InstanceReply::Found(Box::new(found)))
    };
    let answer = CloudAnswer { task, asked, provider_id: node.spec.provider_id.clone(), reply };
    let plan = plan(&live, &answer, api_gate.now())?;
    Ok((!matches!(plan, CloudPlan::Nothing)).then_some(answer))
}

/// Applies an answer, if it still applies.
pub(crate) async fn apply_answer(
    api_gate: &ApiGate,
    target: &NodeTarget,
    answer: &CloudAnswer,
) -> Result<CloudOutcome, CloudWriteError> {
    let Some(live) = read(api_gate, target).await? else {
        return Ok(CloudOutcome::Settled);
    };
    let LiveNode { node, taints } = &live;
    // The provider id changed: the answer was about another instance.
    if node.spec.provider_id != answer.provider_id {
        return Ok(CloudOutcome::Settled);
    }
    match plan(&live, answer, api_gate.now())? {
        CloudPlan::Nothing => Ok(CloudOutcome::Settled),
        CloudPlan::Taint(patch) => {
            let wall = api_gate.shared().clock.wall();
            let wanted = patch.apply(taints);
            let version = &node.metadata.resource_version;
            let body = convert::taints_patch(version, &wanted, taints, wall);
            send(api_gate, target, body, false).await?;
            Ok(CloudOutcome::Changed)
        }
        CloudPlan::Delete => delete(api_gate, target).await,
        CloudPlan::Describe(initialization) => {
            describe_node(api_gate, target, &live, &initialization).await
        }
        CloudPlan::Addresses(list) => {
            let body = convert::addresses_patch(&node.metadata.resource_version, &list);
            send(api_gate, target, body, true).await?;
            Ok(CloudOutcome::Changed)
        }
    }
}

/// The current node with its taints; none if it is gone, replaced, or does not parse.
async fn read(api_gate: &ApiGate, target: &NodeTarget) -> Result<Option<LiveNode>, RequestError> {
    let Some(node) = api_gate.read_node(&target.name).await?.filter(|node| target.is(node)) else {
        return Ok(None);
    };
    let (taints, readable) = convert::taints(&node.spec.taints);
    Ok(readable.then_some(LiveNode { node, taints }))
}

async fn query_instance(
    api_gate: &ApiGate,
    node: &Node,
) -> Result<Option<CloudInstance>, CloudWriteError> {
    let Some(cloud) = &api_gate.shared().cloud else { return Err(CloudWriteError::Timeout) };
    let name = CloudNodeName {
        name: node.metadata.name.clone(),
        provider_id: node.spec.provider_id.clone(),
    };
    let limit = api_gate.shared().checked.config.writes.deadline;
    match timeout(limit, cloud.instance(&name)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CloudWriteError::Timeout),
    }
}

fn plan(
    live: &LiveNode,
    answer: &CloudAnswer,
    now: ControllerTime,
) -> Result<CloudPlan, CloudDescriptionError> {
    let LiveNode { node, taints } = live;
    match (answer.task, &answer.reply) {
        (CloudTask::CloudAction, reply) => {
            let ready = convert::conditions(&node.status.conditions).status(ConditionKind::Ready);
            let instance = match reply {
                InstanceReply::NotAsked => InstanceStatus::NoAnswer,
                InstanceReply::Gone => InstanceStatus::Gone,
                InstanceReply::Found(found) => match found.state {
                    InstanceState::Running => InstanceStatus::Running,
                    InstanceState::ShutDown => InstanceStatus::ShutDown,
                    InstanceState::Unknown => InstanceStatus::Exists,
                },
            };
            Ok(match cloud_action(ready, taints, instance, now) {
                CloudAction::Keep => CloudPlan::Nothing,
                CloudAction::Taint(patch) => CloudPlan::Taint(patch),
                CloudAction::Delete => CloudPlan::Delete,
            })
        }
        (CloudTask::Describe, InstanceReply::Found(found)) => {
            let (known, instance) = (convert::cloud_node(node), convert::instance_facts(found));
            let Some(description) = describe(&known, taints, &instance)? else {
                return Ok(CloudPlan::Nothing);
            };
            let free = description.patch.apply(taints);
            let addresses = addresses(&known, &free, &instance)?;
            Ok(CloudPlan::Describe(Box::new(NodeInitialization { description, addresses })))
        }
        (CloudTask::Addresses, InstanceReply::Found(found)) => {
            let (known, instance) = (convert::cloud_node(node), convert::instance_facts(found));
            Ok(addresses(&known, taints, &instance)?
                .map_or(CloudPlan::Nothing, CloudPlan::Addresses))
        }
        // Deleting a node without an instance is decided by the other kind of query.
        (
            CloudTask::Describe | CloudTask::Addresses,
            InstanceReply::NotAsked | InstanceReply::Gone,
        ) => Ok(CloudPlan::Nothing),
    }
}

async fn delete(api_gate: &ApiGate, target: &NodeTarget) -> Result<CloudOutcome, CloudWriteError> {
    let component = "cloud-node-lifecycle-controller";
    let event = NodeHealthEvent::Deleting;
    let about = EventObject::target(target);
    let events = &api_gate.shared().events;
    let message = event.message(&target.name);
    info!(node = &*target.name, "Deleting a node that the cloud does not have");
    events.record(about.clone(), EventText::normal(component, event.reason(), message));
    let deletion = Deletion { uid: Some(target.uid.to_string()), ..Deletion::default() };
    let path = ObjectPath::node(&target.name);
    match api_gate.send_guarded("nodes", api_gate.api().delete(&path, deletion)).await {
        Ok(()) => Ok(CloudOutcome::Changed),
        Err(failure) if failure.is_gone() || failure.is_conflict() => Ok(CloudOutcome::Settled),
        Err(failure) => {
            let message = format!("Failed deleting node {}: {failure}", target.name);
            events.record(about, EventText::warning(component, "DeletingNodeFailed", message));
            Err(failure.into())
        }
    }
}

async fn describe_node(
    api_gate: &ApiGate,
    target: &NodeTarget,
    live: &LiveNode,
    initialization: &NodeInitialization,
) -> Result<CloudOutcome, CloudWriteError> {
    let LiveNode { node, taints } = live;
    let NodeInitialization { description, addresses } = initialization;
    if !description.refused_labels.is_empty() {
        let labels = description.refused_labels.join(", ");
        warn!(node = &*target.name, labels, "The cloud may not set these labels");
    }
    // Addresses first: the taint says that they are not set yet.
    let mut version = node.metadata.resource_version.clone();
    if let Some(list) = addresses {
        version = send(api_gate, target, convert::addresses_patch(&version, list), true).await?;
    }
    let wall = api_gate.shared().clock.wall();
    let free = description.patch.apply(taints);
    let body = convert::taints_patch(&version, &free, taints, wall);
    let mut body: Value = serde_json::from_slice(&body)
        .map_err(|error| RequestError::Unreadable(format!("our own patch: {error}")))?;
    body["metadata"]["labels"] = json!(description.labels);
    if let Some(id) = &description.provider_id {
        body["spec"]["providerID"] = json!(id);
    }
    send(api_gate, target, body.to_string().into_bytes(), false).await?;
    let event = NodeHealthEvent::Synced;
    let message = event.message(&target.name);
    let text = EventText::normal("cloud-node-controller", event.reason(), message);
    api_gate.shared().events.record(EventObject::target(target), text);
    Ok(CloudOutcome::Changed)
}

/// Patches the node; returns its new version.
async fn send(
    api_gate: &ApiGate,
    target: &NodeTarget,
    body: Vec<u8>,
    status: bool,
) -> Result<String, RequestError> {
    let subresource = status.then_some("status".into());
    let patch = Patch { kind: PatchKind::Merge, subresource, body };
    let path = ObjectPath::node(&target.name);
    Ok(api_gate.send_guarded("nodes", api_gate.api().patch(&path, patch)).await?.resource_version)
}
