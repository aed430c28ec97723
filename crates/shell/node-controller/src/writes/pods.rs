//! Writes to pods: not ready, eviction, garbage collection.
//!
//! Rule: every write names the pod's UID, so a new pod of the same name is safe. Before pods of a
//! node are evicted or deleted, the node's live state is read once, and each pod is evaluated by
//! it: what no longer applies is not done. upstream: nodelifecycle, tainteviction, podgc

use node_health::ControllerTime;
use node_health::health::POD_EVENT;
use node_health::no_execute::{
    BoundPod, DELETION_BY_TAINT, DisruptionTarget, EVENT_REASON, NoExecuteTaint,
    NodeNoExecuteTaints, decide_eviction, deletion_message,
};
use node_health::pod_cleanup::{CleanupReason, DELETION_BY_CLEANUP, Phase};
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind};
use ports::cluster_objects::PodCondition;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing::info;

use super::{EvictionResult, NodeTarget, PodTarget, PodToEvict, WriteResult};
use crate::api_gate::{ApiGate, RequestError};
use crate::convert;
use crate::crash_points::reached;
use crate::events::{EventObject, EventText};

/// How many pods of one node are handled at once. No more go into one write: pods in flight are not
/// evaluated again, and a node may come back meanwhile.
pub(crate) const PODS_PER_WRITE: usize = 8;

fn path(pod: &PodTarget) -> ObjectPath {
    ObjectPath::pod(&pod.namespace, &pod.name)
}

fn status_patch(body: Vec<u8>) -> Patch {
    Patch { kind: PatchKind::StrategicMerge, subresource: Some("status".into()), body }
}

/// Runs a task for each pod, concurrently.
async fn for_each<T, Task>(
    pods: Vec<T>,
    task: impl Fn(T) -> Task,
) -> Vec<(PodTarget, Result<(), RequestError>)>
where
    Task: Future<Output = (PodTarget, Result<(), RequestError>)> + Send + 'static,
{
    let mut running = JoinSet::new();
    for pod in pods {
        running.spawn(task(pod));
    }
    // The caller expects one outcome per pod, so a panic is propagated.
    running.join_all().await
}

/// A pod that is gone is not an error.
fn ignore_not_found(outcome: Result<(), RequestError>) -> Result<(), RequestError> {
    match outcome {
        Err(failure) if failure.is_gone() => Ok(()),
        other => other,
    }
}

/// Marks pods as not ready because their node is.
pub(crate) async fn mark(
    api_gate: &ApiGate,
    target: NodeTarget,
    pods: Vec<PodTarget>,
    whole: bool,
) -> WriteResult {
    let outcomes = for_each(pods, |pod| {
        let api_gate = api_gate.clone();
        async move {
            let outcome = ignore_not_found(mark_one(&api_gate, &pod).await);
            (pod, outcome)
        }
    })
    .await;
    let failed =
        |(pod, outcome): (PodTarget, Result<(), RequestError>)| Some((pod, outcome.err()?));
    WriteResult::Marked {
        target,
        failures: outcomes.into_iter().filter_map(failed).collect(),
        whole,
    }
}

/// Writes nothing to another version of the pod: its kubelet may be back and have reported it
/// ready. What follows is decided again.
async fn mark_one(api_gate: &ApiGate, pod: &PodTarget) -> Result<(), RequestError> {
    let wall = api_gate.shared().clock.wall().to_seconds_text();
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": wall});
    let mut metadata = json!({"uid": pod.uid.to_string()});
    if pod.version > 0 {
        metadata["resourceVersion"] = pod.version.to_string().into();
    }
    let body = json!({"metadata": metadata, "status": {"conditions": [condition]}});
    let patch = status_patch(body.to_string().into_bytes());
    api_gate.send_guarded("pods", api_gate.api().patch(&path(pod), patch)).await?;
    reached("pod-marked");
    let (reason, message) = POD_EVENT;
    let event_text = EventText::warning("node-controller", reason, message.to_owned());
    api_gate.shared().events.record(EventObject::pod(pod), event_text);
    Ok(())
}

/// A pod as read now.
struct LivePod {
    version: String,
    generation: i64,
    terminating: bool,
    node: String,
    phase: Phase,
    conditions: Vec<PodCondition>,
}

