//! Commands in containers: ExecSync, and what the streams need of it.
//!
//! Rule: an exec ends with its caller: when the client disconnects or the deadline passes, it is
//! killed with its descendants. (With a deadline these are found by a cgroup that no process can
//! leave; without one by the session and its children, which a daemon may leave.) Output is kept up
//! to a limit and read to its end, so that the command never blocks on it. The deadline covers all
//! of that, including a child that goes on printing after the command has exited.
//!
//! upstream: containerd internal/cri/server/container_execsync.go

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use container_create::spec::ProcessSpec;
use cri_wire::{MESSAGE_SIZE_LIMIT, v1};
use pod_supervisor::protocol::ProcessExit;
use pod_supervisor::{ClientError, ExecOptions, StdioDescriptors, SupervisorClient};
use prost::Message as _;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tonic::Code;

use super::Runtime;
use super::container_views::state_of;
use crate::failure::{CallContext as _, CriError, Result};
use crate::identity;
use crate::record_store::{Container, Sandbox};
use crate::supervision::SupervisorConnection;
use leftover_processes::LeftoverProcesses;

mod leftover_processes;
#[cfg(test)]
mod tests;

/// How much of each stream is kept.
const MAX_OUTPUT: usize = 16 << 20;
/// After the command's exit, wait this long for output of a child that holds its streams, counted
/// from when the child last ran.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long after its deadline the supervisor may take to report a command's end.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// The error for a command whose exit status is lost.
pub(crate) const EXIT_UNKNOWN_MESSAGE: &str = "how the command ended is not known: the pod's supervisor has ended, or does not know it any more";

/// A running container and its supervisor.
pub(crate) struct RunningContainer {
    pub(crate) container: Arc<Container>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) supervisor: Arc<SupervisorConnection>,
}

/// Kills an exec whose caller is gone, over the connection that exists by then.
pub(crate) struct ExecGuard {
    runtime: Runtime,
    sandbox: Arc<Sandbox>,
    container: String,
    exec: String,
    armed: bool,
}

impl ExecGuard {
    pub(crate) fn new(runtime: &Runtime, running: &RunningContainer, exec: &str) -> Self {
        Self {
            runtime: runtime.clone(),
            sandbox: Arc::clone(&running.sandbox),
            container: running.container.id.clone(),
            exec: exec.to_owned(),
            armed: true,
        }
    }

    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }

    /// The start failed. If the connection was cut, the exec may run all the same, and is killed.
    pub(crate) fn not_started(self, error: &ClientError) {
        self.sandbox.execs.forget(&self.exec);
        if !error.is_disconnected() {
            self.disarm();
        }
    }

    /// Kills the exec's remaining processes, and waits until that is done.
    async fn kill(self) {
        self.sandbox.execs.forget(&self.exec);
        // After an error, the drop tries once more.
        if kill_exec(&self.runtime, &self.sandbox, &self.container, &self.exec).await.is_ok() {
            self.disarm();
        }
    }
}

async fn kill_exec(
    runtime: &Runtime,
    sandbox: &Arc<Sandbox>,
    container: &str,
    exec: &str,
) -> Result<()> {
    let kill =
        |client: SupervisorClient| async move { client.kill_exec(container, exec, 9, true).await };
    runtime.call_supervisor(sandbox, kill).await
}

impl Drop for ExecGuard {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        self.sandbox.execs.forget(&self.exec);
        let (runtime, sandbox) = (self.runtime.clone(), Arc::clone(&self.sandbox));
        let (container, exec) = (self.container.clone(), self.exec.clone());
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            handle.spawn(async move {
                let _ = Box::pin(kill_exec(&runtime, &sandbox, &container, &exec)).await;
            });
        }
    }
}

impl Runtime {
    /// The container, if a command can be run in it.
    pub(crate) fn running_container(&self, id: &str) -> Result<Arc<Container>> {
        let container = self.record_store.container(id)?;
        match state_of(&container.record()) {
            v1::ContainerState::ContainerRunning => Ok(container),
            state => Err(CriError::plain(format!("container is in {} state", state.as_str_name()))),
        }
    }

    /// The same, with its supervisor.
    pub(crate) async fn running(&self, id: &str) -> Result<RunningContainer> {
        let container = self.running_container(id)?;
        let sandbox = self.record_store.sandbox(&container.sandbox_id)?;
        let supervisor = self.supervisor_of(&sandbox).await?;
        Ok(RunningContainer { container, sandbox, supervisor })
    }

    /// The command with the container's environment, working directory and user.
    pub(crate) async fn exec_process(
        &self,
        container: &str,
        command: Vec<String>,
        terminal: bool,
    ) -> Result<ProcessSpec> {
        if command.is_empty() {
            return Err(CriError::plain("no command specified"));
        }
        let own = self.specification(container).await?.process.unwrap_or_default();
        let mut environment = own.environment;
        if terminal && !environment.iter().any(|entry| entry.starts_with("TERM=")) {
            environment.push("TERM=xterm".to_owned());
        }
        Ok(ProcessSpec {
            arguments: command,
            environment,
            working_directory: own.working_directory,
            terminal,
            terminal_size: None,
        })
    }

