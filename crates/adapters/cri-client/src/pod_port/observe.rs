//! Observes one pod or all pods of a runtime: a listing, then the status of each item listed.
//!
//! Rule: a pod is reported whole or not at all. What vanished in between is left out; what cannot
//! be read drops its own pod from the result (or fails the observation of that pod), never
//! another's. The number of concurrent status calls is limited, those of sandboxes and of
//! containers side by side: a container that crashed waits for this observation. When observing all
//! pods, calls that do not return while no other call does are dropped, so that one that hangs
//! delays no other pod. Does not compare with an earlier observation.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{
    ContainerRecord, ListedPods, RuntimePods, SandboxRecord, UnreadablePod,
};
use tokio::task::JoinSet;

use super::malformed_response;
use super::records::{self, POD_NAME_LABEL, POD_NAMESPACE_LABEL, POD_UID_LABEL};
use crate::client::CriClient;

/// Concurrent status calls: enough that one that hangs delays no other, few enough not to flood a
/// runtime that has just started.
const MAX_CONCURRENT_STATUSES: usize = 8;

/// When observing all pods: status calls are dropped once none has returned for this long. For a
/// single pod the call's own, longer limit applies, so that a merely slow runtime can answer.
const STATUS_STALL_TIMEOUT: Duration = Duration::from_secs(2);

type StatusResult<T> = Result<Option<T>, ContainerRuntimeError>;

pub(super) async fn all(client: &CriClient) -> Result<RuntimePods, ContainerRuntimeError> {
    let (observed, pod_errors) =
        list_with_statuses(client, BTreeMap::new(), Some(STATUS_STALL_TIMEOUT)).await?;
    // The runtime is away: that concerns all pods and not only those whose calls failed.
    if let Some(unavailable) = pod_errors.values().find(|error| is_unavailable(error)) {
        return Err(unavailable.clone());
    }
    let readable = |uid: &str| !pod_errors.contains_key(uid);
    Ok(RuntimePods {
        sandboxes: observed
            .sandboxes
            .into_iter()
            .filter(|(uid, _)| readable(uid))
            .map(|(_, sandbox)| sandbox)
            .collect(),
        containers: observed
            .containers
            .into_iter()
            .filter(|(uid, _)| readable(uid))
            .map(|(_, container)| container)
            .collect(),
        unreadable_pods: pod_errors
            .iter()
            .map(|(uid, error)| UnreadablePod {
                why: error.to_string(),
                ..observed.names.get(uid).cloned().unwrap_or_default()
            })
            .collect(),
    })
}

pub(super) async fn pod(
    client: &CriClient,
    uid: &str,
) -> Result<RuntimePods, ContainerRuntimeError> {
    let labels = [(POD_UID_LABEL.to_owned(), uid.to_owned())].into();
    let (observed, pod_errors) = list_with_statuses(client, labels, None).await?;
    if let Some(error) = pod_errors.into_values().next() {
        return Err(error);
    }
    Ok(RuntimePods {
        sandboxes: observed.sandboxes.into_iter().map(|(_, sandbox)| sandbox).collect(),
        containers: observed.containers.into_iter().map(|(_, container)| container).collect(),
        unreadable_pods: Vec::new(),
    })
}

/// What the two listings contain of each pod.
pub(super) async fn listed(client: &CriClient) -> Result<ListedPods, ContainerRuntimeError> {
    let (sandboxes, containers) = list(client, BTreeMap::new()).await?;
    let pod_of: BTreeMap<&str, String> =
        sandboxes.iter().map(|sandbox| (sandbox.id.as_str(), uid_of_sandbox(sandbox))).collect();
    let mut pods = ListedPods::new();
    for sandbox in &sandboxes {
        let fingerprint =
            format!("sandbox {} {} {}", sandbox.id, sandbox.state, sandbox.created_at);
        pods.entry(uid_of_sandbox(sandbox)).or_default().insert(fingerprint);
    }
    for container in &containers {
        let labelled = container.labels.get(POD_UID_LABEL);
        let uid = labelled.or_else(|| pod_of.get(container.pod_sandbox_id.as_str()));
        let fingerprint =
            format!("container {} {} {}", container.id, container.state, container.created_at);
        pods.entry(uid.cloned().unwrap_or_default()).or_default().insert(fingerprint);
    }
    // Sandboxes and containers without a pod are ignored.
    pods.remove("");
    Ok(pods)
}

