//! How pods ended, as an exit code. Pure.
//!
//! Rule: a pod that ended by itself is told by its phase; one that was stopped, by what its
//! containers ended with within its grace: 137 for one that had to be killed. The first code other
//! than 0 stays, whatever other pods do. A container that was never seen to end says nothing.

use ports::local_api::LocalPod;
use serde_json::Value;
use std::collections::BTreeMap;

/// What the agent writes where it never saw a container's end.
const UNKNOWN_END: &str = "ContainerStatusUnknown";

/// The code of a pod that has ended by itself.
pub(super) fn of_itself(pod: &LocalPod) -> Option<u8> {
    match pod.object["status"]["phase"].as_str() {
        Some("Succeeded") => Some(0),
        // 1 where no container failed: the pod did, by its deadline or by being evicted.
        Some("Failed") => Some(failure(pod).unwrap_or(1)),
        _ => None,
    }
}

/// The code of the first container that failed. A sidecar fails the pod only where no other did:
/// it ends last, and mostly by a signal.
fn failure(pod: &LocalPod) -> Option<u8> {
    let mut codes = codes(pod, "containerStatuses").chain(codes(pod, "initContainerStatuses"));
    codes.find(|code| *code != 0)
}

/// The code of a pod that was stopped: of its containers, or before they began of what prepared it.
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

/// A code that a process cannot answer with is a failure all the same.
fn code(ended: &Value) -> Option<u8> {
    ended["exitCode"].as_i64().map(|code| u8::try_from(code).unwrap_or(1))
}

/// The ends of all pods that there were, as they were last seen.
#[derive(Debug, Default)]
pub(super) struct Endings {
    present: BTreeMap<String, u8>,
    first_failure: Option<u8>,
}

impl Endings {
    /// Looks at the pods that there are; those of the last look that are gone have ended.
    pub(super) fn look(&mut self, pods: &[LocalPod]) {
        let now: BTreeMap<String, u8> = pods
            .iter()
            .map(|pod| (pod.uid.clone(), of_itself(pod).unwrap_or_else(|| stopped(pod))))
            .collect();
        let before = std::mem::replace(&mut self.present, now);
        let mut gone = before.into_iter().filter(|(uid, _)| !self.present.contains_key(uid));
        let failed = gone.find(|(_, code)| *code != 0).map(|(_, code)| code);
        self.first_failure = self.first_failure.or(failed);
    }

    /// The exit code, when no pod is left.
    pub(super) fn code(&self) -> u8 {
        self.first_failure.unwrap_or(0)
    }
}