impl LivePod {
    /// None if it is gone, or replaced by now.
    async fn read(api_gate: &ApiGate, pod: &PodTarget) -> Result<Option<Self>, RequestError> {
        let stored = match api_gate.read(&path(pod)).await {
            Ok(stored) => stored,
            Err(failure) if failure.is_gone() => return Ok(None),
            Err(failure) => return Err(failure),
        };
        if crate::uid::Uid::new(&stored.uid) != pod.uid {
            return Ok(None);
        }
        let unreadable =
            |error| RequestError::Unreadable(format!("pod {}: {error}", pod.full_name()));
        let json: Value = serde_json::from_slice(&stored.json).map_err(unreadable)?;
        let conditions = json.pointer("/status/conditions").filter(|it| !it.is_null());
        let conditions = conditions.cloned().unwrap_or_else(|| json!([]));
        let conditions = serde_json::from_value(conditions).map_err(unreadable)?;
        let text = |at: &str| json.pointer(at).and_then(Value::as_str).unwrap_or("").to_owned();
        Ok(Some(Self {
            version: stored.resource_version,
            generation: json.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0),
            terminating: json
                .pointer("/metadata/deletionTimestamp")
                .is_some_and(|it| !it.is_null()),
            node: text("/spec/nodeName"),
            phase: Phase::parse(&text("/status/phase")),
            conditions,
        }))
    }

    /// Patches its status, guarded by the version read: its kubelet may have reported its end
    /// since.
    async fn patch(
        &self,
        api_gate: &ApiGate,
        pod: &PodTarget,
        status: &Value,
    ) -> Result<(), RequestError> {
        let body = convert::pod_status_patch(&pod.uid, &self.version, status);
        api_gate
            .send_guarded("pods", api_gate.api().patch(&path(pod), status_patch(body)))
            .await
            .map(|_| ())
    }

    /// The condition to write; none if the pod has it.
    fn disruption(&self, target: DisruptionTarget, wall: String) -> Option<Value> {
        let known = self.conditions.iter().find(|it| it.kind == "DisruptionTarget");
        let since = match known {
            Some(known) if known.status == "True" => {
                if known.reason == target.reason && known.message == target.message {
                    return None;
                }
                known.last_transition_time.map_or(wall, ports::ApiTime::to_seconds_text)
            }
            _ => wall,
        };
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": target.reason,
            "message": target.message,
            "lastTransitionTime": since,
        });
        if self.generation > 0 {
            condition["observedGeneration"] = self.generation.into();
        }
        Some(condition)
    }
}

impl PodToEvict {
    /// Whether these taints evict it now.
    fn has_to_go(
        &self,
        no_execute_taints: &[NoExecuteTaint],
        comparisons: bool,
        now: ControllerTime,
    ) -> bool {
        let facts = BoundPod {
            pod: self.pod.pod,
            tolerations: &self.tolerations,
            bound: self.bound,
            terminating: false,
        };
        decide_eviction(no_execute_taints, &facts, comparisons).is_eviction_due(now)
    }
}

/// Evicts pods from a node whose current taints still do so.
pub(crate) async fn evict(
    api_gate: &ApiGate,
    target: NodeTarget,
    pods: Vec<PodToEvict>,
    known: &NodeNoExecuteTaints,
) -> WriteResult {
    let all = |pods: Vec<PodToEvict>, result: &EvictionResult| {
        pods.into_iter().map(|leaving| (leaving.pod, result.clone())).collect::<Vec<_>>()
    };
    let node = match api_gate.read_node(&target.name).await {
        Err(failure) => {
            return WriteResult::Evicted {
                target,
                results: all(pods, &EvictionResult::Failed(failure)),
                fresh: None,
            };
        }
        Ok(node) => node.map(Box::new),
    };
    let no_execute_taints = match node.as_ref().filter(|node| target.is(node)) {
        Some(node) => {
            let ready = convert::conditions(&node.status.conditions).is_ready();
            known.seen(api_gate.now(), ready, &convert::taints(&node.spec.taints).0)
        }
        None => Vec::new(),
    };
    let (now, comparisons) =
        (api_gate.now(), api_gate.shared().checked.config.toleration_comparisons);
    let goes = |leaving: &PodToEvict| leaving.has_to_go(&no_execute_taints, comparisons, now);
    let (go, stay): (Vec<_>, Vec<_>) = pods.into_iter().partition(goes);
    let outcomes = for_each(go, |PodToEvict { pod, due, .. }| {
        let api_gate = api_gate.clone();
        async move {
            let outcome = ignore_not_found(evict_one(&api_gate, &pod, due).await);
            (pod, outcome)
        }
    })
    .await;
    let result = |(pod, outcome): (PodTarget, Result<(), RequestError>)| {
        (pod, outcome.map_or_else(EvictionResult::Failed, |()| EvictionResult::Gone))
    };
    let mut results: Vec<_> = outcomes.into_iter().map(result).collect();
    let fresh = (!stay.is_empty()).then_some(node);
    results.extend(all(stay, &EvictionResult::Stays));
    WriteResult::Evicted { target, results, fresh }
}

