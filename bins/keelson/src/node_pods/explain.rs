//! Why a pod is not in its desired state: one sentence, the next step, and what led there.

use crate::table::age;
use anyhow::Result;
use ports::local_api::{LocalNode, LocalPodDetail};
use serde_json::{Value, json};

const EVENTS_SHOWN: usize = 8;

/// The same for programs, with all events.
pub(super) fn value(detail: &LocalPodDetail, node: &LocalNode) -> Result<Value> {
    let pod = &detail.pod;
    let warnings: Vec<&String> = warnings(detail, node).collect();
    Ok(json!({
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "phase": pod.object["status"]["phase"],
        "waitingOn": serde_json::to_value(&pod.waiting_on)?,
        "doing": pod.doing,
        "manifest": pod.manifest,
        "warnings": warnings,
        "runtime": node.runtime,
        "agentLog": node.agent_log,
        "events": serde_json::to_value(&detail.events)?,
    }))
}

/// `wide`: with all events.
pub(super) fn text(detail: &LocalPodDetail, node: &LocalNode, now: i64, wide: bool) -> String {
    let pod = &detail.pod;
    let mut text = format!("{}/{}: ", pod.namespace, pod.name);
    match &pod.waiting_on {
        Some(waiting) => {
            text.push_str(&format!("{}\n", waiting.why));
            if !waiting.next_step.is_empty() {
                text.push_str(&format!("next: {}\n", waiting.next_step));
            }
        }
        None => {
            let phase = pod.object["status"]["phase"].as_str().unwrap_or("Unknown");
            text.push_str(&format!("is where it should be ({phase})\n"));
        }
    }
    if !pod.doing.is_empty() {
        text.push_str(&format!("now: {}\n", pod.doing.join(", ")));
    }
    if !pod.manifest.is_empty() {
        text.push_str(&format!("manifest: {}\n", pod.manifest));
    }
    for warning in warnings(detail, node) {
        text.push_str(&format!("warning: {warning}\n"));
    }
    if !node.runtime.is_empty() && pod.waiting_on.is_some() {
        text.push_str(&format!("runtime: {}\n", node.runtime));
    }
    if !node.agent_log.is_empty() && pod.waiting_on.is_some() {
        text.push_str(&format!("agent's log: {}\n", node.agent_log));
    }
    let shown = if wide { detail.events.len() } else { EVENTS_SHOWN };
    let skipped = detail.events.len().saturating_sub(shown);
    for event in detail.events.iter().skip(skipped) {
        let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
        text.push_str(&format!(
            "  {:>5} ago  {:<7}  {}{times}: {}\n",
            age(now, event.last_at),
            event.kind,
            event.reason,
            event.message
        ));
    }
    text
}

/// What is wrong with the pod's manifest.
fn warnings<'a>(
    detail: &'a LocalPodDetail,
    node: &'a LocalNode,
) -> impl Iterator<Item = &'a String> {
    let manifest = &detail.pod.manifest;
    let concerns = move |warning: &&String| !manifest.is_empty() && warning.contains(manifest);
    node.source_errors.iter().filter(concerns)
}
