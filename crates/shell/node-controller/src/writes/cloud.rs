//! Cloud queries about a node, and the writes that follow from them.
//!
//! Rule: two steps. The query blocks nothing: it has its own slots and no write to the node waits
//! for its answer. Only what follows from an answer is a write; it is queued like others, and reads
//! the live node right before it. A cloud that does not answer changes nothing. upstream:
//! cloud-provider/controllers

use node_health::cloud::{
    CloudProblem, Description, Fate, Instance, NodeAddress, addresses, describe, fate,
};
use node_health::health::NodeEvent;
use node_health::taints::TaintPatch;
use node_health::{ConditionKind, Moment, Taint};
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

/// The kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Whether a node that is not ready still exists, and runs.
    Fate,
    /// The initialization of a node.
    Describe,
    /// Whether its addresses changed.
    Addresses,
}

/// The cloud's answer.
#[derive(Clone, Debug)]
enum Word {
    /// No query was needed: the node is ready.
    NotAsked,
    Gone,
    Found(Box<CloudInstance>),
}

/// An answer from which something follows.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) task: Task,
    pub(crate) asked: Moment,
    /// The provider id that was queried.
    provider_id: String,
    word: Word,
}

/// The result of applying an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Settled,
    Changed,
}

/// Why a query or its write failed.
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

/// What follows from an answer for the current node.
enum Plan {
    Nothing,
    Taint(TaintPatch),
    Delete,
    Describe(Box<Description>, Option<Vec<NodeAddress>>),
    Addresses(Vec<NodeAddress>),
}

/// Queries the cloud; none if nothing follows from its answer.
pub(crate) async fn ask(
    gate: &Gate,
    target: &Target,
    task: Task,
) -> Result<Option<Answer>, Trouble> {
    let Some((node, taints)) = read(gate, target).await? else { return Ok(None) };
    let ready = convert::conditions(&node.status.conditions).status(ConditionKind::Ready);
    let asked = gate.now();
    let word = if task == Task::Fate && !node_health::cloud::must_ask(ready) {
        Word::NotAsked
    } else {
        question(gate, &node).await?.map_or(Word::Gone, |found| Word::Found(Box::new(found)))
    };
    let answer = Answer { task, asked, provider_id: node.spec.provider_id.clone(), word };
    let plan = plan(&node, &taints, &answer, gate.now())?;
    Ok((!matches!(plan, Plan::Nothing)).then_some(answer))
}

/// Applies an answer, if it still applies.
pub(crate) async fn follow(
    gate: &Gate,
    target: &Target,
    answer: &Answer,
) -> Result<Outcome, Trouble> {
    let Some((node, taints)) = read(gate, target).await? else { return Ok(Outcome::Settled) };
    // The provider id changed: the answer was about another instance.
    if node.spec.provider_id != answer.provider_id {
        return Ok(Outcome::Settled);
    }
    match plan(&node, &taints, answer, gate.now())? {
        Plan::Nothing => Ok(Outcome::Settled),
        Plan::Taint(patch) => {
            let wall = gate.shared().clock.wall();
            let wanted = patch.apply(&taints);
            let version = &node.metadata.resource_version;
            let body = convert::taints_patch(version, &wanted, &taints, wall);
            send(gate, target, body, false).await?;
            Ok(Outcome::Changed)
        }
        Plan::Delete => delete(gate, target).await,
        Plan::Describe(description, list) => {
            describe_node(gate, target, (&node, &taints), (&description, list)).await
        }
        Plan::Addresses(list) => {
            let body = convert::addresses_patch(&node.metadata.resource_version, &list);
            send(gate, target, body, true).await?;
            Ok(Outcome::Changed)
        }
    }
}

/// The current node with its taints; none if it is gone, replaced, or does not parse.
async fn read(gate: &Gate, target: &Target) -> Result<Option<(Node, Vec<Taint>)>, Failure> {
    let Some(node) = gate.read_node(&target.name).await?.filter(|node| target.is(node)) else {
        return Ok(None);
    };
    let (taints, readable) = convert::taints(&node.spec.taints);
    Ok(readable.then_some((node, taints)))
}

