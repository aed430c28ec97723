//! The event of a pod that the runtime lists and does not tell of.
//!
//! Rules: a sandbox that was just made and cannot be asked is told at once; any other failure when it
//! lasts (a second try failed too), and now and then as long as it does.
//!
//! upstream: pkg/kubelet/pod_workers.go (FailedSync), kuberuntime/kuberuntime_manager.go
//! (FailedPodSandBoxStatus)

use super::look::LookFailure;
use pod_lifecycle::{EventKind, ObservedPod, PodEvent};

#[cfg(test)]
mod tests;

/// Where in a row of failures this one stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Second,
    /// One of the next, which follow each other quickly.
    Early,
    /// It is tried as seldom as it ever will be.
    Slow,
}

/// The CRI call that tells how a sandbox is.
const SANDBOX_STATUS: &str = "PodSandboxStatus";

/// None where nothing is to be told this time. `known`: what was seen of the pod before.
pub(super) fn event(
    failure: &LookFailure,
    known: Option<&ObservedPod>,
    turn: Turn,
) -> Option<PodEvent> {
    let had_sandbox = known.is_some_and(|pod| pod.sandboxes.iter().any(|sandbox| sandbox.ready));
    let of_new_sandbox = failure.call == SANDBOX_STATUS && !had_sandbox;
    let told_first = if of_new_sandbox { Turn::First } else { Turn::Second };
    if turn != told_first && turn != Turn::Slow {
        return None;
    }
    let (reason, message) = if of_new_sandbox {
        ("FailedPodSandBoxStatus", format!("Unable to get pod sandbox status: {}", failure.why))
    } else {
        ("FailedSync", format!("error determining status: {}", failure.why))
    };
    let kind = EventKind::Warning;
    Some(PodEvent { kind, reason: reason.to_owned(), message, field_path: None })
}
