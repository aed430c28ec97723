//! Writes to nodes: conditions, taints, labels, pod CIDRs, and the fence before those.
//!
//! Rule: each names the resource version that it was decided on. After a conflict the node is read,
//! so that the next decision does not wait for the watch.

use node_health::health::ConditionWrite;
use node_health::lifecycle::WriteKind;
use node_health::{Stamp, Taint};
use ports::cluster_api::{ObjectPath, Patch, PatchKind, StoredObject};
use ports::cluster_objects::Node;
use ports::{ApiTime, ClusterApiError};
use tracing::debug;

use super::{Confirm, Done, Target};
use crate::convert;
use crate::crash_points::reached;
use crate::gate::{Failure, Gate};

/// The namespace of kubelets' leases.
pub(crate) const LEASES: &str = "kube-node-lease";

fn patch(kind: PatchKind, status: bool, body: Vec<u8>) -> Patch {
    Patch { kind, subresource: status.then_some("status".into()), body }
}

/// Patches a node, guarded by its UID.
async fn send(
    gate: &Gate,
    target: &Target,
    patch: Patch,
) -> (Result<StoredObject, Failure>, Option<Box<Node>>) {
    let path = ObjectPath::node(&target.name);
    let outcome = gate.pass("nodes", gate.api().patch(&path, patch)).await;
    let fresh = match &outcome {
        Err(failure) if failure.is_conflict() => read_again(gate, target).await,
        _ => None,
    };
    (outcome, fresh)
}

/// The current node; none if it could not be read, or was replaced.
async fn read_again(gate: &Gate, target: &Target) -> Option<Box<Node>> {
    match gate.read_node(&target.name).await {
        Ok(node) => node.filter(|it| target.is(it)).map(Box::new),
        Err(failure) => {
            debug!(node = &*target.name, err = %failure, "Failed to reread a node");
            None
        }
    }
}

impl Target {
    pub(crate) fn is(&self, node: &Node) -> bool {
        crate::uid::Uid::new(&node.metadata.uid) == self.uid
    }
}

fn version(stored: &StoredObject) -> u64 {
    stored.resource_version.parse().unwrap_or(0)
}

async fn write(gate: &Gate, target: Target, kind: WriteKind, patch: Patch, gave_up: bool) -> Done {
    let (outcome, fresh) = send(gate, &target, patch).await;
    match kind {
        WriteKind::Conditions if outcome.is_ok() => reached("condition-written"),
        WriteKind::Taints if outcome.is_ok() => reached("taint-written"),
        _ => {}
    }
    let gave_up = gave_up && outcome.is_ok();
    Done::Node { target, kind, outcome: outcome.map(|it| version(&it)), fresh, gave_up }
}

pub(crate) async fn conditions(
    gate: &Gate,
    target: Target,
    writes: &[ConditionWrite],
    confirm: Option<Confirm>,
) -> Done {
    if let Some(confirm) = confirm {
        match renewed(gate, &target.name).await {
            Ok(Some(renewed)) if confirm.renewed != Some(renewed) => {
                return Done::Alive { target, renewed };
            }
            Ok(_) => {}
            Err(failure) => {
                let kind = WriteKind::Conditions;
                return Done::Node {
                    target,
                    kind,
                    outcome: Err(failure),
                    fresh: None,
                    gave_up: false,
                };
            }
        }
    }
    let body = convert::conditions_patch(&target.version, writes, gate.shared().clock.wall());
    let patch = patch(PatchKind::StrategicMerge, true, body);
    write(gate, target, WriteKind::Conditions, patch, false).await
}

/// When a node's lease was last renewed, on its own clock; none if it has none.
pub(crate) async fn renewed(gate: &Gate, node: &str) -> Result<Option<Stamp>, Failure> {
    match gate.look(&ObjectPath::lease(LEASES, node)).await {
        Ok(stored) => {
            // An unparsable lease counts as no renewal; it must not block the proof for the others.
            let lease: ports::cluster_objects::Lease =
                serde_json::from_slice(&stored.json).unwrap_or_default();
            Ok(lease.spec.renew_time.map(|time| Stamp::from_nanos(time.nanos())))
        }
        Err(failure) if failure.is_gone() => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(crate) async fn taints(
    gate: &Gate,
    target: Target,
    (wanted, known, wall): (&[Taint], &[Taint], ApiTime),
    gives_up: bool,
) -> Done {
    let body = convert::taints_patch(&target.version, wanted, known, wall);
    let patch = patch(PatchKind::Merge, false, body);
    write(gate, target, WriteKind::Taints, patch, gives_up).await
}

pub(crate) async fn labels(gate: &Gate, target: Target, labels: &[(Box<str>, Box<str>)]) -> Done {
    let patch = patch(PatchKind::Merge, false, convert::labels_patch(&target.version, labels));
    write(gate, target, WriteKind::Labels, patch, false).await
}

/// Writes a node's pod CIDRs, which can be set only once. Without a response the node is read at
/// once.
pub(crate) async fn range(gate: &Gate, target: Target, ranges: &[String]) -> Done {
    let body = convert::ranges_patch(&target.version, ranges);
    let (outcome, mut fresh) = send(gate, &target, patch(PatchKind::Merge, false, body)).await;
    if outcome.is_ok() {
        reached("range-written");
    }
    if fresh.is_none() && outcome.as_ref().is_err_and(|failure| !failure.is_refusal()) {
        fresh = read_again(gate, &target).await;
    }
    Done::Range { target, outcome: outcome.map(|_| ()), fresh }
}

/// Makes a new version of a node. If the response is lost or unparsable, the node is read at once
/// to know the result.
pub(crate) async fn touch(gate: &Gate, target: Target, value: &str) -> Done {
    let body = convert::fence_patch(&target.version, value);
    let (outcome, mut fresh) = send(gate, &target, patch(PatchKind::Merge, false, body)).await;
    if outcome.is_ok() {
        reached("node-touched");
    }
    let mut outcome = outcome.map(|stored| {
        fresh = serde_json::from_slice(&stored.json).ok().map(Box::new);
        stored.resource_version != target.version
    });
    if fresh.is_none() && outcome.as_ref().is_err_and(|failure| !failure.is_gone()) {
        fresh = read_again(gate, &target).await;
    }
    let wears =
        |node: &Node| node.metadata.annotations.get(convert::FENCE).is_some_and(|it| it == value);
    if fresh.as_deref().is_some_and(wears) {
        outcome = Ok(true);
    }
    Done::Touched { target, outcome, fresh }
}

/// Reads nodes that pods name and that no list has shown.
pub(crate) async fn look_for(gate: &Gate, names: Vec<Box<str>>) -> Done {
    let mut answers = Vec::new();
    for name in names {
        let answer = exists(gate, &name).await;
        answers.push((name, answer));
    }
    Done::LookedFor { answers }
}

/// Whether the API server has a node of this name.
pub(crate) async fn exists(gate: &Gate, name: &str) -> Result<bool, Failure> {
    match gate.read(&ObjectPath::node(name)).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_gone() => Ok(false),
        // A name that no node can have is refused; that is as certain as not found.
        Err(Failure::Api(ClusterApiError::Refused { status: 404, .. })) => Ok(false),
        Err(failure) => Err(failure),
    }
}
