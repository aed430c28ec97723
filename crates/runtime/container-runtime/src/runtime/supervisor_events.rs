//! Unrequested changes: containers exit, supervisors die. Recorded first, then published as events.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cri_wire::v1;
use cri_wire::v1::ContainerEventType as Kind;
use pod_supervisor::orphans::{self, OrphanStatus};
use pod_supervisor::protocol::{ContainerPhase, ContainerState};
use tokio::sync::mpsc;

use super::Runtime;
use crate::clock::nanoseconds;
use crate::failure::{CallContext as _, Result};
use crate::record_store::{Container, Sandbox};
use crate::records::{ContainerStage, SandboxStage, StoredContainer};
use crate::supervision::SupervisorEvent;

/// The exit code of a container whose exit was not observed.
/// upstream: containerd internal/cri/server/helpers.go (unknownExitCode)
pub(super) const UNKNOWN_EXIT: i32 = 255;

impl Runtime {
    pub(super) async fn handle_supervisor_events(
        &self,
        sandbox: &Arc<Sandbox>,
        mut events: mpsc::UnboundedReceiver<SupervisorEvent>,
    ) {
        while let Some(events) = events.recv().await {
            match events {
                SupervisorEvent::Exited(state) => {
                    crate::crash_points::reached("exit-heard");
                    if let Err(failure) = self.on_container_exited(&state).await {
                        tracing::error!(container = state.id, %failure, "writing an exit");
                    }
                }
                SupervisorEvent::Resync => self.resync(sandbox).await,
                SupervisorEvent::ConnectionLost(why) => {
                    return self.on_connection_lost(sandbox, &why).await;
                }
            }
        }
    }

    /// Handles a supervisor's report that a container's first process has ended. If its program
    /// never ran (the start failed, or it was deleted before), that is no exit of the container.
    pub(super) async fn on_container_exited(&self, state: &ContainerState) -> Result<()> {
        if state.started_at == 0 { Ok(()) } else { self.write_exit(state).await }
    }

    /// Records a container's exit and publishes it, unless it is recorded already.
    async fn write_exit(&self, state: &ContainerState) -> Result<()> {
        let Ok(container) = self.record_store.container(&state.id) else { return Ok(()) };
        let Some(exit) = state.exit else { return Ok(()) };
        let changed = self
            .record_store
            .change_container(&container, |record| {
                let over =
                    matches!(record.stage(), ContainerStage::Exited | ContainerStage::Removing);
                if !over {
                    record.started_at = first_nonzero(record.started_at, state.started_at);
                    record.finished_at = first_nonzero(exit.finished_at, nanoseconds());
                    record.exit_code = exit.code;
                    record.reason =
                        if exit.out_of_memory { "OOMKilled".to_owned() } else { String::new() };
                    record.set_stage(ContainerStage::Exited);
                }
                !over
            })
            .await?;
        if changed.is_some() {
            self.send_event(&container.id, &container.sandbox_id, Kind::ContainerStoppedEvent)
                .await;
        }
        Ok(())
    }

    /// Settles a pod whose supervisor has ended. The caller holds the sandbox's turn. After a
    /// reboot the supervisor's records of processes are ignored; those of exits are used.
    pub(super) async fn settle_orphaned_pod(
        &self,
        sandbox: &Arc<Sandbox>,
        rebooted: bool,
    ) -> Result<()> {
        // Before its containers' exits are published, so that the kubelet does not restart them in
        // it.
        sandbox.abandon();
        let dir = self.pod_dir(&sandbox.id);
        let known = crate::failure::blocking(move || Ok(orphans::records(&dir))).await?;
        // Usually there is nothing to read after a reboot.
        let mut known: Vec<ContainerState> = known.into_iter().flatten().flatten().collect();
        for state in known.iter_mut().filter(|_| rebooted) {
            state.pid = 0;
            state.cgroup.clear();
        }
        for container in self.record_store.containers_of(&sandbox.id) {
            let running = container.record().stage() == ContainerStage::Started;
            match known.iter().find(|state| state.id == container.id) {
                Some(state) if running => self.settle_orphaned_container(&container, state).await?,
                _ => self.record_unknown_exit(&container).await?,
            }
        }
        self.record_store
            .change_sandbox(sandbox, |record| record.set_stage(SandboxStage::Stopped))
            .await?;
        self.send_event(&sandbox.id, &sandbox.id, Kind::ContainerStoppedEvent).await;
        Ok(())
    }

