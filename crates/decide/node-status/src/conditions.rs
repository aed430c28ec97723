//! The four conditions of a node, in the reference's words and order; Ready is the last of them.
//!
//! Rule: the time of transition changes with the status only; conditions of others stay where they
//! stand.
//!
//! upstream: pkg/kubelet/nodestatus/setters.go

use ports::ApiTime;
use ports::cluster_objects::NodeCondition;

use crate::capacity::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use crate::object::{FullNodeStatus, NodeSettings, NodeStatusEvent, NodeStatusInputs};

/// One condition of pressure: its type, then reason, message and event of each status.
struct PressureConditionText {
    kind: &'static str,
    under: [&'static str; 3],
    free: [&'static str; 3],
}

const MEMORY_PRESSURE: PressureConditionText = PressureConditionText {
    kind: "MemoryPressure",
    under: [
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
        "NodeHasInsufficientMemory",
    ],
    free: [
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
        "NodeHasSufficientMemory",
    ],
};

const DISK_PRESSURE: PressureConditionText = PressureConditionText {
    kind: "DiskPressure",
    under: ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
    free: ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
};

const PID_PRESSURE: PressureConditionText = PressureConditionText {
    kind: "PIDPressure",
    under: [
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
        "NodeHasInsufficientPID",
    ],
    free: [
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
        "NodeHasSufficientPID",
    ],
};

pub(crate) const READY: &str = "Ready";

/// Sets the conditions and returns the events that come with their changes.
pub(crate) fn fill(
    status: &mut FullNodeStatus,
    settings: &NodeSettings,
    facts: &NodeStatusInputs,
    now: ApiTime,
) -> Vec<NodeStatusEvent> {
    let pressure = facts.pressure;
    let mut events = Vec::new();
    for (words, under) in [
        (MEMORY_PRESSURE, pressure.memory),
        (DISK_PRESSURE, pressure.disk),
        (PID_PRESSURE, pressure.pid),
    ] {
        let [reason, message, event] = if under { words.under } else { words.free };
        let truth = if under { "True" } else { "False" };
        let was = find(&status.conditions, words.kind);
        let next = match was {
            // A reason written by another component stays until the status changes.
            Some(was) if was.status == truth => {
                NodeCondition { last_heartbeat_time: Some(now), ..was.clone() }
            }
            _ => {
                events.push(NodeStatusEvent::of_status(&settings.node_name, event));
                condition(words.kind, truth, ConditionCause { reason, message }, now)
            }
        };
        put(&mut status.conditions, next);
    }
    events.extend(fill_ready(status, settings, facts, now));
    events
}

fn fill_ready(
    status: &mut FullNodeStatus,
    settings: &NodeSettings,
    facts: &NodeStatusInputs,
    now: ApiTime,
) -> Option<NodeStatusEvent> {
    let mut errors = facts.errors.clone();
    let mut needed = vec![CPU, MEMORY, PODS];
    needed.extend(settings.counts_local_storage.then_some(EPHEMERAL_STORAGE));
    let missing: Vec<&str> =
        needed.into_iter().filter(|name| !status.capacity.contains_key(*name)).collect();
    if !missing.is_empty() {
        errors.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    let (truth, reason, mut message) = if errors.is_empty() {
        ("True", "KubeletReady", "kubelet is posting ready status".to_owned())
    } else {
        ("False", "KubeletNotReady", aggregated(errors))
    };
    if let Some(warning) = &facts.warning {
        message = format!("{message}. WARNING: {warning}");
    }
    let was = find(&status.conditions, READY);
    let mut next = condition(READY, truth, ConditionCause { reason, message: &message }, now);
    let mut event = None;
    if let Some(was) = was {
        if was.status == truth {
            next.last_transition_time = was.last_transition_time;
        } else {
            let reason = if truth == "True" { "NodeReady" } else { "NodeNotReady" };
            event = Some(NodeStatusEvent::of_status(&settings.node_name, reason));
        }
    }
    put(&mut status.conditions, next);
    event
}

/// Several errors as one text, each once.
fn aggregated(errors: Vec<String>) -> String {
    let mut once: Vec<String> = Vec::new();
    for error in errors {
        if !once.contains(&error) {
            once.push(error);
        }
    }
    match once.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Why a condition has its status.
#[derive(Clone, Copy)]
struct ConditionCause<'a> {
    reason: &'a str,
    message: &'a str,
}

fn condition(kind: &str, truth: &str, cause: ConditionCause<'_>, now: ApiTime) -> NodeCondition {
    NodeCondition {
        kind: kind.to_owned(),
        status: truth.to_owned(),
        last_heartbeat_time: Some(now),
        last_transition_time: Some(now),
        reason: cause.reason.to_owned(),
        message: cause.message.to_owned(),
    }
}

pub(crate) fn find<'a>(conditions: &'a [NodeCondition], kind: &str) -> Option<&'a NodeCondition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

fn put(conditions: &mut Vec<NodeCondition>, next: NodeCondition) {
    match conditions.iter_mut().find(|condition| condition.kind == next.kind) {
        Some(was) => *was = next,
        None => conditions.push(next),
    }
}

#[cfg(test)]
mod tests;
