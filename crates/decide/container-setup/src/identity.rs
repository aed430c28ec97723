//! Labels and annotations that identify sandboxes and containers.
//!
//! Rule: exactly the kubelet's names and values, so that the kubelet and this agent can adopt each
//! other's pods. [`parse_annotations`] reads the annotations back.
//!
//! upstream: pkg/kubelet/kuberuntime/labels.go

use pod_model::pod::{Container, Pod, container_hash_text};
use ports::runtime_objects::Labels;

#[cfg(test)]
mod tests;

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

pub const HASH: &str = "io.kubernetes.container.hash";
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
pub const PORTS: &str = "io.kubernetes.container.ports";
pub const DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
pub const TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

/// The pod's own labels, and those that identify it.
pub fn sandbox_labels(pod: &Pod) -> Labels {
    let own = pod.metadata.labels.iter();
    let mut labels: Labels = own.map(|(key, value)| (key.to_owned(), value.to_string())).collect();
    labels.extend(pod_labels(pod));
    labels
}

pub fn sandbox_annotations(pod: &Pod) -> Labels {
    let own = pod.metadata.annotations.iter();
    own.map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

pub fn container_labels(pod: &Pod, container: &Container) -> Labels {
    let name = (CONTAINER_NAME.to_owned(), container.name.to_string());
    pod_labels(pod).into_iter().chain([name]).collect()
}

fn pod_labels(pod: &Pod) -> [(String, String); 3] {
    let meta = &pod.metadata;
    [(POD_NAME, &meta.name), (POD_NAMESPACE, &meta.namespace), (POD_UID, &meta.uid)]
        .map(|(label, value)| (label.to_owned(), value.to_string()))
}

/// What the agent must know about a container when its pod's specification is no longer available.
/// `device_annotations` come from device plugins and never override these.
pub fn container_annotations(
    pod: &Pod,
    container: &Container,
    restart_count: u32,
    device_annotations: &Labels,
) -> Labels {
    let mut annotations = device_annotations.clone();
    let mut add = |name: &str, value: String| annotations.insert(name.to_owned(), value);
    add(HASH, container_hash_text(container));
    add(RESTART_COUNT, restart_count.to_string());
    add(TERMINATION_MESSAGE_PATH, container.termination_message_path.to_string());
    add(TERMINATION_MESSAGE_POLICY, container.termination_message_policy.to_string());
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        add(DELETION_GRACE, seconds.to_string());
    }
    if let Some(seconds) = pod.spec.termination_grace_period_seconds {
        add(TERMINATION_GRACE, seconds.to_string());
    }
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_deref());
    if let Some(json) = hook.and_then(|hook| serde_json::to_string(hook).ok()) {
        add(PRE_STOP_HANDLER, escaped_for_html(&json));
    }
    if !container.ports.is_empty()
        && let Ok(json) = serde_json::to_string(&container.ports)
    {
        add(PORTS, escaped_for_html(&json));
    }
    annotations
}

/// Escapes HTML characters as Go's JSON encoder does.
fn escaped_for_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => out.push(character),
        }
    }
    out
}

/// The values of a container's annotations; a missing or unreadable one is zero, empty or `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedAnnotations {
    pub hash: u64,
    pub restart_count: u32,
    pub termination_message_path: String,
    pub termination_message_policy: String,
    pub deletion_grace: Option<i64>,
    pub termination_grace: Option<i64>,
    /// JSON of the hook, as in the specification.
    pub pre_stop_handler: Option<String>,
    /// JSON of the list of ports.
    pub ports: Option<String>,
}

pub fn parse_annotations(annotations: &Labels) -> ParsedAnnotations {
    let text = |name: &str| annotations.get(name).cloned();
    let number = |name: &str| annotations.get(name).and_then(|value| value.parse::<i64>().ok());
    ParsedAnnotations {
        hash: text(HASH).and_then(|hex| u64::from_str_radix(&hex, 16).ok()).unwrap_or(0),
        restart_count: number(RESTART_COUNT).and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
        termination_message_path: text(TERMINATION_MESSAGE_PATH).unwrap_or_default(),
        termination_message_policy: text(TERMINATION_MESSAGE_POLICY).unwrap_or_default(),
        deletion_grace: number(DELETION_GRACE),
        termination_grace: number(TERMINATION_GRACE),
        pre_stop_handler: text(PRE_STOP_HANDLER),
        ports: text(PORTS),
    }
}
