//! Writes to pods: not ready, eviction, garbage collection.
//!
//! Rule: every write names the pod's UID, so a new pod of the same name is safe. Before pods of a
//! node are evicted or deleted, the node's live state is read once, and each pod is evaluated by
//! it: what no longer applies is not done. upstream: nodelifecycle, tainteviction, podgc

use node_health::Moment;
use node_health::health::POD_EVENT;
use node_health::no_execute::{
    DELETION_BY_TAINT, DisruptionTarget, EVENT_REASON, NodeThreats, PodFacts, Threat,
    deletion_message, judge,
};
use node_health::pod_cleanup::{DELETION_BY_CLEANUP, Phase, Why};
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind};
use ports::cluster_objects::PodCondition;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing::info;

use super::{Done, Leaving, PodFate, PodTarget, Target};
use crate::convert;
use crate::crash_points::reached;
use crate::events::{About, Said};
use crate::gate::{Failure, Gate};

/// How many pods of one node are handled at once. No more go into one write: pods in flight are not
/// evaluated again, and a node may come back meanwhile.
pub(crate) const TOGETHER: usize = 8;

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
) -> Vec<(PodTarget, Result<(), Failure>)>
where
    Task: Future<Output = (PodTarget, Result<(), Failure>)> + Send + 'static,
{
    let mut running = JoinSet::new();
    for pod in pods {
        running.spawn(task(pod));
    }
    // The caller expects one outcome per pod, so a panic is propagated.
    running.join_all().await
}

/// A pod that is gone is not an error.
fn gone_is_well(outcome: Result<(), Failure>) -> Result<(), Failure> {
    match outcome {
        Err(failure) if failure.is_gone() => Ok(()),
        other => other,
    }
}

/// Marks pods as not ready because their node is.
pub(crate) async fn mark(gate: &Gate, target: Target, pods: Vec<PodTarget>, whole: bool) -> Done {
    let outcomes = for_each(pods, |pod| {
        let gate = gate.clone();
        async move {
            let outcome = gone_is_well(mark_one(&gate, &pod).await);
            (pod, outcome)
        }
    })
    .await;
    let failed = |(pod, outcome): (PodTarget, Result<(), Failure>)| Some((pod, outcome.err()?));
    Done::Marked { target, failures: outcomes.into_iter().filter_map(failed).collect(), whole }
}

