//! How pods ended, as an exit code. Pure.
//!
//! Rule: for a pod that ended by itself the phase decides; for one that was stopped, its
//! containers' exit codes within its grace period: 137 for one that had to be killed. The first
//! code other than 0 stays, whatever other pods do. A container without a known exit does not
//! count.
//! than 0 stays, whatever other pods do. A container that was never seen to end says nothing.

use ports::local_api::LocalPod;
use serde_json::Value;
use std::collections::BTreeMap;

/// The agent's reason for a container whose exit it never saw.
const UNKNOWN_END: &str = "ContainerStatusUnknown";

/// The code of a pod that has ended by itself.
pub(super) fn exit_code_of_ended(pod: &LocalPod) -> Option<u8> {
    match pod.object["status"]["phase"].as_str() {
        Some("Succeeded") => Some(0),
        // 1 if no container failed: the pod did, by its deadline or by an eviction.
        Some("Failed") => Some(failure(pod).unwrap_or(1)),
        _ => None,
    }
}

/// The code of the first container that failed. A sidecar counts only if no other did: it ends
/// last, and mostly by a signal.
fn failure(pod: &LocalPod) -> Option<u8> {
    let mut codes = codes(pod, "containerStatuses").chain(codes(pod, "initContainerStatuses"));
    codes.find(|code| *code != 0)
}

/// The code of a pod that was stopped: of its containers, or of its init containers before they
/// began.
fn stopped(pod: &LocalPod) -> u8 {
    let mut regular = codes(pod, "containerStatuses").peekable();
    match regular.peek() {
        Some(_) => regular.find(|code| *code != 0),
        None => codes(pod, "initContainerStatuses").find(|code| *code != 0),
    }
    .unwrap_or(0)
}

fn codes<'a>(pod: &'a LocalPod, kind: &str) -> impl Iterator<Item = u8> + 'a {
    let statuses = pod.object["status"][kind].as_array();
    statuses.into_iter().flatten().filter_map(|status| {
        let now = &status["state"]["terminated"];
        let before = &status["lastState"]["terminated"];
        let is_known = now.is_object() && now["reason"].as_str() != Some(UNKNOWN_END);
        let is_running = status["state"]["running"].is_object();
        code(if is_known { now } else { before }).filter(|_| !is_running)
    })
}

/// A code that a process cannot exit with is still a failure.
fn code(ended: &Value) -> Option<u8> {
    ended["exitCode"].as_i64().map(|code| u8::try_from(code).unwrap_or(1))
}

/// The exit codes of all pods so far, as they were last seen.
#[derive(Debug, Default)]
pub(super) struct ExitCodes {
    present: BTreeMap<String, u8>,
    first_failure: Option<u8>,
}

impl ExitCodes {
    /// Compares with the last pods: those that are missing now have ended.
    pub(super) fn update(&mut self, pods: &[LocalPod]) {
        let now: BTreeMap<String, u8> = pods
            .iter()
            .map(|pod| (pod.uid.clone(), exit_code_of_ended(pod).unwrap_or_else(|| stopped(pod))))
            .collect();
        let before = std::mem::replace(&mut self.present, now);
        let mut gone = before.into_iter().filter(|(uid, _)| !self.present.contains_key(uid));
        let failed = gone.find(|(_, code)| *code != 0).map(|(_, code)| code);
        self.first_failure = self.first_failure.or(failed);
    }

    /// The exit code once no pod is left.
    pub(super) fn code(&self) -> u8 {
        self.first_failure.unwrap_or(0)
    }
}
