//! Writes to nodes: conditions, taints, labels, pod CIDRs, and the fence before those.
//!
//! Rule: each names the resource version that it was decided on. After a conflict the node is read,
//! so that the next decision does not wait for the watch.

use node_health::health::ConditionWrite;
use node_health::lifecycle::WriteKind;
use node_health::{RemoteTime, Taint};
use ports::cluster_api::{ObjectPath, Patch, PatchKind, StoredObject};
use ports::cluster_objects::Node;
use ports::{ApiTime, ClusterApiError};
use tracing::debug;

use super::{Confirm, NodeTarget, WriteResult};
use crate::api_gate::{ApiGate, RequestError};
use crate::convert;
use crate::crash_points::reached;

/// The namespace of kubelets' leases.
pub(crate) const LEASES: &str = "kube-node-lease";

fn patch(kind: PatchKind, status: bool, body: Vec<u8>) -> Patch {
    Patch { kind, subresource: status.then_some("status".into()), body }
}

/// Patches a node, guarded by its UID.
async fn send(
    api_gate: &ApiGate,
    target: &NodeTarget,
    patch: Patch,
) -> (Result<StoredObject, RequestError>, Option<Box<Node>>) {
    let path = ObjectPath::node(&target.name);
    let outcome = api_gate.send_guarded("nodes", api_gate.api().patch(&path, patch)).await;
    let fresh = match &outcome {
        Err(failure) if failure.is_conflict() => read_again(api_gate, target).await,
        _ => None,
    };
    (outcome, fresh)
}

/// The current node; none if it could not be read, or was replaced.
async fn read_again(api_gate: &ApiGate, target: &NodeTarget) -> Option<Box<Node>> {
    match api_gate.read_node(&target.name).await {
        Ok(node) => node.filter(|it| target.is(it)).map(Box::new),
        Err(failure) => {
            debug!(node = &*target.name, err = %failure, "Failed to reread a node");
            None
        }
    }
}

impl NodeTarget {
    pub(crate) fn is(&self, node: &Node) -> bool {
        crate::uid::Uid::new(&node.metadata.uid) == self.uid
    }
}

fn version(stored: &StoredObject) -> u64 {
    stored.resource_version.parse().unwrap_or(0)
}

async fn write(
    api_gate: &ApiGate,
    target: NodeTarget,
    kind: WriteKind,
    patch: Patch,
    was_eviction: bool,
) -> WriteResult {
    let (outcome, fresh) = send(api_gate, &target, patch).await;
    match kind {
        WriteKind::Conditions if outcome.is_ok() => reached("condition-written"),
        WriteKind::Taints if outcome.is_ok() => reached("taint-written"),
        _ => {}
    }
    let was_eviction = was_eviction && outcome.is_ok();
    WriteResult::Node { target, kind, outcome: outcome.map(|it| version(&it)), fresh, was_eviction }
}

pub(crate) async fn conditions(
    api_gate: &ApiGate,
    target: NodeTarget,
    writes: &[ConditionWrite],
    confirm: Option<Confirm>,
) -> WriteResult {
    if let Some(confirm) = confirm {
        match renewed(api_gate, &target.name).await {
            Ok(Some(renewed)) if confirm.renewed != Some(renewed) => {
                return WriteResult::Alive { target, renewed };
            }
            Ok(_) => {}
            Err(failure) => {
                let kind = WriteKind::Conditions;
                return WriteResult::Node {
                    target,
                    kind,
                    outcome: Err(failure),
                    fresh: None,
                    was_eviction: false,
                };
            }
        }
    }
    let body = convert::conditions_patch(&target.version, writes, api_gate.shared().clock.wall());
    let patch = patch(PatchKind::StrategicMerge, true, body);
    write(api_gate, target, WriteKind::Conditions, patch, false).await
}

