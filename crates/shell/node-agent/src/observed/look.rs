//! One relist: a call with a deadline, then the termination messages of exited containers.

use super::Shared;
use super::build::by_pod;
use pod_lifecycle::ObservedPod;
use ports::ApiTime;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{ContainerRecord, ListedPods, UnreadPod};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The adapter's own deadlines are shorter; this one holds for whatever implements the port.
const LONGEST_LOOK: Duration = Duration::from_secs(150);

/// What is relisted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    All,
    /// The runtime's lists alone, without the status of each object.
    Listing,
    Pod(String),
}

/// Why a relist failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LookFailure {
    pub(super) why: String,
    /// The CRI call that failed; empty if it is not known.
    pub(super) call: &'static str,
}

impl LookFailure {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), call: "" }
    }

    fn unanswered() -> Self {
        Self::new(format!("no answer within {LONGEST_LOOK:?}"))
    }
}

impl From<ContainerRuntimeError> for LookFailure {
    fn from(error: ContainerRuntimeError) -> Self {
        Self { why: error.to_string(), call: error.call() }
    }
}

/// The result of a relist.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) as_of: ApiTime,
    pub(super) pods: BTreeMap<String, ObservedPod>,
    /// Pods that exist but could not be read.
    pub(super) unread: BTreeMap<String, UnreadPod>,
    /// The result of a listing.
    pub(super) listed: ListedPods,
    /// From an event; no call was made.
    pub(super) is_told: bool,
}

/// The known observation with this container's exit. It shows nothing new of the other containers,
/// so its time is only just after that of the known one.
pub(super) async fn ended(
    shared: Arc<Shared>,
    uid: String,
    known: Arc<ObservedPod>,
    record: Box<ContainerRecord>,
) -> Result<Seen, LookFailure> {
    let mut pod = (*known).clone();
    pod.as_of = ApiTime::from_nanos(known.as_of.nanos() + 1);
    for container in pod.containers.iter_mut().filter(|each| each.record.id == record.id) {
        let ContainerRecord { state, started_at, finished_at, exit_code, .. } = *record;
        let (reason, message) = (record.reason.clone(), record.message.clone());
        let known = std::mem::take(&mut container.record);
        let started_at = if started_at > 0 { started_at } else { known.started_at };
        container.record =
            ContainerRecord { state, started_at, finished_at, exit_code, reason, message, ..known };
    }
    shared.messages.fill_in(&mut pod).await;
    Ok(Seen { as_of: pod.as_of, pods: [(uid, pod)].into(), is_told: true, ..Seen::default() })
}

pub(super) async fn look(shared: Arc<Shared>, target: Target) -> Result<Seen, LookFailure> {
    let as_of = shared.clock.now();
    if target == Target::Listing {
        return match tokio::time::timeout(LONGEST_LOOK, shared.runtime.list_pods()).await {
            Ok(Ok(listed)) => Ok(Seen { as_of, listed, ..Seen::default() }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(LookFailure::unanswered()),
        };
    }
    let call = async {
        match &target {
            Target::All | Target::Listing => shared.runtime.observe_all().await,
            Target::Pod(uid) => shared.runtime.observe_pod(uid).await,
        }
    };
    let answer = match tokio::time::timeout(LONGEST_LOOK, call).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(LookFailure::unanswered()),
    };
    let unread = answer.unread.iter().map(|each| (each.uid.clone(), each.clone())).collect();
    let mut pods = by_pod(answer, as_of);
    if let Target::Pod(uid) = &target {
        // An answer about one pod shows nothing of others, and an empty one means that the pod is
        // gone.
        pods.retain(|seen, _| seen == uid);
        let nothing = ObservedPod { as_of, ..ObservedPod::default() };
        pods.entry(uid.clone()).or_insert(nothing);
    }
    for pod in pods.values_mut() {
        shared.messages.fill_in(pod).await;
    }
    Ok(Seen { as_of, pods, unread, ..Seen::default() })
}
