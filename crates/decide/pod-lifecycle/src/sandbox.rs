//! Whether the pod has the sandbox that it needs.
//!
//! Rules: a new one is needed where there is none, where more than one is ready, where the newest
//! is not ready, where the pod's network changed between host and pod, and where it has no address.
//!
//! upstream: kuberuntime/util/util.go (PodSandboxChanged)

use pod_model::pod::Pod;
use ports::runtime_objects::SandboxRecord;

use crate::view::ObservedPod;

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxDecision<'a> {
    Keep(&'a SandboxRecord),
    New {
        attempt: u32,
        /// The sandbox that it replaces.
        replaces: Option<&'a SandboxRecord>,
        why: &'static str,
    },
}

pub(crate) fn decide<'a>(pod: &Pod, observed: &'a ObservedPod) -> SandboxDecision<'a> {
    let Some(newest) = newest(observed) else {
        return SandboxDecision::New { attempt: 0, replaces: None, why: "it has no sandbox yet" };
    };
    let ready = observed.sandboxes.iter().filter(|sandbox| sandbox.ready).count();
    let why = if ready > 1 {
        "more than one of its sandboxes is ready"
    } else if !newest.ready {
        "its sandbox is no longer ready"
    } else if newest.host_network.is_some_and(|host| host != pod.spec.host_network) {
        "its network moved between the pod and the host"
    } else if !pod.spec.host_network && newest.ips.iter().all(String::is_empty) {
        "its sandbox has no address"
    } else {
        return SandboxDecision::Keep(newest);
    };
    SandboxDecision::New { attempt: newest.attempt.saturating_add(1), replaces: Some(newest), why }
}

/// The attempt of the sandbox in which the pod's next container starts.
pub fn sandbox_attempt(pod: &Pod, observed: &ObservedPod) -> u32 {
    match decide(pod, observed) {
        SandboxDecision::Keep(sandbox) => sandbox.attempt,
        SandboxDecision::New { attempt, .. } => attempt,
    }
}

/// The newest sandbox; the order of the observation is not trusted.
pub(crate) fn newest(observed: &ObservedPod) -> Option<&SandboxRecord> {
    // By attempt first: after a clock is set back the newer one looks older.
    observed.sandboxes.iter().max_by_key(|sandbox| (sandbox.attempt, sandbox.created_at))
}

/// The newest sandbox, if it is ready: its containers are the pod's current ones.
pub(crate) fn active(observed: &ObservedPod) -> Option<&SandboxRecord> {
    newest(observed).filter(|sandbox| sandbox.ready)
}