async fn question(gate: &Gate, node: &Node) -> Result<Option<CloudInstance>, Trouble> {
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

fn plan(node: &Node, taints: &[Taint], answer: &Answer, now: Moment) -> Result<Plan, CloudProblem> {
    match (answer.task, &answer.word) {
        (Task::Fate, word) => {
            let ready = convert::conditions(&node.status.conditions).status(ConditionKind::Ready);
            let instance = match word {
                Word::NotAsked => Instance::NoAnswer,
                Word::Gone => Instance::Gone,
                Word::Found(found) => match found.state {
                    InstanceState::Running => Instance::Running,
                    InstanceState::ShutDown => Instance::ShutDown,
                    InstanceState::Unknown => Instance::Exists,
                },
            };
            Ok(match fate(ready, taints, instance, now) {
                Fate::Stays => Plan::Nothing,
                Fate::Taint(patch) => Plan::Taint(patch),
                Fate::Delete => Plan::Delete,
            })
        }
        (Task::Describe, Word::Found(found)) => {
            let (known, instance) = (convert::cloud_node(node), convert::instance_facts(found));
            let Some(description) = describe(&known, taints, &instance)? else {
                return Ok(Plan::Nothing);
            };
            let free = description.patch.apply(taints);
            let list = addresses(&known, &free, &instance)?;
            Ok(Plan::Describe(Box::new(description), list))
        }
        (Task::Addresses, Word::Found(found)) => {
            let (known, instance) = (convert::cloud_node(node), convert::instance_facts(found));
            Ok(addresses(&known, taints, &instance)?.map_or(Plan::Nothing, Plan::Addresses))
        }
        // Deleting a node without an instance is decided by the other kind of query.
        (Task::Describe | Task::Addresses, Word::NotAsked | Word::Gone) => Ok(Plan::Nothing),
    }
}

async fn delete(gate: &Gate, target: &Target) -> Result<Outcome, Trouble> {
    let component = "cloud-node-lifecycle-controller";
    let event = NodeEvent::Deleting;
    let about = About::target(target);
    let events = &gate.shared().events;
    let message = event.message(&target.name);
    info!(node = &*target.name, "Deleting a node that the cloud does not have");
    events.tell(about.clone(), Said::normal(component, event.reason(), message));
    let deletion = Deletion { uid: Some(target.uid.to_string()), ..Deletion::default() };
    let path = ObjectPath::node(&target.name);
    match gate.pass("nodes", gate.api().delete(&path, deletion)).await {
        Ok(()) => Ok(Outcome::Changed),
        Err(failure) if failure.is_gone() || failure.is_conflict() => Ok(Outcome::Settled),
        Err(failure) => {
            let message = format!("Failed deleting node {}: {failure}", target.name);
            events.tell(about, Said::warning(component, "DeletingNodeFailed", message));
            Err(failure.into())
        }
    }
}

async fn describe_node(
    gate: &Gate,
    target: &Target,
    (node, taints): (&Node, &[Taint]),
    (description, list): (&Description, Option<Vec<NodeAddress>>),
) -> Result<Outcome, Trouble> {
    if !description.refused_labels.is_empty() {
        let labels = description.refused_labels.join(", ");
        warn!(node = &*target.name, labels, "The cloud may not set these labels");
    }
    // Addresses first: the taint says that they are not set yet.
    let mut version = node.metadata.resource_version.clone();
    if let Some(list) = list {
        version = send(gate, target, convert::addresses_patch(&version, &list), true).await?;
    }
    let wall = gate.shared().clock.wall();
    let free = description.patch.apply(taints);
    let body = convert::taints_patch(&version, &free, taints, wall);
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
    gate.shared().events.tell(About::target(target), said);
    Ok(Outcome::Changed)
}

/// Patches the node; returns its new version.
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
