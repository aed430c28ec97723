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
use ports::runtime_objects::{ContainerRecord, ListedPods, RuntimePods, SandboxRecord, UnreadPod};
use tokio::task::JoinSet;

use super::records::{self, POD_NAME_LABEL, POD_NAMESPACE_LABEL, POD_UID_LABEL};
use super::senseless;
use crate::client::CriClient;

/// Concurrent status calls: enough that one that hangs delays no other, few enough not to flood a
/// runtime that has just started.
const AT_A_TIME: usize = 8;

/// When observing all pods: status calls are dropped once none has returned for this long. For a
/// single pod the call's own, longer limit applies, so that a merely slow runtime can answer.
const STANDSTILL: Duration = Duration::from_secs(2);

type Outcome<T> = Result<Option<T>, ContainerRuntimeError>;

pub(super) async fn all(client: &CriClient) -> Result<RuntimePods, ContainerRuntimeError> {
    let (found, failures) = look(client, BTreeMap::new(), Some(STANDSTILL)).await?;
    // The runtime is away: that concerns all pods and not only those whose calls failed.
    if let Some(away) = failures.values().find(|error| is_away(error)) {
        return Err(away.clone());
    }
    let readable = |uid: &str| !failures.contains_key(uid);
    Ok(RuntimePods {
        sandboxes: found
            .sandboxes
            .into_iter()
            .filter(|(uid, _)| readable(uid))
            .map(|(_, sandbox)| sandbox)
            .collect(),
        containers: found
            .containers
            .into_iter()
            .filter(|(uid, _)| readable(uid))
            .map(|(_, container)| container)
            .collect(),
        unread: failures
            .iter()
            .map(|(uid, error)| UnreadPod {
                why: error.to_string(),
                ..found.names.get(uid).cloned().unwrap_or_default()
            })
            .collect(),
    })
}

pub(super) async fn pod(
    client: &CriClient,
    uid: &str,
) -> Result<RuntimePods, ContainerRuntimeError> {
    let labels = [(POD_UID_LABEL.to_owned(), uid.to_owned())].into();
    let (found, failures) = look(client, labels, None).await?;
    if let Some(error) = failures.into_values().next() {
        return Err(error);
    }
    Ok(RuntimePods {
        sandboxes: found.sandboxes.into_iter().map(|(_, sandbox)| sandbox).collect(),
        containers: found.containers.into_iter().map(|(_, container)| container).collect(),
        unread: Vec::new(),
    })
}

/// What the two listings contain of each pod.
pub(super) async fn listed(client: &CriClient) -> Result<ListedPods, ContainerRuntimeError> {
    let (sandboxes, containers) = list(client, BTreeMap::new()).await?;
    let pod_of: BTreeMap<&str, String> =
        sandboxes.iter().map(|sandbox| (sandbox.id.as_str(), uid_of_sandbox(sandbox))).collect();
    let mut pods = ListedPods::new();
    for sandbox in &sandboxes {
        let word = format!("sandbox {} {} {}", sandbox.id, sandbox.state, sandbox.created_at);
        pods.entry(uid_of_sandbox(sandbox)).or_default().insert(word);
    }
    for container in &containers {
        let labelled = container.labels.get(POD_UID_LABEL);
        let uid = labelled.or_else(|| pod_of.get(container.pod_sandbox_id.as_str()));
        let word =
            format!("container {} {} {}", container.id, container.state, container.created_at);
        pods.entry(uid.cloned().unwrap_or_default()).or_default().insert(word);
    }
    // Sandboxes and containers without a pod are ignored.
    pods.remove("");
    Ok(pods)
}

fn is_away(error: &ContainerRuntimeError) -> bool {
    matches!(error, ContainerRuntimeError::Unavailable { .. })
}

/// Each with its pod's UID.
#[derive(Default)]
struct Found {
    sandboxes: Vec<(String, SandboxRecord)>,
    containers: Vec<(String, ContainerRecord)>,
    /// Names of the pods, for those that cannot be read.
    names: BTreeMap<String, UnreadPod>,
}

type Failures = BTreeMap<String, ContainerRuntimeError>;

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

async fn look(
    client: &CriClient,
    label_selector: BTreeMap<String, String>,
    standstill: Option<Duration>,
) -> Result<(Found, Failures), ContainerRuntimeError> {
    let (sandboxes, containers) = list(client, label_selector).await?;
    let mut failures = Failures::new();
    let names = names(&sandboxes, &containers);
    let pod_of: BTreeMap<String, String> =
        sandboxes.iter().map(|sandbox| (sandbox.id.clone(), uid_of_sandbox(sandbox))).collect();
    let of_sandboxes = sandboxes.into_iter().map(|sandbox| {
        let uid = uid_of_sandbox(&sandbox);
        (uid, Asked::Sandbox { id: sandbox.id })
    });
    let of_containers = containers.into_iter().map(|container| {
        let labelled = container.labels.get(POD_UID_LABEL);
        let uid = labelled.or_else(|| pod_of.get(&container.pod_sandbox_id)).cloned();
        let v1::Container { id, pod_sandbox_id: sandbox_id, .. } = container;
        (uid.unwrap_or_default(), Asked::Container { id, sandbox_id })
    });
    let asked = of_sandboxes.chain(of_containers).collect();
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for (uid, outcome) in each(client, asked, standstill).await? {
        match outcome {
            Ok(Some(Told::Sandbox(sandbox))) => sandboxes.push((uid, sandbox)),
            Ok(Some(Told::Container(container))) => containers.push((uid, *container)),
            Ok(None) => {}
            // The first error of each pod is kept.
            Err(error) => {
                failures.entry(uid).or_insert(error);
            }
        }
    }
    Ok((Found { sandboxes, containers, names }, failures))
}

