//! Events with upstream's texts. Nothing from a hook or a secret is included.
//!
//! upstream: pkg/kubelet/events/event.go

use pod_model::pod::Pod;

use crate::input::{EventType, PodEvent};
use crate::status_text::field_path;

/// An event about the pod.
pub(super) fn about_pod(kind: EventType, reason: &str, message: impl Into<String>) -> PodEvent {
    PodEvent { kind, reason: reason.to_owned(), message: message.into(), field_path: None }
}

/// An event about one container of the pod.
pub(super) fn about_container(
    pod: &Pod,
    name: &str,
    kind: EventType,
    reason: &str,
    message: impl Into<String>,
) -> PodEvent {
    PodEvent { field_path: field_path(pod, name), ..about_pod(kind, reason, message) }
}
