//! The runtime's view of the pods.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use cri_client::{CallLimits, CriClient};
use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;

const POD_NAME: &str = "io.kubernetes.pod.name";
const LOOK_EVERY: Duration = Duration::from_millis(4);
/// The start time of a container is read from the runtime's own records: polling rarely loses
/// nothing, and polling often takes processor time from what is measured.
const LOOK_FOR_STARTS_EVERY: Duration = Duration::from_millis(50);

pub struct RuntimeObserver {
    tasks: tokio::runtime::Runtime,
    client: CriClient,
}

/// One container as the runtime reports it; times in nanoseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedContainer {
    pub id: String,
    pub pod: String,
    pub attempt: u32,
    pub started_at: i64,
    pub finished_at: i64,
}

pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl RuntimeObserver {
    pub fn connect(endpoint: &str) -> Result<Self> {
        let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = {
            let _entered = tasks.enter();
            CriClient::connect(&endpoint.parse()?, None, CallLimits::default())
        };
        Ok(Self { tasks, client })
    }

    /// All containers of pods with this name prefix, with their times.
    pub fn containers(&self, prefix: &str) -> Result<Vec<ListedContainer>> {
        self.tasks.block_on(async {
            let listed = self.client.list_containers(v1::ListContainersRequest::default()).await?;
            let mut seen = Vec::new();
            for container in listed.containers {
                let pod = container.labels.get(POD_NAME).cloned().unwrap_or_default();
                if !pod.starts_with(prefix) {
                    continue;
                }
                let request = v1::ContainerStatusRequest {
                    container_id: container.id.clone(),
                    ..Default::default()
                };
                let answer = match self.client.container_status(request).await {
                    // It went after it was listed.
                    Err(ContainerRuntimeError::NotFound { .. }) => continue,
                    answer => answer?,
                };
                let status = answer.status.context("a status")?;
                let attempt = status.metadata.map_or(0, |metadata| metadata.attempt);
                seen.push(ListedContainer {
                    id: container.id,
                    pod,
                    attempt,
                    started_at: status.started_at,
                    finished_at: status.finished_at,
                });
            }
            Ok(seen)
        })
    }

    /// Waits until this many containers of these pods have started (at the given attempt).
    pub fn wait_started(
        &self,
        prefix: &str,
        count: usize,
        attempt: u32,
    ) -> Result<Vec<ListedContainer>> {
        let begun = Instant::now();
        loop {
            // Listing is cheap, statuses are not: only when enough are there.
            // A runtime that has just been restarted may not answer yet.
            if self.running(prefix).is_ok_and(|running| running >= count) {
                let started: Vec<ListedContainer> = self
                    .containers(prefix)
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|seen| seen.attempt >= attempt && seen.started_at > 0)
                    .collect();
                if started.len() >= count {
                    return Ok(started);
                }
            }
            if begun.elapsed() > Duration::from_secs(300) {
                bail!("{count} containers of {prefix}* did not start within 5 minutes");
            }
            std::thread::sleep(LOOK_FOR_STARTS_EVERY);
        }
    }

    fn running(&self, prefix: &str) -> Result<usize> {
        self.tasks.block_on(async {
            let listed = self.client.list_containers(v1::ListContainersRequest::default()).await?;
            let ours = listed.containers.iter().filter(|container| {
                container.labels.get(POD_NAME).is_some_and(|pod| pod.starts_with(prefix))
            });
            Ok(ours.count())
        })
    }

    /// All sandboxes that it lists, ready or not.
    pub fn sandboxes(&self) -> Result<Vec<String>> {
        self.tasks.block_on(async {
            let listed = self.client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?;
            let name = |sandbox: v1::PodSandbox| {
                let name = sandbox.metadata.unwrap_or_default().name;
                format!("sandbox {} of {name}", sandbox.id)
            };
            Ok(listed.items.into_iter().map(name).collect())
        })
    }

    /// Waits until no sandbox of these pods is ready any more.
    pub fn wait_gone(&self, prefix: &str) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(300) {
            let ready = self.tasks.block_on(async {
                let request = v1::ListPodSandboxRequest::default();
                let listed = self.client.list_pod_sandbox(request).await?;
                anyhow::Ok(listed.items.iter().any(|sandbox| {
                    let name = sandbox.metadata.as_ref().map_or("", |metadata| &metadata.name);
                    name.starts_with(prefix)
                        && sandbox.state == v1::PodSandboxState::SandboxReady as i32
                }))
            })?;
            if !ready {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("pods {prefix}* were not gone within 5 minutes")
    }

    /// Stops and removes all sandboxes of all clients.
    pub fn remove_all(&self) -> Result<()> {
        self.remove("")
    }

    /// Stops and removes the sandboxes of pods with this name prefix. What an agent that has just
    /// exited was removing may still be in progress: so it retries a few times.
    pub fn remove(&self, prefix: &str) -> Result<()> {
        for _ in 0..10 {
            if self.remove_once(prefix).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        self.remove_once(prefix)
    }

    fn remove_once(&self, prefix: &str) -> Result<()> {
        self.tasks.block_on(async {
            let listed = self.client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?;
            let mut failed = None;
            let is_named = |sandbox: &v1::PodSandbox| {
                sandbox.metadata.as_ref().is_none_or(|one| one.name.starts_with(prefix))
            };
            for sandbox in listed.items.into_iter().filter(is_named) {
                let stop = v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
                let stopped = self.client.stop_pod_sandbox(stop).await;
                let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id };
                let removed = self.client.remove_pod_sandbox(remove).await;
                failed = failed.or(stopped.err()).or(removed.err());
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
            Ok(())
        })
    }

    /// Makes CRI calls through the given closure.
    pub fn run<T>(&self, calls: impl AsyncFnOnce(&CriClient) -> Result<T>) -> Result<T> {
        self.tasks.block_on(calls(&self.client))
    }
}
