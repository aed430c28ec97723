//! Commands in containers: ExecSync, and what the streams need of it.
//!
//! Rule: an exec ends with whoever asked for it: when the caller goes away, its whole tree is
//! killed. What it prints is kept up to a limit and read to its end, so that it is never stuck on
//! its own output. Its deadline is for all of that: also for a child that goes on printing after
//! the command's end.
//!
//! upstream: containerd internal/cri/server/container_execsync.go

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use container_create::spec::ProcessSpec;
use cri_wire::{MESSAGE_SIZE_LIMIT, v1};
use pod_supervisor::protocol::Exit;
use pod_supervisor::{ExecRequest, Stdio};
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
use crate::book::Container;
use crate::failure::{Doing as _, Failure, Result};
use crate::identity;
use crate::supervision::Supervisor;
use left_behind::LeftBehind;

mod left_behind;
#[cfg(test)]
mod tests;

/// What is kept of each stream.
const MOST_OUTPUT: usize = 16 << 20;
/// After the command's end, a child that holds its output is waited for this long without a word,
/// counted from when it last had a turn.
const SILENCE: Duration = Duration::from_millis(500);
/// How much later than its deadline a command's end may be told by who keeps the deadline.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// A running container and its supervisor.
pub(crate) struct Running {
    pub(crate) container: Arc<Container>,
    pub(crate) supervisor: Arc<Supervisor>,
}

/// Kills an exec that nobody waits for any more.
pub(crate) struct ExecGuard {
    supervisor: Arc<Supervisor>,
    container: String,
    exec: String,
    armed: bool,
}

impl ExecGuard {
    pub(crate) fn new(running: &Running, exec: &str) -> Self {
        Self {
            supervisor: Arc::clone(&running.supervisor),
            container: running.container.id.clone(),
            exec: exec.to_owned(),
            armed: true,
        }
    }

    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }

    /// Kills what is left of it, and waits until that is done.
    async fn kill(self) {
        self.supervisor.forget_exec(&self.exec);
        // A failure leaves it to the drop, which tries once more.
        if self.supervisor.client.kill_exec(&self.container, &self.exec, 9, true).await.is_ok() {
            self.disarm();
        }
    }
}

impl Drop for ExecGuard {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (supervisor, container, exec) =
            (Arc::clone(&self.supervisor), self.container.clone(), self.exec.clone());
        supervisor.forget_exec(&exec);
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            handle.spawn(async move {
                let _ = supervisor.client.kill_exec(&container, &exec, 9, true).await;
            });
        }
    }
}

impl Runtime {
    /// The container, if something can be run in it.
    pub(crate) fn running(&self, id: &str) -> Result<Running> {
        let container = self.book.container(id)?;
        match state_of(&container.record()) {
            v1::ContainerState::ContainerRunning => {}
            state => {
                return Err(Failure::plain(format!(
                    "container is in {} state",
                    state.as_str_name()
                )));
            }
        }
        let supervisor = self.book.sandbox(&container.sandbox_id)?.reachable()?;
        Ok(Running { container, supervisor })
    }

    /// The command with the container's own environment, folder and user.
    pub(crate) async fn exec_process(
        &self,
        container: &str,
        command: Vec<String>,
        terminal: bool,
    ) -> Result<ProcessSpec> {
        if command.is_empty() {
            return Err(Failure::plain("no command specified"));
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
                    failure.while_doing(format!("failed to find container {id:?} in store"))
                }
                _ => failure,
            })
            .doing("failed to exec in container")
    }

    async fn exec_and_collect(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        let running = self.running(&request.container_id)?;
        let process = self.exec_process(&running.container.id, request.cmd, false).await?;
        let exec = identity::fresh()?;
        let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0);
        let limit = limit.map(Duration::from_secs);
        let (output, stdout) = pipe_pair()?;
        let (errors, stderr) = pipe_pair()?;
        let exited = running.supervisor.expect_exec(&exec);
        let guard = ExecGuard::new(&running, &exec);
        let deadline = limit.map(|limit| Instant::now() + limit);
        let started = running
            .supervisor
            .client
            .exec(ExecRequest {
                container: running.container.id.clone(),
                exec: exec.clone(),
                process,
                timeout: limit,
                stdio: Stdio { stdin: None, stdout: Some(stdout), stderr: Some(stderr) },
                user: None,
            })
            .await;
        if let Err(error) = started {
            running.supervisor.forget_exec(&exec);
            guard.disarm();
            return Err(error.into());
        }
        // Without a deadline it has no group of its own, and there is nothing to look for.
        let group =
            limit.and_then(|_| self.hierarchy.group(&running.container.record().cgroup).ok());
        let left = LeftBehind::of(group, &exec);
        let goes_on = || left.clone().goes_on();
        let Some(ended) = until_over(exited, (output, errors), deadline, goes_on).await else {
            guard.kill().await;
            return Err(too_late(limit));
        };
        guard.disarm();
        let exit = ended.exit.map_err(|_| {
            Failure::new(Code::Unavailable, "the pod's supervisor ended before the command")
        })?;
        if exit.timed_out {
            return Err(too_late(limit));
        }
        let (stdout, stderr) = (ended.stdout?, ended.stderr?);
        fitting(v1::ExecSyncResponse { stdout, stderr, exit_code: exit.code })
    }
}

