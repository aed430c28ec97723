//! The event of a pod that the runtime lists and that cannot be read.
//!
//! Rules: a failed status of a new sandbox is reported at once; any other error when it lasts (a
//! second attempt failed too), and now and then as long as it does.
//!
//! upstream: pkg/kubelet/pod_workers.go (FailedSync), kuberuntime/kuberuntime_manager.go
//! (FailedPodSandBoxStatus)

use super::relist::RelistError;
use pod_lifecycle::{EventType, ObservedPod, PodEvent};

#[cfg(test)]
mod tests;

/// Position in a row of failed attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureStage {
    First,
    Second,
    /// One of the next attempts, which follow each other quickly.
    Early,
    /// Attempts at the longest interval.
    Slow,
}

/// The CRI call for the status of a sandbox.
const SANDBOX_STATUS: &str = "PodSandboxStatus";

/// None if nothing is to be reported this time. `known`: the pod's last observation.
pub(super) fn event(
    failure: &RelistError,
    known: Option<&ObservedPod>,
    stage: FailureStage,
) -> Option<PodEvent> {
    let had_sandbox = known.is_some_and(|pod| pod.sandboxes.iter().any(|sandbox| sandbox.ready));
    let of_new_sandbox = failure.call == SANDBOX_STATUS && !had_sandbox;
    let is_reported_at_once =
        if of_new_sandbox { FailureStage::First } else { FailureStage::Second };
    if stage != is_reported_at_once && stage != FailureStage::Slow {
        return None;
    }
    let (reason, message) = if of_new_sandbox {
        ("FailedPodSandBoxStatus", format!("Unable to get pod sandbox status: {}", failure.why))
    } else {
        ("FailedSync", format!("error determining status: {}", failure.why))
    };
    let kind = EventType::Warning;
    Some(PodEvent { kind, reason: reason.to_owned(), message, field_path: None })
}
