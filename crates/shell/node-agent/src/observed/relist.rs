//! One relist: a call with a deadline, then the termination messages of exited containers.

use super::ObservedPodsInner;
use super::build::by_pod;
use pod_lifecycle::ObservedPod;
use ports::ApiTime;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{ContainerRecord, ListedPods, UnreadablePod};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The adapter's own deadlines are shorter; this one holds for whatever implements the port.
const RELIST_TIMEOUT: Duration = Duration::from_secs(150);

/// What is relisted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RelistTarget {
    All,
    /// The runtime's lists alone, without the status of each object.
    Listing,
    Pod(String),
}

/// Why a relist failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelistError {
    pub(super) why: String,
    /// The CRI call that failed; empty if it is not known.
    pub(super) call: &'static str,
}

impl RelistError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), call: "" }
    }

    fn unanswered() -> Self {
        Self::new(format!("no answer within {RELIST_TIMEOUT:?}"))
    }
}

impl From<ContainerRuntimeError> for RelistError {
    fn from(error: ContainerRuntimeError) -> Self {
        Self { why: error.to_string(), call: error.call() }
    }
}

/// The result of a relist.
#[derive(Debug, Default)]
pub(super) struct RelistResult {
    pub(super) as_of: ApiTime,
    pub(super) pods: BTreeMap<String, ObservedPod>,
    /// Pods that exist but could not be read.
    pub(super) unreadable_pods: BTreeMap<String, UnreadablePod>,
    /// The result of a listing.
    pub(super) listed: ListedPods,
    /// From an event; no call was made.
    pub(super) from_event: bool,
}

/// The known observation with this container's exit. It shows nothing new of the other containers,
/// so its time is only just after that of the known one.
pub(super) async fn ended(
    shared: Arc<ObservedPodsInner>,
    uid: String,
    known: Arc<ObservedPod>,
    record: Box<ContainerRecord>,
) -> Result<RelistResult, RelistError> {
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
    Ok(RelistResult {
        as_of: pod.as_of,
        pods: [(uid, pod)].into(),
        from_event: true,
        ..RelistResult::default()
    })
}

pub(super) async fn relist(
    shared: Arc<ObservedPodsInner>,
    target: RelistTarget,
) -> Result<RelistResult, RelistError> {
    let as_of = shared.clock.now();
    if target == RelistTarget::Listing {
        return match tokio::time::timeout(RELIST_TIMEOUT, shared.runtime.list_pods()).await {
            Ok(Ok(listed)) => Ok(RelistResult { as_of, listed, ..RelistResult::default() }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(RelistError::unanswered()),
        };
    }
    let call = async {
        match &target {
            RelistTarget::All | RelistTarget::Listing => shared.runtime.observe_all().await,
            RelistTarget::Pod(uid) => shared.runtime.observe_pod(uid).await,
        }
    };
    let answer = match tokio::time::timeout(RELIST_TIMEOUT, call).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(RelistError::unanswered()),
    };
    let unreadable_pods =
        answer.unreadable_pods.iter().map(|each| (each.uid.clone(), each.clone())).collect();
    let mut pods = by_pod(answer, as_of);
    if let RelistTarget::Pod(uid) = &target {
        // An answer about one pod shows nothing of others, and an empty one means that the pod is
        // gone.
        pods.retain(|seen, _| seen == uid);
        let nothing = ObservedPod { as_of, ..ObservedPod::default() };
        pods.entry(uid.clone()).or_insert(nothing);
    }
    for pod in pods.values_mut() {
        shared.messages.fill_in(pod).await;
    }
    Ok(RelistResult { as_of, pods, unreadable_pods, ..RelistResult::default() })
}