async fn evict_one(
    api_gate: &ApiGate,
    pod: &PodTarget,
    due: ControllerTime,
) -> Result<(), RequestError> {
    let shared = api_gate.shared();
    let Some(live) = LivePod::read(api_gate, pod).await? else { return Ok(()) };
    if live.terminating {
        return Ok(());
    }
    info!(pod = pod.full_name(), "Evicting a pod because of its node's taints");
    let message = deletion_message(&pod.full_name());
    let event_text = EventText::normal("taint-eviction-controller", EVENT_REASON, message);
    shared.events.record(EventObject::pod(pod), event_text);
    let wall = shared.clock.wall().to_seconds_text();
    if let Some(condition) = live.disruption(DELETION_BY_TAINT, wall) {
        live.patch(api_gate, pod, &json!({"conditions": [condition]})).await?;
        reached("disruption-written");
    }
    let deletion = Deletion { uid: Some(pod.uid.to_string()), ..Deletion::default() };
    api_gate.send_guarded("pods", api_gate.api().delete(&path(pod), deletion)).await?;
    reached("pod-deleted");
    shared.counters.pod_deleted(api_gate.now().since(due));
    Ok(())
}

/// How a pod is garbage collected.
#[derive(Clone, Debug)]
pub(crate) struct PodClearing {
    pub(crate) why: CleanupReason,
    /// The node that the pod names, if any.
    pub(crate) node: Option<Box<str>>,
    /// Set the pod to Failed before it is deleted, unless it has terminated.
    pub(crate) mark_failed: bool,
    /// Add the condition DisruptionTarget with that.
    pub(crate) add_condition: bool,
}

/// Deletes a pod without grace, after setting it to Failed unless it had terminated. Returns
/// whether the reason still applied.
pub(crate) async fn clear(
    api_gate: &ApiGate,
    pod: &PodTarget,
    clearing: &PodClearing,
) -> Result<bool, RequestError> {
    let (why, node) = (clearing.why, clearing.node.as_deref());
    let holds = match why {
        CleanupReason::OutOfService => still_out_of_service(api_gate, node).await?,
        CleanupReason::Orphaned => still_without_node(api_gate, node).await?,
        CleanupReason::Terminated | CleanupReason::Unscheduled => true,
    };
    if !holds {
        return Ok(false);
    }
    let mut fails = None;
    if clearing.mark_failed || why == CleanupReason::Unscheduled {
        let Some(live) = LivePod::read(api_gate, pod).await? else { return Ok(false) };
        // Bound meanwhile: its kubelet will end it.
        if why == CleanupReason::Unscheduled && (!live.terminating || !live.node.is_empty()) {
            return Ok(false);
        }
        // A pod that terminated meanwhile keeps its phase.
        fails = (clearing.mark_failed && live.phase.must_be_failed_first()).then_some(live);
    }
    info!(pod = pod.full_name(), why = why.label(), "Deleting a pod in garbage collection");
    if let Some(live) = fails {
        let mut status = json!({"phase": "Failed"});
        if live.generation > 0 {
            status["observedGeneration"] = live.generation.into();
        }
        let wall = api_gate.shared().clock.wall().to_seconds_text();
        let disruption = live.disruption(DELETION_BY_CLEANUP, wall);
        if let Some(disruption) = disruption.filter(|_| clearing.add_condition) {
            status["conditions"] = json!([disruption]);
        }
        ignore_not_found(live.patch(api_gate, pod, &status).await)?;
    }
    let deletion =
        Deletion { uid: Some(pod.uid.to_string()), grace_seconds: Some(0), ..Deletion::default() };
    ignore_not_found(
        api_gate.send_guarded("pods", api_gate.api().delete(&path(pod), deletion)).await,
    )?;
    Ok(true)
}

/// A node of this name may have been created since the last read: then its kubelet has the pod.
async fn still_without_node(api_gate: &ApiGate, node: Option<&str>) -> Result<bool, RequestError> {
    let Some(name) = node else { return Ok(false) };
    Ok(!super::node::exists(api_gate, name).await?)
}

/// Volumes may be detached after this, so the live node must have the taint too.
async fn still_out_of_service(
    api_gate: &ApiGate,
    node: Option<&str>,
) -> Result<bool, RequestError> {
    let Some(name) = node else { return Ok(false) };
    let Some(node) = api_gate.read_node(name).await? else { return Ok(false) };
    let ready = convert::conditions(&node.status.conditions).is_ready();
    let key = node_health::TaintKey::OutOfService;
    Ok(!ready && node.spec.taints.iter().any(|taint| taint.key == key.as_str()))
}