/// When a node's lease was last renewed, on its own clock; none if it has none.
pub(crate) async fn renewed(
    api_gate: &ApiGate,
    node: &str,
) -> Result<Option<RemoteTime>, RequestError> {
    match api_gate.read_urgent(&ObjectPath::lease(LEASES, node)).await {
        Ok(stored) => {
            // An unparsable lease counts as no renewal; it must not block the proof for the others.
            let lease: ports::cluster_objects::Lease =
                serde_json::from_slice(&stored.json).unwrap_or_default();
            Ok(lease.spec.renew_time.map(|time| RemoteTime::from_nanos(time.nanos())))
        }
        Err(failure) if failure.is_gone() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A change of a node's taints.
#[derive(Clone, Copy)]
pub(crate) struct TaintChange<'a> {
    pub(crate) wanted: &'a [Taint],
    /// The taints that it was decided on.
    pub(crate) known: &'a [Taint],
    /// `timeAdded` of new taints.
    pub(crate) added_at: ApiTime,
    pub(crate) is_eviction: bool,
}

pub(crate) async fn taints(
    api_gate: &ApiGate,
    target: NodeTarget,
    change: TaintChange<'_>,
) -> WriteResult {
    let TaintChange { wanted, known, added_at, is_eviction } = change;
    let body = convert::taints_patch(&target.version, wanted, known, added_at);
    let patch = patch(PatchKind::Merge, false, body);
    write(api_gate, target, WriteKind::Taints, patch, is_eviction).await
}

pub(crate) async fn labels(
    api_gate: &ApiGate,
    target: NodeTarget,
    labels: &[(Box<str>, Box<str>)],
) -> WriteResult {
    let patch = patch(PatchKind::Merge, false, convert::labels_patch(&target.version, labels));
    write(api_gate, target, WriteKind::Labels, patch, false).await
}

/// Writes a node's pod CIDRs, which can be set only once. Without a response the node is read at
/// once.
pub(crate) async fn range(
    api_gate: &ApiGate,
    target: NodeTarget,
    ranges: &[String],
) -> WriteResult {
    let body = convert::ranges_patch(&target.version, ranges);
    let (outcome, mut fresh) = send(api_gate, &target, patch(PatchKind::Merge, false, body)).await;
    if outcome.is_ok() {
        reached("range-written");
    }
    if fresh.is_none() && outcome.as_ref().is_err_and(|failure| !failure.is_rejection()) {
        fresh = read_again(api_gate, &target).await;
    }
    WriteResult::Range { target, outcome: outcome.map(|_| ()), fresh }
}

/// Makes a new version of a node. If the response is lost or unparsable, the node is read at once
/// to know the result.
pub(crate) async fn touch(api_gate: &ApiGate, target: NodeTarget, value: &str) -> WriteResult {
    let body = convert::fence_patch(&target.version, value);
    let (outcome, mut fresh) = send(api_gate, &target, patch(PatchKind::Merge, false, body)).await;
    if outcome.is_ok() {
        reached("node-touched");
    }
    let mut outcome = outcome.map(|stored| {
        fresh = serde_json::from_slice(&stored.json).ok().map(Box::new);
        stored.resource_version != target.version
    });
    if fresh.is_none() && outcome.as_ref().is_err_and(|failure| !failure.is_gone()) {
        fresh = read_again(api_gate, &target).await;
    }
    let wears =
        |node: &Node| node.metadata.annotations.get(convert::FENCE).is_some_and(|it| it == value);
    if fresh.as_deref().is_some_and(wears) {
        outcome = Ok(true);
    }
    WriteResult::Touched { target, outcome, fresh }
}

/// Reads nodes that pods name and that no list has shown.
pub(crate) async fn look_for(api_gate: &ApiGate, names: Vec<Box<str>>) -> WriteResult {
    let mut answers = Vec::new();
    for name in names {
        let answer = exists(api_gate, &name).await;
        answers.push((name, answer));
    }
    WriteResult::NodesLookedUp { answers }
}

/// Whether the API server has a node of this name.
pub(crate) async fn exists(api_gate: &ApiGate, name: &str) -> Result<bool, RequestError> {
    match api_gate.read(&ObjectPath::node(name)).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_gone() => Ok(false),
        // A name that no node can have is refused; that is as certain as not found.
        Err(RequestError::Api(ClusterApiError::Refused { status: 404, .. })) => Ok(false),
        Err(failure) => Err(failure),
    }
}
