//! StartContainer, StopContainer, RemoveContainer.
//!
//! Rule: a start is on disk before it is sent to the supervisor, so that no container runs twice; a
//! container that could not be started is terminated, with a reason.
//!
//! upstream: containerd internal/cri/server/container_start.go, _stop.go, _remove.go

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use container_create::spec::ContainerSpec;
use cri_wire::v1;
use cri_wire::v1::ContainerEventType as Kind;
use pod_supervisor::SupervisorClient;
use prost::Message as _;
use tokio::sync::watch;

use super::Runtime;
use super::container_create::SPECIFICATION;
use super::sandbox_stop::found_or_none;
use super::supervisor_events::UNKNOWN_EXIT;
use crate::clock::nanoseconds;
use crate::crash_points::reached;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::record_store::{Container, ContainerActivity, begin_activity};
use crate::records::{ContainerStage, SandboxStage, StoredContainer};
use crate::signals;

/// upstream: containerd internal/cri/server/helpers.go (errorStartExitCode, errorStartReason)
const START_FAILED_EXIT: i32 = 128;
/// How long to wait for a container's exit after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// The state's name in errors.
fn state_name(stage: ContainerStage) -> &'static str {
    match stage {
        ContainerStage::Creating | ContainerStage::Created => "CONTAINER_CREATED",
        ContainerStage::Started => "CONTAINER_RUNNING",
        ContainerStage::Exited | ContainerStage::Removing => "CONTAINER_EXITED",
        ContainerStage::Unknown => "CONTAINER_UNKNOWN",
    }
}

impl Runtime {
    pub async fn start_container(&self, id: &str) -> Result<()> {
        let container = self
            .record_store
            .container(id)
            .doing(format!("an error occurred when try to find container {id:?}"))?;
        let runtime = self.clone();
        self.run_to_completion(async move { Box::pin(runtime.start(&container)).await }).await
    }

    async fn start(&self, container: &Arc<Container>) -> Result<()> {
        let busy =
            begin_activity(container, ContainerActivity::Starting, |activity, stage| {
                match (activity, stage) {
                    (ContainerActivity::Starting, _) => {
                        Err(CriError::plain("container is already in starting state"))
                    }
                    (ContainerActivity::Removing, _) => {
                        Err(CriError::plain("container is in removing state, can't be started"))
                    }
                    (_, ContainerStage::Created) => Ok(()),
                    (_, stage) => {
                        Err(CriError::plain(format!("container is in {} state", state_name(stage))))
                    }
                }
            })
            .doing(format!("failed to set starting state for container {:?}", container.id))?;
        let outcome = self.start_now(container).await;
        if let Err(failure) = &outcome {
            let message = failure.text.clone();
            self.record_store
                .change_container(container, |record| {
                    // Its exit was recorded meanwhile, which says more than the failed start.
                    if record.stage() == ContainerStage::Exited {
                        return false;
                    }
                    record.set_stage(ContainerStage::Exited);
                    record.finished_at = nanoseconds();
                    record.exit_code = START_FAILED_EXIT;
                    record.reason = "StartError".to_owned();
                    record.message = message;
                    true
                })
                .await?;
        } else {
            self.send_event(&container.id, &container.sandbox_id, Kind::ContainerStartedEvent)
                .await;
        }
        drop(busy);
        outcome
    }

    async fn start_now(&self, container: &Arc<Container>) -> Result<()> {
        let sandbox = self
            .record_store
            .sandbox(&container.sandbox_id)
            .doing(format!("sandbox {:?} not found", container.sandbox_id))?;
        if sandbox.record().stage() != SandboxStage::Ready {
            return Err(CriError::plain(format!(
                "sandbox container {:?} is not running",
                sandbox.id
            )));
        }
        self.check_target(&container.record())?;
        let supervisor = self.supervisor_of(&sandbox).await?;
        let spec = self.specification(&container.id).await?;
        self.record_store
            .change_container(container, |record| {
                record.set_stage(ContainerStage::Started);
                true
            })
            .await?;
        reached("start-recorded");
        let started = async {
            let made = supervisor.client.create(spec).await;
            // Taken before the program runs: the exit status can be read however soon it ends, even
            // if the supervisor or the server dies.
            container.open_pidfd(&made.doing("failed to create the container")?);
            reached("container-made");
            supervisor.client.start(&container.id).await.doing("failed to start the container")
        };
        match started.await {
            Ok(state) => {
                reached("container-started");
                self.record_store
                    .change_container(container, |record| {
                        record.started_at = state.started_at;
                        true
                    })
                    .await?;
                // It may have ended before this was written; its exit event then found it not
                // started.
                Ok(())
            }
            Err(failure) => {
                let cut = supervisor.client.is_disconnected()
                    || match supervisor.client.delete(&container.id).await {
                        Err(error) if error.is_disconnected() => true,
                        Err(error) if !error.is_not_found() => {
                            tracing::warn!(container = container.id, %error, "after a failed start");
                            false
                        }
                        _ => false,
                    };
                if cut && Box::pin(self.did_start(&sandbox, container)).await? {
                    return Ok(());
                }
                Err(failure)
            }
        }
    }

    pub(super) async fn specification(&self, id: &str) -> Result<ContainerSpec> {
        let path = self.container_dir(id).join(SPECIFICATION);
        blocking(move || {
            let bytes = std::fs::read(&path).doing(format!("reading {}", path.display()))?;
            ContainerSpec::decode(bytes.as_slice())
                .map_err(|error| CriError::plain(format!("{}: {error}", path.display())))
        })
        .await
    }

