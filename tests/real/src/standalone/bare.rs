//! The runtime's own share: the CRI calls for one pod without an agent.
//!
//! Rule: the same messages that the reference kubelet sends for the measured pod, recorded from it,
//! so that the runtime has the same work (filters, mounts, limits) with and without an agent. Only
//! names and paths differ, and the pod's label, by which an agent would adopt it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cri_client::CriClient;
use cri_wire::v1;
use node_testkit::bed::Bed;

use super::agent::{AgentHome, AgentKind, AgentProcess};
use super::runtime::RuntimeObserver;
use crate::container_setup::recorder::CriRecorder;

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_UID: &str = "io.kubernetes.pod.uid";
/// How long the reference may take to send its messages.
const RECORDING: Duration = Duration::from_secs(60);

/// A kubelet's requests to a runtime for a pod with one container.
#[derive(Debug, Clone)]
pub struct Messages {
    sandbox: v1::PodSandboxConfig,
    container: v1::ContainerConfig,
}

/// The runtime's own time for a container that exits and is recreated.
#[derive(Debug, Clone, Copy)]
pub struct Crash {
    /// Includes the time until the runtime reports the exit.
    pub whole: Duration,
    /// Of the first container.
    pub create_and_start: Duration,
}

/// Has the reference kubelet run these pods (name, which is the UID too, and manifest) on a
/// recording runtime.
pub fn record(bed: &Bed, pods: &[(&str, String)]) -> Result<Vec<Messages>> {
    let socket = bed.create_dir("recorder")?.join("runtime.sock");
    let recorder = CriRecorder::default();
    let _served = recorder.serve(&socket)?;
    let kind = AgentKind::reference()?;
    let home = AgentHome::new(bed, "recorded", &format!("unix://{}", socket.display()))?;
    let agent = AgentProcess::start(bed, &kind, &home)?;
    for (name, manifest) in pods {
        agent.place(name, manifest)?;
    }
    let begun = Instant::now();
    let found = |name: &str| {
        let (sandbox, containers) = recorder.of_pod(name)?;
        Some(Messages { sandbox, container: containers.into_iter().next()? })
    };
    let recorded = loop {
        let all: Option<Vec<Messages>> = pods.iter().map(|(name, _)| found(name)).collect();
        if all.is_some() || begun.elapsed() > RECORDING {
            break all;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    agent.end()?;
    recorded.context("the reference kubelet did not send its messages")
}

impl Messages {
    /// The same for a pod of this name, with its mount sources created below a directory.
    fn named(&self, name: &str, dir: &Path) -> Result<Self> {
        let mut renamed = self.clone();
        let sandbox = &mut renamed.sandbox;
        let metadata = sandbox.metadata.as_mut().context("a sandbox has metadata")?;
        (metadata.name, metadata.uid) = (name.to_owned(), name.to_owned());
        sandbox.log_directory = dir.join("logs").display().to_string();
        sandbox.linux.as_mut().context("a sandbox for Linux")?.cgroup_parent = "/bare".to_owned();
        for labels in [&mut sandbox.labels, &mut renamed.container.labels] {
            labels.insert(POD_NAME.to_owned(), name.to_owned());
            labels.remove(POD_UID);
        }
        // The recording runtime's ids are the names with the kind of a digest in front.
        if let Some(image) = &mut renamed.container.image {
            image.image = image.image.trim_start_matches("sha256:").to_owned();
        }
        fs::create_dir_all(dir)?;
        for (number, mount) in renamed.container.mounts.iter_mut().enumerate() {
            let place = dir.join(number.to_string());
            if mount.host_path.contains("/volumes/") {
                fs::create_dir_all(&place)?;
            } else {
                fs::write(&place, "")?;
            }
            mount.host_path = place.display().to_string();
        }
        Ok(renamed)
    }

    async fn run_sandbox(&self, client: &CriClient) -> Result<String> {
        let config = Some(self.sandbox.clone());
        let run = v1::RunPodSandboxRequest { config, ..Default::default() };
        Ok(client.run_pod_sandbox(run).await?.pod_sandbox_id)
    }

    async fn start(&self, client: &CriClient, sandbox: &str, attempt: u32) -> Result<String> {
        let mut config = self.container.clone();
        config.metadata.as_mut().context("a container has metadata")?.attempt = attempt;
        config.log_path = format!("main-{attempt}.log");
        let create = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(self.sandbox.clone()),
        };
        let container_id = client.create_container(create).await?.container_id;
        let start = v1::StartContainerRequest { container_id: container_id.clone() };
        client.start_container(start).await?;
        Ok(container_id)
    }
}

impl RuntimeObserver {
    /// One pod, removed again: the time of its calls.
    pub fn bare_pod(&self, name: &str, messages: &Messages, dir: &Path) -> Result<Duration> {
        let renamed = messages.named(name, &dir.join(name))?;
        let took = self.run(async |client| {
            let begun = Instant::now();
            let sandbox = renamed.run_sandbox(client).await?;
            renamed.start(client, &sandbox, 0).await?;
            Ok(begun.elapsed())
        })?;
        self.remove(name)?;
        Ok(took)
    }

    /// A pod whose container exits once: from the exit to the start of the next container, which is
    /// created as soon as the runtime reports the exit.
    pub fn bare_crash(&self, name: &str, messages: &Messages, dir: &Path) -> Result<Crash> {
        let renamed = messages.named(name, &dir.join(name))?;
        let crash = self.run(async |client| {
            let sandbox = renamed.run_sandbox(client).await?;
            let begun = Instant::now();
            let first = renamed.start(client, &sandbox, 0).await?;
            let create_and_start = begun.elapsed();
            let mut events = client.container_events();
            while !is_end(&events.next().await?.context("an event")?, &first) {}
            let second = renamed.start(client, &sandbox, 1).await?;
            let ended = status(client, &first).await?.finished_at;
            let again = status(client, &second).await?.started_at;
            let whole = Duration::from_nanos(u64::try_from(again - ended)?);
            Ok(Crash { whole, create_and_start })
        })?;
        self.remove(name)?;
        Ok(crash)
    }
}

fn is_end(event: &v1::ContainerEventResponse, container: &str) -> bool {
    let stopped = v1::ContainerEventType::ContainerStoppedEvent as i32;
    event.container_id == container && event.container_event_type == stopped
}

async fn status(client: &CriClient, container: &str) -> Result<v1::ContainerStatus> {
    let container_id = container.to_owned();
    let asked = v1::ContainerStatusRequest { container_id, ..Default::default() };
    client.container_status(asked).await?.status.context("a status")
}