    pub async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        let id = request.container_id.clone();
        self.exec_and_collect(request)
            .await
            .map_err(|failure| match failure.code {
                Code::NotFound => {
                    failure.with_context(format!("failed to find container {id:?} in store"))
                }
                _ => failure,
            })
            .doing("failed to exec in container")
    }

    async fn exec_and_collect(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        let running = self.running(&request.container_id).await?;
        let process = self.exec_process(&running.container.id, request.cmd, false).await?;
        let exec = identity::fresh()?;
        let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0);
        let limit = limit.map(Duration::from_secs);
        let (output, stdout) = pipe_pair()?;
        let (errors, stderr) = pipe_pair()?;
        let exited = running.sandbox.execs.expect(&exec);
        let guard = ExecGuard::new(self, &running, &exec);
        let deadline = limit.and_then(deadline_of);
        let started = running
            .supervisor
            .client
            .exec(ExecOptions {
                container: running.container.id.clone(),
                exec: exec.clone(),
                process,
                timeout: limit,
                stdio: StdioDescriptors { stdin: None, stdout: Some(stdout), stderr: Some(stderr) },
                user: None,
            })
            .await;
        if let Err(error) = started {
            guard.not_started(&error);
            return Err(error.into());
        }
        running.sandbox.execs.started(&exec);
        // Without a deadline it has no cgroup of its own, and there is nothing to look for.
        let group =
            limit.and_then(|_| self.hierarchy.group(&running.container.record().cgroup).ok());
        let left = LeftoverProcesses::of(group, &exec);
        let is_runnable = || left.clone().any_runnable();
        let Some(ended) = wait_for_command(exited, (output, errors), deadline, is_runnable).await
        else {
            guard.kill().await;
            return Err(deadline_exceeded(limit));
        };
        // Otherwise the guard kills what may be left of it.
        let exit =
            ended.exit.map_err(|_| CriError::new(Code::Unavailable, EXIT_UNKNOWN_MESSAGE))?;
        guard.disarm();
        if exit.timed_out {
            return Err(deadline_exceeded(limit));
        }
        let (stdout, stderr) = (ended.stdout?, ended.stderr?);
        check_message_size(v1::ExecSyncResponse { stdout, stderr, exit_code: exit.code })
    }
}

/// None: beyond any practical time.
fn deadline_of(limit: Duration) -> Option<Instant> {
    let now = Instant::now();
    now.checked_add(limit.saturating_add(KILL_GRACE))?;
    now.checked_add(limit)
}

fn deadline_exceeded(limit: Option<Duration>) -> CriError {
    let limit = limit.unwrap_or_default().as_secs();
    CriError::new(
        Code::DeadlineExceeded,
        format!("timeout {limit}s exceeded: context deadline exceeded"),
    )
}

/// A response that exceeds the clients' size limit is an error, with gRPC's usual message.
fn check_message_size(answer: v1::ExecSyncResponse) -> Result<v1::ExecSyncResponse> {
    let size = answer.encoded_len();
    if size <= MESSAGE_SIZE_LIMIT {
        return Ok(answer);
    }
    Err(CriError::new(
        Code::ResourceExhausted,
        format!("trying to send message larger than max ({size} vs. {MESSAGE_SIZE_LIMIT})"),
    ))
}

/// The exit of a command and its output.
struct CommandOutcome {
    exit: std::result::Result<ProcessExit, oneshot::error::RecvError>,
    stdout: Result<Vec<u8>>,
    stderr: Result<Vec<u8>>,
}

/// Waits for the command and the end of its output. None at the deadline.
async fn wait_for_command<F: Future<Output = bool>>(
    exited: oneshot::Receiver<ProcessExit>,
    (output, errors): (pipe::Receiver, pipe::Receiver),
    deadline: Option<Instant>,
    is_runnable: impl Fn() -> F,
) -> Option<CommandOutcome> {
    let (over_sender, over) = watch::channel(false);
    let mut is_over = over.clone();
    let ending = async {
        let exit = exited.await;
        over_sender.send_replace(true);
        exit
    };
    let all = async {
        let (exit, stdout, stderr) = tokio::join!(
            ending,
            collect(output, over.clone(), &is_runnable),
            collect(errors, over, &is_runnable)
        );
        CommandOutcome { exit, stdout, stderr }
    };
    let late = async {
        let Some(deadline) = deadline else { return std::future::pending().await };
        // Until the command's exit the supervisor enforces the deadline, and reports so in the
        // exit.
        let latest = deadline + KILL_GRACE;
        if tokio::time::timeout_at(latest, is_over.wait_for(|over| *over)).await.is_ok() {
            tokio::time::sleep_until(deadline).await;
        }
    };
    // The deadline first: a stream that always has something to read would starve it.
    tokio::select! {
        biased;
        () = late => None,
        ended = all => Some(ended),
    }
}

/// Our end, and the other process's end.
pub(crate) fn pipe_pair() -> Result<(pipe::Receiver, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).doing("making a pipe")?;
    let reader = pipe::Receiver::from_owned_fd(reader).doing("taking up a pipe")?;
    Ok((reader, writer))
}

/// Reads to the end, keeping at most the limit. Once the command has exited, silence ends it too,
/// unless a remaining process is only waiting for a CPU.
async fn collect<F: Future<Output = bool>>(
    mut stream: pipe::Receiver,
    mut over: watch::Receiver<bool>,
    is_runnable: impl Fn() -> F,
) -> Result<Vec<u8>> {
    let mut collected = Vec::new();
    let mut part = vec![0; 64 * 1024];
    loop {
        let read = if *over.borrow_and_update() {
            match tokio::time::timeout(IDLE_TIMEOUT, stream.read(&mut part)).await {
                Ok(read) => read,
                Err(_) if is_runnable().await => continue,
                // What it said just before it fell silent is there by now.
                Err(_) => match rustix::io::read(&stream, &mut part) {
                    Err(Errno::AGAIN) => return Ok(collected),
                    read => read.map_err(Into::into),
                },
            }
        } else {
            tokio::select! {
                read = stream.read(&mut part) => read,
                _ = over.changed() => continue,
            }
        };
        let read = read.doing("reading a command's output")?;
        if read == 0 {
            return Ok(collected);
        }
        let room = MAX_OUTPUT - collected.len();
        collected.extend_from_slice(&part[..read.min(room)]);
    }
}