    /// Settles a start that the supervisor's end interrupted: the program may run or not, and the
    /// pod may have been settled before the start was recorded.
    pub(super) async fn settle_interrupted_start(&self, container: &Arc<Container>) -> Result<()> {
        let sandbox = self.record_store.sandbox(&container.sandbox_id)?;
        let _guard = sandbox.exclusive_lock.lock().await;
        if container.record().stage() != ContainerStage::Started {
            return Ok(());
        }
        let dir = self.pod_dir(&sandbox.id);
        let known = crate::failure::blocking(move || Ok(orphans::records(&dir))).await?;
        let mut known = known.into_iter().flatten().flatten();
        match known.find(|state| state.id == container.id) {
            Some(state) => self.settle_orphaned_container(container, &state).await,
            None => Ok(()),
        }
    }

    /// Kills what is left of a container without a supervisor, and records its exit.
    async fn settle_orphaned_container(
        &self,
        container: &Arc<Container>,
        state: &ContainerState,
    ) -> Result<()> {
        let (mut state, pidfd) = (state.clone(), container.take_pidfd());
        let settled = crate::failure::blocking(move || {
            // Before it is killed: afterwards the exit status could not be read any more.
            let pidfd = pidfd.or_else(|| orphans::open_pidfd(&state));
            if state.exit.is_none() {
                orphans::kill(&state).doing("killing a container without a supervisor")?;
                if let Some(pidfd) = &pidfd {
                    wait_for(pidfd);
                }
            }
            if let OrphanStatus::Exited(exit) = orphans::orphan_status(&state, pidfd.as_ref()) {
                state.exit = Some(exit);
            }
            Ok(state)
        })
        .await?;
        if settled.exit.is_some() {
            self.write_exit(&settled).await
        } else {
            self.record_unknown_exit(container).await
        }
    }

    /// Records a container that ran when its supervisor died, and whose exit code is lost.
    async fn record_unknown_exit(&self, container: &Arc<Container>) -> Result<()> {
        let changed = self
            .record_store
            .change_container(container, |record| {
                let running = record.stage() == ContainerStage::Started;
                if running {
                    record.set_stage(ContainerStage::Exited);
                    record.finished_at = nanoseconds();
                    record.exit_code = UNKNOWN_EXIT;
                    record.reason = "Unknown".to_owned();
                    record.message =
                        "the pod's supervisor ended; the exit code is not known".into();
                }
                running
            })
            .await?;
        if changed.is_some() {
            self.send_event(&container.id, &container.sandbox_id, Kind::ContainerStoppedEvent)
                .await;
        }
        Ok(())
    }

    /// Applies a container's state from the supervisor to its record.
    pub(super) async fn adopt(&self, state: &ContainerState) -> Result<()> {
        match ContainerPhase::try_from(state.phase) {
            Ok(ContainerPhase::Exited) => self.on_container_exited(state).await,
            Ok(ContainerPhase::Running) => {
                let Ok(container) = self.record_store.container(&state.id) else { return Ok(()) };
                container.open_pidfd(state);
                let started = |record: &mut StoredContainer| {
                    let is_new =
                        record.stage() == ContainerStage::Started && record.started_at == 0;
                    if is_new {
                        record.started_at = first_nonzero(state.started_at, nanoseconds());
                    }
                    is_new
                };
                self.record_store.change_container(&container, started).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Publishes an event with the pod's current status, if there are subscribers.
    pub(super) async fn send_event(&self, id: &str, sandbox_id: &str, kind: Kind) {
        if !self.events.has_listeners() {
            return;
        }
        let created_at = nanoseconds();
        // Reading images takes a moment, and events must stay in order.
        let _guard = self.events.exclusive_lock().await;
        let sandbox = self.record_store.sandbox(sandbox_id).ok();
        let containers = self.record_store.containers_of(sandbox_id);
        let ids: Vec<String> = containers.iter().map(|one| one.record().image_id).collect();
        let unknown = vec![None; ids.len()];
        let found = self.images.with_store(move |store| {
            Ok(ids.iter().map(|id| store.image(id).ok()).collect::<Vec<_>>())
        });
        let images = found.await.unwrap_or(unknown);
        self.events.send(v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at,
            pod_sandbox_status: sandbox.map(|sandbox| self.sandbox_status_of(&sandbox)),
            containers_statuses: containers
                .iter()
                .zip(&images)
                .map(|(container, image)| self.container_status_of(container, image.as_ref()))
                .collect(),
        });
    }
}

/// Waits until a process has ended, or for a limited time.
fn wait_for(pidfd: &OwnedFd) {
    let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    let mut watched = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    let _ = rustix::event::poll(&mut watched, Some(&limit));
}

fn first_nonzero(first: i64, otherwise: i64) -> i64 {
    if first == 0 { otherwise } else { first }
}