fn is_unavailable(error: &ContainerRuntimeError) -> bool {
    matches!(error, ContainerRuntimeError::Unavailable { .. })
}

/// Each with its pod's UID.
#[derive(Default)]
struct ObservedObjects {
    sandboxes: Vec<(String, SandboxRecord)>,
    containers: Vec<(String, ContainerRecord)>,
    /// Names of the pods, for those that cannot be read.
    names: BTreeMap<String, UnreadablePod>,
}

type PodErrors = BTreeMap<String, ContainerRuntimeError>;

async fn list(
    client: &CriClient,
    label_selector: BTreeMap<String, String>,
) -> Result<(Vec<v1::PodSandbox>, Vec<v1::Container>), ContainerRuntimeError> {
    let sandboxes = v1::ListPodSandboxRequest {
        filter: Some(v1::PodSandboxFilter {
            label_selector: label_selector.clone(),
            ..Default::default()
        }),
    };
    let containers = v1::ListContainersRequest {
        filter: Some(v1::ContainerFilter { label_selector, ..Default::default() }),
    };
    let (sandboxes, containers) =
        tokio::try_join!(client.list_pod_sandbox(sandboxes), client.list_containers(containers))?;
    Ok((sandboxes.items, containers.containers))
}

async fn list_with_statuses(
    client: &CriClient,
    label_selector: BTreeMap<String, String>,
    stall_timeout: Option<Duration>,
) -> Result<(ObservedObjects, PodErrors), ContainerRuntimeError> {
    let (sandboxes, containers) = list(client, label_selector).await?;
    let mut pod_errors = PodErrors::new();
    let names = names(&sandboxes, &containers);
    let pod_of: BTreeMap<String, String> =
        sandboxes.iter().map(|sandbox| (sandbox.id.clone(), uid_of_sandbox(sandbox))).collect();
    let of_sandboxes = sandboxes.into_iter().map(|sandbox| {
        let uid = uid_of_sandbox(&sandbox);
        (uid, StatusQuery::Sandbox { id: sandbox.id })
    });
    let of_containers = containers.into_iter().map(|container| {
        let labelled = container.labels.get(POD_UID_LABEL);
        let uid = labelled.or_else(|| pod_of.get(&container.pod_sandbox_id)).cloned();
        let v1::Container { id, pod_sandbox_id: sandbox_id, .. } = container;
        (uid.unwrap_or_default(), StatusQuery::Container { id, sandbox_id })
    });
    let queries = of_sandboxes.chain(of_containers).collect();
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for (uid, outcome) in each(client, queries, stall_timeout).await? {
        match outcome {
            Ok(Some(ObjectStatus::Sandbox(sandbox))) => sandboxes.push((uid, sandbox)),
            Ok(Some(ObjectStatus::Container(container))) => containers.push((uid, *container)),
            Ok(None) => {}
            // The first error of each pod is kept.
            Err(error) => {
                pod_errors.entry(uid).or_insert(error);
            }
        }
    }
    Ok((ObservedObjects { sandboxes, containers, names }, pod_errors))
}

/// What the listings alone contain of each pod.
fn names(
    sandboxes: &[v1::PodSandbox],
    containers: &[v1::Container],
) -> BTreeMap<String, UnreadablePod> {
    let label = |labels: &BTreeMap<String, String>, key: &str| labels.get(key).cloned();
    let of_containers = containers.iter().filter_map(|container| {
        let uid = label(&container.labels, POD_UID_LABEL)?;
        Some(UnreadablePod {
            uid,
            namespace: label(&container.labels, POD_NAMESPACE_LABEL).unwrap_or_default(),
            name: label(&container.labels, POD_NAME_LABEL).unwrap_or_default(),
            is_kubelet_pod: true,
            why: String::new(),
        })
    });
    let of_sandboxes = sandboxes.iter().map(|sandbox| {
        let metadata = sandbox.metadata.clone().unwrap_or_default();
        UnreadablePod {
            uid: uid_of_sandbox(sandbox),
            namespace: metadata.namespace,
            name: metadata.name,
            is_kubelet_pod: sandbox.labels.contains_key(POD_UID_LABEL),
            why: String::new(),
        }
    });
    of_containers.chain(of_sandboxes).map(|pod| (pod.uid.clone(), pod)).collect()
}

