//! Why a pod is not where it should be: one sentence, the next step, and what led there.

use crate::table::age;
use ports::local_api::{LocalNode, LocalPodDetail};

const EVENTS_SHOWN: usize = 8;

pub(super) fn text(detail: &LocalPodDetail, node: &LocalNode, now: i64) -> String {
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
    for trouble in node.troubles.iter().filter(|trouble| concerns(trouble, &pod.manifest)) {
        text.push_str(&format!("warning: {trouble}\n"));
    }
    if !node.runtime.is_empty() && pod.waiting_on.is_some() {
        text.push_str(&format!("runtime: {}\n", node.runtime));
    }
    if !node.agent_log.is_empty() && pod.waiting_on.is_some() {
        text.push_str(&format!("agent's log: {}\n", node.agent_log));
    }
    let skipped = detail.events.len().saturating_sub(EVENTS_SHOWN);
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

fn concerns(trouble: &str, manifest: &str) -> bool {
    !manifest.is_empty() && trouble.contains(manifest)
}