/// Writes nothing to another version of the pod: its kubelet may be back and have reported it
/// ready. What follows is decided again.
async fn mark_one(gate: &Gate, pod: &PodTarget) -> Result<(), Failure> {
    let wall = gate.shared().clock.wall().to_seconds_text();
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": wall});
    let mut metadata = json!({"uid": pod.uid.to_string()});
    if pod.version > 0 {
        metadata["resourceVersion"] = pod.version.to_string().into();
    }
    let body = json!({"metadata": metadata, "status": {"conditions": [condition]}});
    let patch = status_patch(body.to_string().into_bytes());
    gate.pass("pods", gate.api().patch(&path(pod), patch)).await?;
    reached("pod-marked");
    let (reason, message) = POD_EVENT;
    let said = Said::warning("node-controller", reason, message.to_owned());
    gate.shared().events.tell(About::pod(pod), said);
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
    async fn read(gate: &Gate, pod: &PodTarget) -> Result<Option<Self>, Failure> {
        let stored = match gate.read(&path(pod)).await {
            Ok(stored) => stored,
            Err(failure) if failure.is_gone() => return Ok(None),
            Err(failure) => return Err(failure),
        };
        if crate::uid::Uid::new(&stored.uid) != pod.uid {
            return Ok(None);
        }
        let unreadable = |error| Failure::Unreadable(format!("pod {}: {error}", pod.full_name()));
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
    async fn patch(&self, gate: &Gate, pod: &PodTarget, status: &Value) -> Result<(), Failure> {
        let body = convert::pod_status_patch(&pod.uid, &self.version, status);
        gate.pass("pods", gate.api().patch(&path(pod), status_patch(body))).await.map(|_| ())
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

impl Leaving {
    /// Whether these taints evict it now.
    fn has_to_go(&self, threats: &[Threat], comparisons: bool, now: Moment) -> bool {
        let facts = PodFacts {
            pod: self.pod.pod,
            tolerations: &self.tolerations,
            bound: self.bound,
            terminating: false,
        };
        judge(threats, &facts, comparisons).has_to_go(now)
    }
}

/// Evicts pods from a node whose current taints still do so.
pub(crate) async fn evict(
    gate: &Gate,
    target: Target,
    pods: Vec<Leaving>,
    known: &NodeThreats,
) -> Done {
    let all = |pods: Vec<Leaving>, fate: &PodFate| {
        pods.into_iter().map(|leaving| (leaving.pod, fate.clone())).collect::<Vec<_>>()
    };
    let node = match gate.read_node(&target.name).await {
        Err(failure) => {
            return Done::Evicted {
                target,
                fates: all(pods, &PodFate::Failed(failure)),
                fresh: None,
            };
        }
        Ok(node) => node.map(Box::new),
    };
    let threats = match node.as_ref().filter(|node| target.is(node)) {
        Some(node) => {
            let ready = convert::conditions(&node.status.conditions).is_ready();
            known.seen(gate.now(), ready, &convert::taints(&node.spec.taints).0)
        }
        None => Vec::new(),
    };
    let (now, comparisons) = (gate.now(), gate.shared().checked.config.toleration_comparisons);
    let goes = |leaving: &Leaving| leaving.has_to_go(&threats, comparisons, now);
    let (go, stay): (Vec<_>, Vec<_>) = pods.into_iter().partition(goes);
    let outcomes = for_each(go, |Leaving { pod, due, .. }| {
        let gate = gate.clone();
        async move {
            let outcome = gone_is_well(evict_one(&gate, &pod, due).await);
            (pod, outcome)
        }
    })
    .await;
    let fate = |(pod, outcome): (PodTarget, Result<(), Failure>)| {
        (pod, outcome.map_or_else(PodFate::Failed, |()| PodFate::Gone))
    };
    let mut fates: Vec<_> = outcomes.into_iter().map(fate).collect();
    let fresh = (!stay.is_empty()).then_some(node);
    fates.extend(all(stay, &PodFate::Stays));
    Done::Evicted { target, fates, fresh }
}

async fn evict_one(gate: &Gate, pod: &PodTarget, due: Moment) -> Result<(), Failure> {
    let shared = gate.shared();
    let Some(live) = LivePod::read(gate, pod).await? else { return Ok(()) };
    if live.terminating {
        return Ok(());
    }
    info!(pod = pod.full_name(), "Evicting a pod because of its node's taints");
    let message = deletion_message(&pod.full_name());
    let said = Said::normal("taint-eviction-controller", EVENT_REASON, message);
    shared.events.tell(About::pod(pod), said);
    let wall = shared.clock.wall().to_seconds_text();
    if let Some(condition) = live.disruption(DELETION_BY_TAINT, wall) {
        live.patch(gate, pod, &json!({"conditions": [condition]})).await?;
        reached("disruption-written");
    }
    let deletion = Deletion { uid: Some(pod.uid.to_string()), ..Deletion::default() };
    gate.pass("pods", gate.api().delete(&path(pod), deletion)).await?;
    reached("pod-deleted");
    shared.counters.pod_deleted(gate.now().since(due));
    Ok(())
}

/// Deletes a pod without grace, after setting it to Failed unless it had terminated. Returns
/// whether the reason still applied.
pub(crate) async fn clear(
    gate: &Gate,
    pod: &PodTarget,
    why: Why,
    node: Option<Box<str>>,
    (fail_first, condition): (bool, bool),
) -> Result<bool, Failure> {
    let holds = match why {
        Why::OutOfService => still_out_of_service(gate, node.as_deref()).await?,
        Why::Orphaned => still_without_node(gate, node.as_deref()).await?,
        Why::Terminated | Why::Unscheduled => true,
    };
    if !holds {
        return Ok(false);
    }
    let mut fails = None;
    if fail_first || why == Why::Unscheduled {
        let Some(live) = LivePod::read(gate, pod).await? else { return Ok(false) };
        // Bound meanwhile: its kubelet will end it.
        if why == Why::Unscheduled && (!live.terminating || !live.node.is_empty()) {
            return Ok(false);
        }
        // A pod that terminated meanwhile keeps its phase.
        fails = (fail_first && live.phase.must_be_failed_first()).then_some(live);
    }
    info!(pod = pod.full_name(), why = why.label(), "Deleting a pod in garbage collection");
    if let Some(live) = fails {
        let mut status = json!({"phase": "Failed"});
        if live.generation > 0 {
            status["observedGeneration"] = live.generation.into();
        }
        let wall = gate.shared().clock.wall().to_seconds_text();
        if let Some(disruption) = live.disruption(DELETION_BY_CLEANUP, wall).filter(|_| condition) {
            status["conditions"] = json!([disruption]);
        }
        gone_is_well(live.patch(gate, pod, &status).await)?;
    }
    let deletion =
        Deletion { uid: Some(pod.uid.to_string()), grace_seconds: Some(0), ..Deletion::default() };
    gone_is_well(gate.pass("pods", gate.api().delete(&path(pod), deletion)).await)?;
    Ok(true)
}

/// A node of this name may have been created since the last read: then its kubelet has the pod.
async fn still_without_node(gate: &Gate, node: Option<&str>) -> Result<bool, Failure> {
    let Some(name) = node else { return Ok(false) };
    Ok(!super::node::exists(gate, name).await?)
}

/// Volumes may be detached after this, so the live node must have the taint too.
async fn still_out_of_service(gate: &Gate, node: Option<&str>) -> Result<bool, Failure> {
    let Some(name) = node else { return Ok(false) };
    let Some(node) = gate.read_node(name).await? else { return Ok(false) };
    let ready = convert::conditions(&node.status.conditions).is_ready();
    let key = node_health::TaintKey::OutOfService;
    Ok(!ready && node.spec.taints.iter().any(|taint| taint.key == key.as_str()))
}