    /// A container with a target PID namespace needs its target running, in the same pod.
    fn check_target(&self, record: &StoredContainer) -> Result<()> {
        let linux = record.config.as_ref().and_then(|config| config.linux.as_ref());
        let security = linux.and_then(|linux| linux.security_context.as_ref());
        let Some(options) = security.and_then(|security| security.namespace_options.as_ref())
        else {
            return Ok(());
        };
        if options.pid() != v1::NamespaceMode::Target {
            return Ok(());
        }
        let wrong = |why: String| CriError::plain(format!("invalid target container: {why}"));
        let target = self
            .record_store
            .container(&options.target_id)
            .map_err(|failure| wrong(failure.text))?;
        if target.sandbox_id != record.sandbox_id {
            return Err(wrong(format!("{:?} is in another sandbox", target.id)));
        }
        match target.record().stage() {
            ContainerStage::Started => Ok(()),
            stage => Err(wrong(format!("{:?} is in {} state", target.id, state_name(stage)))),
        }
    }

    /// Stops a container: sends its stop signal, and after `timeout` seconds kills everything in
    /// it. An unknown id is no error.
    pub async fn stop_container(&self, id: &str, timeout: i64) -> Result<()> {
        let Some(container) = found_or_none(self.record_store.container(id))? else {
            return Ok(());
        };
        let runtime = self.clone();
        self.run_to_completion(async move { Box::pin(runtime.stop(&container, timeout)).await })
            .await
    }

    pub(super) async fn stop(&self, container: &Arc<Container>, timeout: i64) -> Result<()> {
        let record = container.record();
        match record.stage() {
            ContainerStage::Started => {}
            ContainerStage::Unknown => return self.mark_unknown_as_exited(container).await,
            _ => return Ok(()),
        }
        let sandbox = self.record_store.sandbox(&container.sandbox_id)?;
        let mut ended = container.ended();
        if let Ok(seconds) = u64::try_from(timeout)
            && seconds > 0
        {
            // Sent once: a second stop with a grace period only waits.
            if !container.stop_signalled.swap(true, Ordering::SeqCst) {
                let signal =
                    if record.stop_signal == 0 { signals::TERMINATE } else { record.stop_signal };
                let id = &container.id;
                let kill = |client: SupervisorClient| async move { client.kill(id, signal).await };
                if let Err(failure) = self.call_supervisor(&sandbox, kill).await {
                    container.stop_signalled.store(false, Ordering::SeqCst);
                    return Err(failure.with_context(format!("failed to stop container {id:?}")));
                }
            }
            if ended_within(&mut ended, Duration::from_secs(seconds)).await {
                return Ok(());
            }
        }
        let id = &container.id;
        let kill = |client: SupervisorClient| async move { client.kill_all(id).await };
        self.call_supervisor(&sandbox, kill)
            .await
            .doing(format!("failed to kill container {id:?}"))?;
        if ended_within(&mut ended, KILL_TIMEOUT).await {
            return Ok(());
        }
        Err(CriError::new(
            tonic::Code::DeadlineExceeded,
            format!(
                "container {:?} is not gone {KILL_TIMEOUT:?} after it was killed",
                container.id
            ),
        ))
    }

    /// Its exit status cannot be found out any more: it has ended.
    async fn mark_unknown_as_exited(&self, container: &Arc<Container>) -> Result<()> {
        self.record_store
            .change_container(container, |record| {
                record.set_stage(ContainerStage::Exited);
                record.finished_at = nanoseconds();
                record.exit_code = UNKNOWN_EXIT;
                record.reason = "Unknown".to_owned();
                true
            })
            .await
            .map(drop)
    }

    /// Removes a container and stops it before if it runs. An unknown id is no error.
    pub async fn remove_container(&self, id: &str) -> Result<()> {
        let Some(container) = found_or_none(self.record_store.container(id))? else {
            return Ok(());
        };
        let runtime = self.clone();
        self.run_to_completion(async move { Box::pin(runtime.remove(&container)).await }).await
    }

    pub(super) async fn remove(&self, container: &Arc<Container>) -> Result<()> {
        // Before it is stopped: a refused removal has no effect.
        let busy =
            begin_activity(container, ContainerActivity::Removing, |activity, _| match activity {
                ContainerActivity::Starting => {
                    Err(CriError::plain("container is in starting state, can't be removed"))
                }
                ContainerActivity::Removing => {
                    Err(CriError::plain("container is already in removing state"))
                }
                ContainerActivity::None => Ok(()),
            })
            .doing(format!("failed to set removing state for container {:?}", container.id))?;
        self.stop(container, 0)
            .await
            .doing(format!("failed to forcibly stop container {:?}", container.id))?;
        self.record_store
            .change_container(container, |record| {
                // After a crash from here on, the next start completes the removal.
                let first = record.stage() != ContainerStage::Removing;
                record.set_stage(ContainerStage::Removing);
                first
            })
            .await?;
        reached("removal-recorded");
        self.cleanup_container(container).await?;
        self.send_event(&container.id, &container.sandbox_id, Kind::ContainerDeletedEvent).await;
        drop(busy);
        Ok(())
    }
}

async fn ended_within(ended: &mut watch::Receiver<bool>, limit: Duration) -> bool {
    tokio::time::timeout(limit, ended.wait_for(|over| *over)).await.is_ok_and(|seen| seen.is_ok())
}