fn too_late(limit: Option<Duration>) -> Failure {
    let limit = limit.unwrap_or_default().as_secs();
    Failure::new(
        Code::DeadlineExceeded,
        format!("timeout {limit}s exceeded: context deadline exceeded"),
    )
}

/// An answer that no client takes is a refusal here, in the words that clients know from gRPC.
fn fitting(answer: v1::ExecSyncResponse) -> Result<v1::ExecSyncResponse> {
    let size = answer.encoded_len();
    if size <= MESSAGE_SIZE_LIMIT {
        return Ok(answer);
    }
    Err(Failure::new(
        Code::ResourceExhausted,
        format!("trying to send message larger than max ({size} vs. {MESSAGE_SIZE_LIMIT})"),
    ))
}

/// A command that is over, and all that it said.
struct Ended {
    exit: std::result::Result<Exit, oneshot::error::RecvError>,
    stdout: Result<Vec<u8>>,
    stderr: Result<Vec<u8>>,
}

/// Waits for the command and the end of its output. None: that was not before the deadline.
async fn until_over<F: Future<Output = bool>>(
    exited: oneshot::Receiver<Exit>,
    (output, errors): (pipe::Receiver, pipe::Receiver),
    deadline: Option<Instant>,
    goes_on: impl Fn() -> F,
) -> Option<Ended> {
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
            collect(output, over.clone(), &goes_on),
            collect(errors, over, &goes_on)
        );
        Ended { exit, stdout, stderr }
    };
    let late = async {
        let Some(deadline) = deadline else { return std::future::pending().await };
        // Until the command's end its supervisor keeps the deadline, and says so in the exit.
        let latest = deadline + KILLED_WITHIN;
        if tokio::time::timeout_at(latest, is_over.wait_for(|over| *over)).await.is_ok() {
            tokio::time::sleep_until(deadline).await;
        }
    };
    // First the deadline: a stream that always has something to read leaves it no turn.
    tokio::select! {
        biased;
        () = late => None,
        ended = all => Some(ended),
    }
}

/// Our end, and the end for the other process.
pub(crate) fn pipe_pair() -> Result<(pipe::Receiver, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).doing("making a pipe")?;
    let reader = pipe::Receiver::from_owned_fd(reader).doing("taking up a pipe")?;
    Ok((reader, writer))
}

/// Reads to the end, keeping at most the limit. Once the command is over, silence ends it too, unless
/// what is left behind only waits for its turn.
async fn collect<F: Future<Output = bool>>(
    mut stream: pipe::Receiver,
    mut over: watch::Receiver<bool>,
    goes_on: impl Fn() -> F,
) -> Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut part = vec![0; 64 * 1024];
    loop {
        let read = if *over.borrow_and_update() {
            match tokio::time::timeout(SILENCE, stream.read(&mut part)).await {
                Ok(read) => read,
                Err(_) if goes_on().await => continue,
                // What it said just before it fell silent is there by now.
                Err(_) => match rustix::io::read(&stream, &mut part) {
                    Err(Errno::AGAIN) => return Ok(kept),
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
            return Ok(kept);
        }
        let room = MOST_OUTPUT - kept.len();
        kept.extend_from_slice(&part[..read.min(room)]);
    }
}
