//! What a runtime has of one pod or of all: a listing, then the status of each thing listed.
//!
//! Rule: a pod is told whole or not at all. What vanished in between is left out; what cannot be
//! read takes its own pod out of the answer (or fails the look at that pod), never another's. At
//! most so many statuses are asked for at a time. Does not compare with an earlier look.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{ContainerRecord, RuntimePods, SandboxRecord, UnreadPod};
use tokio::task::JoinSet;

use super::records::{self, POD_UID_LABEL};
use super::senseless;
use crate::client::CriClient;

/// Statuses asked for at a time: enough that one that hangs holds up no other, few enough not to
/// flood a runtime that has just started.
const AT_A_TIME: usize = 8;

type Outcome<T> = Result<Option<T>, ContainerRuntimeError>;

pub(super) async fn all(client: &CriClient) -> Result<RuntimePods, ContainerRuntimeError> {
    let (found, failures) = look(client, BTreeMap::new()).await?;
    // Nobody answers: that is true of all pods and not of those that happened to be asked for.
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
            .map(|(uid, error)| UnreadPod { uid: uid.clone(), why: error.to_string() })
            .collect(),
    })
}

pub(super) async fn pod(
    client: &CriClient,
    uid: &str,
) -> Result<RuntimePods, ContainerRuntimeError> {
    let labels = [(POD_UID_LABEL.to_owned(), uid.to_owned())].into();
    let (found, failures) = look(client, labels).await?;
    if let Some(error) = failures.into_values().next() {
        return Err(error);
    }
    Ok(RuntimePods {
        sandboxes: found.sandboxes.into_iter().map(|(_, sandbox)| sandbox).collect(),
        containers: found.containers.into_iter().map(|(_, container)| container).collect(),
        unread: Vec::new(),
    })
}

fn is_away(error: &ContainerRuntimeError) -> bool {
    matches!(error, ContainerRuntimeError::Unavailable { .. })
}

/// Each with the UID of its pod.
#[derive(Default)]
struct Found {
    sandboxes: Vec<(String, SandboxRecord)>,
    containers: Vec<(String, ContainerRecord)>,
}

type Failures = BTreeMap<String, ContainerRuntimeError>;

async fn look(
    client: &CriClient,
    label_selector: BTreeMap<String, String>,
) -> Result<(Found, Failures), ContainerRuntimeError> {
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
    let (sandboxes, containers) = (sandboxes.items, containers.containers);
    let mut failures = Failures::new();
    let pod_of: BTreeMap<String, String> =
        sandboxes.iter().map(|sandbox| (sandbox.id.clone(), uid_of_sandbox(sandbox))).collect();
    let looks = sandboxes.into_iter().map(|sandbox| {
        let (client, uid) = (client.clone(), uid_of_sandbox(&sandbox));
        async move { (uid, sandbox_status(&client, sandbox.id).await) }
    });
    let sandboxes = sorted_out(each(looks).await?, &mut failures);
    let looks = containers.into_iter().map(|container| {
        let labelled = container.labels.get(POD_UID_LABEL);
        let uid = labelled.or_else(|| pod_of.get(&container.pod_sandbox_id)).cloned();
        let client = client.clone();
        async move { (uid.unwrap_or_default(), container_status(&client, container).await) }
    });
    let containers = sorted_out(each(looks).await?, &mut failures);
    Ok((Found { sandboxes, containers }, failures))
}

fn uid_of_sandbox(sandbox: &v1::PodSandbox) -> String {
    let labelled = sandbox.labels.get(POD_UID_LABEL).cloned();
    labelled.unwrap_or_else(|| sandbox.metadata.clone().unwrap_or_default().uid)
}

/// Keeps what was found; the first failure of each pod is remembered.
fn sorted_out<T>(looked: Vec<(String, Outcome<T>)>, failures: &mut Failures) -> Vec<(String, T)> {
    let mut found = Vec::with_capacity(looked.len());
    for (uid, outcome) in looked {
        match outcome {
            Ok(Some(record)) => found.push((uid, record)),
            Ok(None) => {}
            Err(error) => {
                failures.entry(uid).or_insert(error);
            }
        }
    }
    found
}

/// Runs the looks, so many at a time, and gives their results in the order of the looks. Dropped,
/// it ends those that still run.
async fn each<Look>(
    looks: impl Iterator<Item = Look>,
) -> Result<Vec<Look::Output>, ContainerRuntimeError>
where
    Look: Future + Send + 'static,
    Look::Output: Send,
{
    let mut waiting: VecDeque<(usize, Look)> = looks.enumerate().collect();
    let mut results: Vec<Option<Look::Output>> = waiting.iter().map(|_| None).collect();
    let mut running = JoinSet::new();
    loop {
        while running.len() < AT_A_TIME
            && let Some((place, look)) = waiting.pop_front()
        {
            running.spawn(async move { (place, look.await) });
        }
        match running.join_next().await {
            None => return Ok(results.into_iter().flatten().collect()),
            Some(Ok((place, result))) => {
                if let Some(slot) = results.get_mut(place) {
                    *slot = Some(result);
                }
            }
            Some(Err(broken)) => {
                return Err(senseless("ContainerStatus", format!("a look broke off: {broken}")));
            }
        }
    }
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

async fn container_status(client: &CriClient, listed: v1::Container) -> Outcome<ContainerRecord> {
    let v1::Container { id, pod_sandbox_id, .. } = listed;
    let request = v1::ContainerStatusRequest { container_id: id.clone(), verbose: false };
    let answer = match client.container_status(request).await {
        Err(ContainerRuntimeError::NotFound { .. }) => return Ok(None),
        answer => answer?,
    };
    match answer.status {
        Some(status) if status.id == id => Ok(Some(records::container(status, pod_sandbox_id))),
        _ => Err(senseless("ContainerStatus", format!("no status of container {id:?}"))),
    }
}
