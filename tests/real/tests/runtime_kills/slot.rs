//! A slot in which pod after pod is created, used and removed, as by a kubelet, while processes are
//! killed.
//!
//! Rule: after an interruption the runtime is queried for what exists, and the work continues from
//! its response; every response is compared with what the containers have written themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use cri_wire::v1;
use tonic::{Code, Status};

use crate::calls::{CallOutcome, RetryingClient};
use crate::kill_plan::{KillTargets, RandomSequence};
use crate::pods::TestPod;

const LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(30);
/// upstream: containerd's exit code for an exit that was not observed.
const UNKNOWN: i32 = 255;
const START_FAILED: i32 = 128;
const KILLED: i32 = 137;

/// Counts of successful checks.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CheckCounts {
    pub(crate) pods: usize,
    pub(crate) exits: usize,
    pub(crate) execs: usize,
    pub(crate) unknown: usize,
}

enum SlotError {
    /// The pod's supervisor was killed by the test.
    Hit,
    Wrong(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for SlotError {
    fn from(error: E) -> Self {
        Self::Wrong(error.into())
    }
}

pub(crate) struct PodSlot {
    pub(crate) caller: RetryingClient,
    pub(crate) kill_targets: Arc<KillTargets>,
    pub(crate) pod: TestPod,
    pub(crate) dice: RandomSequence,
    pub(crate) tally: CheckCounts,
    /// The containers of the pod, each with the code that it exits with by itself.
    pub(crate) wanted: BTreeMap<String, Option<i32>>,
}

impl PodSlot {
    /// Runs pod after pod until the test ends.
    pub(crate) async fn run(mut self) -> Result<CheckCounts> {
        while !self.kill_targets.is_over() {
            let pod = self.pod;
            Box::pin(self.life()).await.with_context(|| format!("{pod:?}"))?;
            self.tally.pods += 1;
            self.pod.round += 1;
        }
        Ok(self.tally)
    }

    /// One pod from its creation to its removal.
    pub(crate) async fn life(&mut self) -> Result<()> {
        self.kill_targets.begin(self.pod.slot);
        self.wanted.clear();
        match Box::pin(self.run_pod()).await {
            Ok(()) => {}
            Err(SlotError::Hit) => {
                self.check_after_supervisor_death().await.context("after its supervisor died")?;
            }
            Err(SlotError::Wrong(error)) => return Err(error),
        }
        self.remove().await?;
        for name in self.wanted.keys() {
            let (begun, ended) = self.pod.truth(name)?;
            ensure!(begun <= 1 && ended <= 1, "{name} ran {begun} times and ended {ended} times");
        }
        Ok(())
    }

    /// Creates the pod with one container, started or not; returns its id.
    pub(crate) async fn make(
        &mut self,
        config: v1::ContainerConfig,
        (code, start): (Option<i32>, bool),
    ) -> Result<String> {
        self.kill_targets.begin(self.pod.slot);
        let name = config.metadata.clone().unwrap_or_default().name;
        let made = async {
            let sandbox = match self.sandboxes().await?.first() {
                Some(one) => one.id.clone(),
                None => self.sandbox().await?,
            };
            let id = self.container(&sandbox, config, code).await?;
            if start {
                self.started(&id, &name).await?;
            }
            Ok(id)
        };
        match Box::pin(made).await {
            Ok(id) => Ok(id),
            Err(SlotError::Wrong(error)) => Err(error),
            Err(SlotError::Hit) => bail!("nobody has hit it"),
        }
    }

    async fn run_pod(&mut self) -> Result<(), SlotError> {
        let sandbox = self.sandbox().await?;
        self.kill_targets.has_sandbox(self.pod.slot, &sandbox);
        let steady = self.container(&sandbox, self.pod.steady(), None).await?;
        self.started(&steady, "steady").await?;
        let done = Arc::new(AtomicBool::new(false));
        let session = tokio::spawn(session(
            self.caller.clone(),
            (Arc::clone(&self.kill_targets), self.pod.slot),
            steady.clone(),
            Arc::clone(&done),
        ));
        let outcome = self.use_pod(&sandbox, &steady).await;
        done.store(true, Ordering::SeqCst);
        self.tally.execs += session.await.map_err(anyhow::Error::from)??;
        outcome
    }

    async fn use_pod(&mut self, sandbox: &str, steady: &str) -> Result<(), SlotError> {
        // Every other pod stays for a while, so that it lives through several servers.
        let turns = if self.pod.slot.is_multiple_of(2) { 6 } else { 1 };
        for turn in 0..turns {
            let name = format!("brief-{turn}");
            let code = 1 + i32::try_from(self.dice.below(100)).unwrap_or_default();
            let config = self.pod.brief(&name, code, 1_000 * self.dice.below(250));
            let brief = self.container(sandbox, config, Some(code)).await?;
            self.started(&brief, &name).await?;
            self.exec(steady).await?;
            self.ended(&brief, &name).await?;
            if turn % 2 == 0 {
                self.remove_container(&brief).await?;
            }
            if self.kill_targets.is_over() {
                break;
            }
        }
        let status =
            self.status(steady).await?.map_err(|status| self.refused("status", &status))?;
        self.check("steady", &status).await
    }

    /// An error is acceptable only if the test has killed the supervisor.
    fn refused(&self, what: &str, status: &Status) -> SlotError {
        if self.kill_targets.is_hit(self.pod.slot) {
            return SlotError::Hit;
        }
        SlotError::Wrong(anyhow!("{what} was refused: {status}"))
    }

    async fn sandbox(&mut self) -> Result<String, SlotError> {
        loop {
            let request = v1::RunPodSandboxRequest {
                config: Some(self.pod.config()),
                runtime_handler: String::new(),
            };
            let mut runtime = self.caller.runtime();
            let call = Box::pin(runtime.run_pod_sandbox(request));
            match self.caller.change("RunPodSandbox", call).await? {
                CallOutcome::Answer(answer) => return Ok(answer.pod_sandbox_id),
                CallOutcome::Refused(status) => return Err(self.refused("RunPodSandbox", &status)),
                CallOutcome::Interrupted => {}
            }
            let found = self.sandboxes().await?;
            match found.as_slice() {
                [] => {}
                [one] if one.state() == v1::PodSandboxState::SandboxReady => {
                    return Ok(one.id.clone());
                }
                other => return Err(anyhow!("found after an interruption: {other:?}").into()),
            }
        }
    }

    pub(crate) async fn sandboxes(&self) -> Result<Vec<v1::PodSandbox>> {
        let filter =
            v1::PodSandboxFilter { label_selector: self.pod.labels(), ..Default::default() };
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let ask = |mut runtime: RuntimeConnection| {
            let request = request.clone();
            async move { runtime.list_pod_sandbox(request).await }
        };
        Ok(self.caller.look("ListPodSandbox", ask).await??.items)
    }

    async fn containers(&self, labels: BTreeMap<String, String>) -> Result<Vec<v1::Container>> {
        let filter = v1::ContainerFilter { label_selector: labels, ..Default::default() };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let ask = |mut runtime: RuntimeConnection| {
            let request = request.clone();
            async move { runtime.list_containers(request).await }
        };
        Ok(self.caller.look("ListContainers", ask).await??.containers)
    }

    pub(crate) async fn status(&self, id: &str) -> Result<Result<v1::ContainerStatus, Status>> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let ask = |mut runtime: RuntimeConnection| {
            let request = request.clone();
            async move { runtime.container_status(request).await }
        };
        let status_result = self.caller.look("ContainerStatus", ask).await?;
        status_result.map_or_else(
            |status| Ok(Err(status)),
            |answer| Ok(Ok(answer.status.context("no status came")?)),
        )
    }

    async fn container(
        &mut self,
        sandbox: &str,
        config: v1::ContainerConfig,
        code: Option<i32>,
    ) -> Result<String, SlotError> {
        let name = config.metadata.clone().unwrap_or_default().name;
        self.wanted.insert(name.clone(), code);
        loop {
            let request = v1::CreateContainerRequest {
                pod_sandbox_id: sandbox.to_owned(),
                config: Some(config.clone()),
                sandbox_config: Some(self.pod.config()),
            };
            let mut runtime = self.caller.runtime();
            let call = Box::pin(runtime.create_container(request));
            match self.caller.change("CreateContainer", call).await? {
                CallOutcome::Answer(answer) => return Ok(answer.container_id),
                CallOutcome::Refused(status) => {
                    return Err(self.refused("CreateContainer", &status));
                }
                CallOutcome::Interrupted => {}
            }
            let found = self.containers(self.pod.of_container(&name)).await?;
            match found.as_slice() {
                [] => {}
                [one] => return Ok(one.id.clone()),
                other => return Err(anyhow!("found after an interruption: {other:?}").into()),
            }
        }
    }

    async fn started(&mut self, id: &str, name: &str) -> Result<(), SlotError> {
        loop {
            let request = v1::StartContainerRequest { container_id: id.to_owned() };
            let mut runtime = self.caller.runtime();
            let call = runtime.start_container(request);
            match self.caller.change("StartContainer", call).await? {
                CallOutcome::Answer(_) => return Ok(()),
                CallOutcome::Refused(status) => return Err(self.refused("StartContainer", &status)),
                CallOutcome::Interrupted => {}
            }
            let status =
                self.status(id).await?.map_err(|status| self.refused("status", &status))?;
            if status.state() != v1::ContainerState::ContainerCreated {
                return Ok(());
            }
            let (begun, _) = self.pod.truth(name)?;
            if begun > 0 {
                return Err(anyhow!("{name} is told as not started, but it ran").into());
            }
        }
    }

    async fn exec(&mut self, id: &str) -> Result<(), SlotError> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: ["sh", "-c", "echo out-$((6*7)); exit 5"].map(str::to_owned).into(),
            timeout: 60,
        };
        let mut runtime = self.caller.runtime();
        match self.caller.change("ExecSync", runtime.exec_sync(request)).await? {
            CallOutcome::Answer(answer) => {
                let right = answer.exit_code == 5 && answer.stdout == b"out-42\n";
                if !right {
                    return Err(anyhow!("an exec answered {answer:?}").into());
                }
                self.tally.execs += 1;
                Ok(())
            }
            CallOutcome::Refused(status) => Err(self.refused("ExecSync", &status)),
            CallOutcome::Interrupted => Ok(()),
        }
    }

    async fn ended(&mut self, id: &str, name: &str) -> Result<(), SlotError> {
        let begun = Instant::now();
        loop {
            let status =
                self.status(id).await?.map_err(|status| self.refused("status", &status))?;
            if status.state() == v1::ContainerState::ContainerExited {
                return self.check(name, &status).await;
            }
            if self.kill_targets.is_hit(self.pod.slot) {
                return Err(SlotError::Hit);
            }
            if begun.elapsed() > LIMIT {
                return Err(anyhow!("{name} is still {:?}", status.state()).into());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Compares a container's status with what the container has written.
    async fn check(&mut self, name: &str, status: &v1::ContainerStatus) -> Result<(), SlotError> {
        use v1::ContainerState as State;
        let (hit, lossy) =
            (self.kill_targets.is_hit(self.pod.slot), self.kill_targets.is_lossy(self.pod.slot));
        let code = self.wanted.get(name).copied().flatten();
        let mut truth = self.pod.truth(name)?;
        if status.state() == State::ContainerRunning {
            // It runs; its first words may still be on their way.
            let asked = Instant::now();
            while truth.0 == 0 && asked.elapsed() < LIMIT {
                tokio::time::sleep(PAUSE).await;
                truth = self.pod.truth(name)?;
            }
        }
        let (begun, ended) = truth;
        let right = match (status.state(), status.exit_code) {
            (State::ContainerCreated, _) => begun == 0,
            (State::ContainerRunning, _) => begun == 1,
            (State::ContainerExited, reported) if Some(reported) == code => {
                begun == 1 && ended == 1
            }
            (State::ContainerExited, KILLED) => hit && begun <= 1,
            (State::ContainerExited, START_FAILED) => hit && begun == 0,
            (State::ContainerExited, UNKNOWN) => {
                self.tally.unknown += 1;
                // The next server finds and stops a container that kept running, and learns its
                // exit code.
                let unheard = lossy && code.is_some();
                let unknown =
                    unheard || begun == 0 || self.kill_targets.is_unsettled(self.pod.slot);
                hit && status.reason == "Unknown" && unknown && begun <= 1
            }
            _ => false,
        };
        if !right {
            return Err(anyhow!(
                "{name} is told as {:?} with {} ({}, {}), wanted {code:?}; it began {begun} and \
                 ended {ended} times; supervisor killed: {hit}, with the server: {lossy}",
                status.state(),
                status.exit_code,
                status.reason,
                status.message,
            )
            .into());
        }
        self.tally.exits += usize::from(status.state() == State::ContainerExited);
        Ok(())
    }

    /// The supervisor is dead: the pod is reported NotReady, and each container truthfully.
    async fn check_after_supervisor_death(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let sandboxes = self.sandboxes().await?;
            let over =
                sandboxes.iter().all(|one| one.state() == v1::PodSandboxState::SandboxNotready);
            // It is reported NotReady before its containers are stopped.
            let containers = self.containers(self.pod.labels()).await?;
            let runs = |one: &v1::Container| one.state() == v1::ContainerState::ContainerRunning;
            if over && !containers.iter().any(runs) {
                break;
            }
            ensure!(begun.elapsed() < LIMIT, "over: {over}; {containers:?}");
            tokio::time::sleep(PAUSE).await;
        }
        for container in self.containers(self.pod.labels()).await? {
            let name = container.metadata.unwrap_or_default().name;
            let Ok(status) = self.status(&container.id).await? else { continue };
            ensure!(
                status.state() != v1::ContainerState::ContainerRunning,
                "{name} is told as running in a pod that is over"
            );
            if let Err(SlotError::Wrong(error)) = self.check(&name, &status).await {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn remove_container(&mut self, id: &str) -> Result<(), SlotError> {
        loop {
            let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
            let mut runtime = self.caller.runtime();
            let call = runtime.remove_container(request);
            match self.caller.change("RemoveContainer", call).await? {
                CallOutcome::Answer(_) => return Ok(()),
                CallOutcome::Refused(status) => {
                    return Err(self.refused("RemoveContainer", &status));
                }
                CallOutcome::Interrupted => {}
            }
        }
    }

    /// Stops and removes; a pod whose supervisor is just dying may need retries.
    pub(crate) async fn remove(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let found = self.sandboxes().await?;
            ensure!(found.len() <= 1, "{found:?}");
            let Some(sandbox) = found.first() else { break };
            let mut runtime = self.caller.runtime();
            let id = sandbox.id.clone();
            let stop = v1::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
            let call = runtime.stop_pod_sandbox(stop);
            let mut last_status = None;
            match self.caller.change("StopPodSandbox", call).await? {
                CallOutcome::Refused(status) => last_status = Some(status),
                CallOutcome::Interrupted => continue,
                CallOutcome::Answer(_) => {}
            }
            let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: id };
            let call = runtime.remove_pod_sandbox(remove);
            match self.caller.change("RemovePodSandbox", call).await? {
                CallOutcome::Refused(status) => last_status = Some(status),
                CallOutcome::Interrupted => continue,
                CallOutcome::Answer(_) => {}
            }
            if let Some(status) = last_status {
                let patient = self.kill_targets.is_hit(self.pod.slot) && begun.elapsed() < LIMIT;
                ensure!(patient, "the removal was refused: {status}");
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.kill_targets.begin(self.pod.slot);
        let left = self.containers(self.pod.labels()).await?;
        ensure!(left.is_empty(), "containers of a pod that is gone: {left:?}");
        Ok(())
    }
}

pub(crate) type RuntimeConnection =
    v1::runtime_service_client::RuntimeServiceClient<tonic::transport::Channel>;

/// Commands that take a while, one after the other: most kills find one running.
async fn session(
    caller: RetryingClient,
    (kill_targets, slot): (Arc<KillTargets>, usize),
    container: String,
    done: Arc<AtomicBool>,
) -> Result<usize> {
    let mut right = 0;
    while !done.load(Ordering::SeqCst) {
        let request = v1::ExecSyncRequest {
            container_id: container.clone(),
            cmd: ["sh", "-c", "usleep 400000; exit 9"].map(str::to_owned).into(),
            timeout: 0,
        };
        let mut runtime = caller.runtime();
        match caller.change("a session", runtime.exec_sync(request)).await? {
            CallOutcome::Answer(answer) => {
                let killed = answer.exit_code == KILLED && kill_targets.is_hit(slot);
                ensure!(answer.exit_code == 9 || killed, "a session answered {answer:?}");
                right += 1;
            }
            CallOutcome::Refused(status) => {
                let gone = status.code() == Code::NotFound;
                ensure!(kill_targets.is_hit(slot) && !gone, "a session was refused: {status}");
                break;
            }
            CallOutcome::Interrupted => {}
        }
    }
    Ok(right)
}