fn uid_of_sandbox(sandbox: &v1::PodSandbox) -> String {
    let labelled = sandbox.labels.get(POD_UID_LABEL).cloned();
    labelled.unwrap_or_else(|| sandbox.metadata.clone().unwrap_or_default().uid)
}

/// The object of a status call.
enum StatusQuery {
    Sandbox { id: String },
    Container { id: String, sandbox_id: String },
}

/// The result of a status call.
enum ObjectStatus {
    Sandbox(SandboxRecord),
    /// Boxed: much larger than the other variants.
    Container(Box<ContainerRecord>),
}

impl StatusQuery {
    fn call(&self) -> &'static str {
        match self {
            Self::Sandbox { .. } => "PodSandboxStatus",
            Self::Container { .. } => "ContainerStatus",
        }
    }

    async fn ask(self, client: &CriClient) -> StatusResult<ObjectStatus> {
        Ok(match self {
            Self::Sandbox { id } => sandbox_status(client, id).await?.map(ObjectStatus::Sandbox),
            Self::Container { id, sandbox_id } => {
                let record = container_status(client, id, sandbox_id).await?;
                record.map(|record| ObjectStatus::Container(Box::new(record)))
            }
        })
    }
}

/// Makes the status calls, so many at a time, and returns the results in the order of the requests.
/// If none returns for as long as `stall_timeout`, those in flight are dropped and count as
/// unanswered. Dropping this cancels the calls in flight.
async fn each(
    client: &CriClient,
    query: Vec<(String, StatusQuery)>,
    stall_timeout: Option<Duration>,
) -> Result<Vec<(String, StatusResult<ObjectStatus>)>, ContainerRuntimeError> {
    let (uids, query): (Vec<String>, Vec<StatusQuery>) = query.into_iter().unzip();
    let calls: Vec<&'static str> = query.iter().map(StatusQuery::call).collect();
    let mut waiting: VecDeque<(usize, StatusQuery)> = query.into_iter().enumerate().collect();
    let mut results: Vec<Option<StatusResult<ObjectStatus>>> =
        waiting.iter().map(|_| None).collect();
    let mut running = JoinSet::new();
    loop {
        while running.len() < MAX_CONCURRENT_STATUSES
            && let Some((index, query)) = waiting.pop_front()
        {
            let client = client.clone();
            running.spawn(async move { (index, query.ask(&client).await) });
        }
        let next = match stall_timeout {
            None => Ok(running.join_next().await),
            Some(limit) => tokio::time::timeout(limit, running.join_next()).await,
        };
        match next {
            Ok(None) => break,
            Ok(Some(Ok((index, result)))) => {
                if let Some(slot) = results.get_mut(index) {
                    *slot = Some(result);
                }
            }
            Ok(Some(Err(broken))) => {
                let why = format!("a look broke off: {broken}");
                return Err(malformed_response("ContainerStatus", why));
            }
            Err(_) => running = JoinSet::new(),
        }
    }
    let limit = stall_timeout.unwrap_or_default();
    let results = results.into_iter().zip(calls).map(|(result, call)| {
        result.unwrap_or(Err(ContainerRuntimeError::DeadlineExceeded { call, limit }))
    });
    Ok(uids.into_iter().zip(results).collect())
}

async fn sandbox_status(client: &CriClient, id: String) -> StatusResult<SandboxRecord> {
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false };
    let answer = match client.pod_sandbox_status(request).await {
        Err(ContainerRuntimeError::NotFound { .. }) => return Ok(None),
        answer => answer?,
    };
    match answer.status {
        Some(status) if status.id == id => Ok(Some(records::sandbox(status))),
        _ => Err(malformed_response("PodSandboxStatus", format!("no status of sandbox {id:?}"))),
    }
}

async fn container_status(
    client: &CriClient,
    id: String,
    sandbox_id: String,
) -> StatusResult<ContainerRecord> {
    let request = v1::ContainerStatusRequest { container_id: id.clone(), verbose: false };
    let answer = match client.container_status(request).await {
        Err(ContainerRuntimeError::NotFound { .. }) => return Ok(None),
        answer => answer?,
    };
    match answer.status {
        Some(status) if status.id == id => Ok(Some(records::container(status, sandbox_id))),
        _ => Err(malformed_response("ContainerStatus", format!("no status of container {id:?}"))),
    }
}