/// What the listings alone contain of each pod.
fn names(
    sandboxes: &[v1::PodSandbox],
    containers: &[v1::Container],
) -> BTreeMap<String, UnreadPod> {
    let label = |labels: &BTreeMap<String, String>, key: &str| labels.get(key).cloned();
    let of_containers = containers.iter().filter_map(|container| {
        let uid = label(&container.labels, POD_UID_LABEL)?;
        Some(UnreadPod {
            uid,
            namespace: label(&container.labels, POD_NAMESPACE_LABEL).unwrap_or_default(),
            name: label(&container.labels, POD_NAME_LABEL).unwrap_or_default(),
            of_kubelet: true,
            why: String::new(),
        })
    });
    let of_sandboxes = sandboxes.iter().map(|sandbox| {
        let metadata = sandbox.metadata.clone().unwrap_or_default();
        UnreadPod {
            uid: uid_of_sandbox(sandbox),
            namespace: metadata.namespace,
            name: metadata.name,
            of_kubelet: sandbox.labels.contains_key(POD_UID_LABEL),
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
enum Asked {
    Sandbox { id: String },
    Container { id: String, sandbox_id: String },
}

/// The result of a status call.
enum Told {
    Sandbox(SandboxRecord),
    /// Boxed: much larger than the other variants.
    Container(Box<ContainerRecord>),
}

impl Asked {
    fn call(&self) -> &'static str {
        match self {
            Self::Sandbox { .. } => "PodSandboxStatus",
            Self::Container { .. } => "ContainerStatus",
        }
    }

    async fn ask(self, client: &CriClient) -> Outcome<Told> {
        Ok(match self {
            Self::Sandbox { id } => sandbox_status(client, id).await?.map(Told::Sandbox),
            Self::Container { id, sandbox_id } => {
                let record = container_status(client, id, sandbox_id).await?;
                record.map(|record| Told::Container(Box::new(record)))
            }
        })
    }
}

/// Makes the status calls, so many at a time, and returns the results in the order of the requests.
/// If none returns for as long as `standstill`, those in flight are dropped and count as
/// unanswered. Dropping this cancels the calls in flight.
async fn each(
    client: &CriClient,
    asked: Vec<(String, Asked)>,
    standstill: Option<Duration>,
) -> Result<Vec<(String, Outcome<Told>)>, ContainerRuntimeError> {
    let (uids, asked): (Vec<String>, Vec<Asked>) = asked.into_iter().unzip();
    let calls: Vec<&'static str> = asked.iter().map(Asked::call).collect();
    let mut waiting: VecDeque<(usize, Asked)> = asked.into_iter().enumerate().collect();
    let mut results: Vec<Option<Outcome<Told>>> = waiting.iter().map(|_| None).collect();
    let mut running = JoinSet::new();
    loop {
        while running.len() < AT_A_TIME
            && let Some((place, asked)) = waiting.pop_front()
        {
            let client = client.clone();
            running.spawn(async move { (place, asked.ask(&client).await) });
        }
        let next = match standstill {
            None => Ok(running.join_next().await),
            Some(limit) => tokio::time::timeout(limit, running.join_next()).await,
        };
        match next {
            Ok(None) => break,
            Ok(Some(Ok((place, result)))) => {
                if let Some(slot) = results.get_mut(place) {
                    *slot = Some(result);
                }
            }
            Ok(Some(Err(broken))) => {
                let why = format!("a look broke off: {broken}");
                return Err(senseless("ContainerStatus", why));
            }
            Err(_) => running = JoinSet::new(),
        }
    }
    let limit = standstill.unwrap_or_default();
    let results = results.into_iter().zip(calls).map(|(result, call)| {
        result.unwrap_or(Err(ContainerRuntimeError::DeadlineExceeded { call, limit }))
    });
    Ok(uids.into_iter().zip(results).collect())
}

async fn sandbox_status(client: &CriClient, id: String) -> Outcome<SandboxRecord> {
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false };
    let answer = match client.pod_sandbox_status(request).await {
        Err(ContainerRuntimeError::NotFound { .. }) => return Ok(None),
        answer => answer?,
    };
    match answer.status {
        Some(status) if status.id == id => Ok(Some(records::sandbox(status))),
        _ => Err(senseless("PodSandboxStatus", format!("no status of sandbox {id:?}"))),
    }
}

async fn container_status(
    client: &CriClient,
    id: String,
    sandbox_id: String,
) -> Outcome<ContainerRecord> {
    let request = v1::ContainerStatusRequest { container_id: id.clone(), verbose: false };
    let answer = match client.container_status(request).await {
        Err(ContainerRuntimeError::NotFound { .. }) => return Ok(None),
        answer => answer?,
    };
    match answer.status {
        Some(status) if status.id == id => Ok(Some(records::container(status, sandbox_id))),
        _ => Err(senseless("ContainerStatus", format!("no status of container {id:?}"))),
    }
}
