//! The status in the API server: what of the planned status is written there, and as which patch.
//!
//! Rules: conditions of other components are kept; times of what has not changed are kept; a
//! terminal phase is written only once nothing of the pod can run any more; a terminal phase in the
//! API server is never left. A patch holds only what differs, and the pod's UID, so that a
//! successor of the same name is never written to.
//!
//! upstream: pkg/kubelet/status/status_manager.go (mergePodStatus), pkg/util/pod/pod.go

use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{AddressEntry, ConditionStatus, PodCondition, PodStatus};
use serde_json::{Map, Value, json};

use crate::status_text::condition;

#[cfg(test)]
mod tests;

/// The condition types that the node owns.
const OWNED: &[&str] = &[
    condition::SCHEDULED,
    condition::READY,
    condition::INITIALIZED,
    condition::CONTAINERS_READY,
    condition::READY_TO_START,
    condition::ALL_RESTARTING,
];

/// The conditions that other components set, with `DisruptionTarget`, which the node shares.
pub fn external_conditions(status: &PodStatus) -> Vec<PodCondition> {
    let all = status.conditions.iter();
    all.filter(|condition| !OWNED.contains(&&*condition.kind)).cloned().collect()
}

/// The status to write over `api`. `may_run`: a container of the pod may still run.
pub fn merged(api: &PodStatus, planned: &PodStatus, may_run: bool) -> PodStatus {
    let is_ending = !api.is_terminal() && planned.is_terminal();
    let mut status = PodStatus {
        observed_generation: api.observed_generation.max(planned.observed_generation),
        start_time: api.start_time.or(planned.start_time),
        conditions: conditions(api, planned, is_ending && !may_run),
        ..planned.clone()
    };
    let keeps_phase = (is_ending && may_run) || api.is_terminal();
    if keeps_phase {
        status.phase = api.phase.clone();
        status.reason.clone_from(&api.reason);
        status.message.clone_from(&api.message);
    }
    if status.is_terminal() {
        let reason = match status.phase {
            PodPhase::Succeeded => "PodCompleted",
            _ => "PodFailed",
        };
        for condition in &mut status.conditions {
            let is_readiness =
                [condition::READY, condition::CONTAINERS_READY].contains(&&*condition.kind);
            if is_readiness && condition.status == ConditionStatus::True {
                condition.status = ConditionStatus::False;
                condition.reason = reason.into();
                condition.message = Box::default();
            }
        }
    }
    status
}

fn conditions(api: &PodStatus, planned: &PodStatus, may_disrupt: bool) -> Vec<PodCondition> {
    let mut conditions = external_conditions(api);
    for planned in &planned.conditions {
        let known = api.condition(&planned.kind);
        if OWNED.contains(&&*planned.kind) {
            conditions.push(with_known_time(planned, known));
        } else if &*planned.kind == condition::DISRUPTION_TARGET && may_disrupt {
            conditions.retain(|each| each.kind != planned.kind);
            conditions.push(with_known_time(planned, known));
        }
    }
    conditions
}

/// The time of a transition stays while the status does.
fn with_known_time(planned: &PodCondition, known: Option<&PodCondition>) -> PodCondition {
    let known = known.filter(|known| known.status == planned.status);
    let time = known.and_then(|known| known.last_transition_time);
    PodCondition { last_transition_time: time.or(planned.last_transition_time), ..planned.clone() }
}

/// The strategic merge patch of `/status` that turns `api` into `desired`; none where they are
/// equal.
pub fn status_patch(uid: &str, api: &PodStatus, desired: &PodStatus) -> Option<Value> {
    let (before, after) = (object(api), object(desired));
    let mut patch = Map::new();
    for field in before.keys().chain(after.keys()) {
        let merges_by_key = matches!(field.as_str(), "conditions" | "podIPs" | "hostIPs");
        if merges_by_key || patch.contains_key(field) {
            continue;
        }
        if let Some(change) = difference(before.get(field), after.get(field)) {
            patch.insert(field.clone(), change);
        }
    }
    put_conditions(&mut patch, &api.conditions, &desired.conditions);
    put_addresses(&mut patch, "podIPs", &api.pod_ips, &desired.pod_ips);
    put_addresses(&mut patch, "hostIPs", &api.host_ips, &desired.host_ips);
    (!patch.is_empty()).then(|| json!({ "metadata": { "uid": uid }, "status": patch }))
}

fn object(status: &PodStatus) -> Map<String, Value> {
    match json!(status) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Of maps what differs; of anything else the new value. Null removes.
fn difference(before: Option<&Value>, after: Option<&Value>) -> Option<Value> {
    match (before, after) {
        (before, after) if before == after => None,
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let mut changes = Map::new();
            for field in before.keys().chain(after.keys()) {
                if let Some(change) = difference(before.get(field), after.get(field)) {
                    changes.insert(field.clone(), change);
                }
            }
            Some(Value::Object(changes))
        }
        (_, after) => Some(after.cloned().unwrap_or(Value::Null)),
    }
}

fn put_conditions(patch: &mut Map<String, Value>, before: &[PodCondition], after: &[PodCondition]) {
    let mut changes = Vec::new();
    for condition in after {
        let known = before.iter().find(|known| known.kind == condition.kind);
        let Some(mut change) =
            difference(known.map(|known| json!(known)).as_ref(), Some(&json!(condition)))
        else {
            continue;
        };
        change["type"] = json!(condition.kind);
        changes.push(change);
    }
    for gone in before.iter().filter(|known| !after.iter().any(|each| each.kind == known.kind)) {
        changes.push(json!({ "$patch": "delete", "type": gone.kind }));
    }
    if changes.is_empty() {
        return;
    }
    let order = after.iter().map(|condition| json!({ "type": condition.kind }));
    patch.insert("$setElementOrder/conditions".to_owned(), order.collect());
    patch.insert("conditions".to_owned(), Value::Array(changes));
}

fn put_addresses(
    patch: &mut Map<String, Value>,
    field: &str,
    before: &[AddressEntry],
    after: &[AddressEntry],
) {
    if before == after {
        return;
    }
    let gone = before.iter().filter(|entry| !after.contains(entry));
    let gone = gone.map(|entry| json!({ "$patch": "delete", "ip": entry.ip }));
    let added = after.iter().filter(|entry| !before.contains(entry));
    let added = added.map(|entry| json!({ "ip": entry.ip }));
    let order = after.iter().map(|entry| json!({ "ip": entry.ip }));
    patch.insert(format!("$setElementOrder/{field}"), order.collect());
    patch.insert(field.to_owned(), added.chain(gone).collect());
}
