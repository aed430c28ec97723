//! Unrequested changes: containers exit, supervisors die. Recorded first, then published as events.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cri_wire::v1;
use cri_wire::v1::ContainerEventType as Kind;
use pod_supervisor::afterwards::{self, Fate};
use pod_supervisor::protocol::{ContainerState, Phase};
use tokio::sync::mpsc;

use super::Runtime;
use crate::book::{Container, Sandbox};
use crate::clock::nanoseconds;
use crate::failure::{Doing as _, Result};
use crate::records::{ContainerRecord, ContainerStage, SandboxStage};
use crate::supervision::Told;

/// The exit code of a container whose exit was not observed.
/// upstream: containerd internal/cri/server/helpers.go (unknownExitCode)
pub(super) const UNKNOWN_EXIT: i32 = 255;

impl Runtime {
    pub(super) async fn listen(
        &self,
        sandbox: &Arc<Sandbox>,
        mut told: mpsc::UnboundedReceiver<Told>,
    ) {
        while let Some(told) = told.recv().await {
            match told {
                Told::Exited(state) => {
                    crate::crash_points::reached("exit-heard");
                    if let Err(failure) = self.exited(&state).await {
                        tracing::error!(container = state.id, %failure, "writing an exit");
                    }
                }
                Told::LookAgain => self.look_again(sandbox).await,
                Told::Gone(why) => return self.cut_off(sandbox, &why).await,
            }
        }
    }

    /// Handles a supervisor's report that a container's first process has ended. If its program
    /// never ran (the start failed, or it was deleted before), that is no exit of the container.
    pub(super) async fn exited(&self, state: &ContainerState) -> Result<()> {
        if state.started_at == 0 { Ok(()) } else { self.write_exit(state).await }
    }

    /// Records a container's exit and publishes it, unless it is recorded already.
    async fn write_exit(&self, state: &ContainerState) -> Result<()> {
        let Ok(container) = self.book.container(&state.id) else { return Ok(()) };
        let Some(exit) = state.exit else { return Ok(()) };
        let changed = self
            .book
            .change_container(&container, |record| {
                let over =
                    matches!(record.stage(), ContainerStage::Exited | ContainerStage::Removing);
                if !over {
                    record.started_at = pick(record.started_at, state.started_at);
                    record.finished_at = pick(exit.finished_at, nanoseconds());
                    record.exit_code = exit.code;
                    record.reason =
                        if exit.out_of_memory { "OOMKilled".to_owned() } else { String::new() };
                    record.set_stage(ContainerStage::Exited);
                }
                !over
            })
            .await?;
        if changed.is_some() {
            self.tell(&container.id, &container.sandbox_id, Kind::ContainerStoppedEvent).await;
        }
        Ok(())
    }

    /// Settles a pod whose supervisor has ended. The caller holds the sandbox's turn. After a
    /// reboot the supervisor's records of processes are ignored; those of exits are used.
    pub(super) async fn settle_without_supervisor(
        &self,
        sandbox: &Arc<Sandbox>,
        rebooted: bool,
    ) -> Result<()> {
        // Before its containers' exits are published, so that the kubelet does not restart them in
        // it.
        sandbox.abandon();
        let folder = self.pod_folder(&sandbox.id);
        let known = crate::failure::blocking(move || Ok(afterwards::records(&folder))).await?;
        // Usually there is nothing to read after a reboot.
        let mut known: Vec<ContainerState> = known.into_iter().flatten().flatten().collect();
        for state in known.iter_mut().filter(|_| rebooted) {
            state.pid = 0;
            state.cgroup.clear();
        }
        for container in self.book.containers_of(&sandbox.id) {
            let running = container.record().stage() == ContainerStage::Started;
            match known.iter().find(|state| state.id == container.id) {
                Some(state) if running => self.settle_container(&container, state).await?,
                _ => self.lost(&container).await?,
            }
        }
        self.book.change_sandbox(sandbox, |record| record.set_stage(SandboxStage::Stopped)).await?;
        self.tell(&sandbox.id, &sandbox.id, Kind::ContainerStoppedEvent).await;
        Ok(())
    }

    /// Settles a start that the supervisor's end interrupted: the program may run or not, and the
    /// pod may have been settled before the start was recorded.
    pub(super) async fn settle_start(&self, container: &Arc<Container>) -> Result<()> {
        let sandbox = self.book.sandbox(&container.sandbox_id)?;
        let _turn = sandbox.turn.lock().await;
        if container.record().stage() != ContainerStage::Started {
            return Ok(());
        }
        let folder = self.pod_folder(&sandbox.id);
        let known = crate::failure::blocking(move || Ok(afterwards::records(&folder))).await?;
        let mut known = known.into_iter().flatten().flatten();
        match known.find(|state| state.id == container.id) {
            Some(state) => self.settle_container(container, &state).await,
            None => Ok(()),
        }
    }

    /// Kills what is left of a container without a supervisor, and records its exit.
    async fn settle_container(
        &self,
        container: &Arc<Container>,
        state: &ContainerState,
    ) -> Result<()> {
        let (mut state, held) = (state.clone(), container.take_hold());
        let fate = crate::failure::blocking(move || {
            // Before it is killed: afterwards the exit status could not be read any more.
            let held = held.or_else(|| afterwards::hold(&state));
            if state.exit.is_none() {
                afterwards::kill(&state).doing("killing a container without a supervisor")?;
                if let Some(held) = &held {
                    wait_for(held);
                }
            }
            if let Fate::Exited(exit) = afterwards::fate(&state, held.as_ref()) {
                state.exit = Some(exit);
            }
            Ok(state)
        })
        .await?;
        if fate.exit.is_some() { self.write_exit(&fate).await } else { self.lost(container).await }
    }

    /// Records a container that ran when its supervisor died, and whose exit code is lost.
    async fn lost(&self, container: &Arc<Container>) -> Result<()> {
        let changed = self
            .book
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
            self.tell(&container.id, &container.sandbox_id, Kind::ContainerStoppedEvent).await;
        }
        Ok(())
    }

    /// Applies a container's state from the supervisor to its record.
    pub(super) async fn adopt(&self, state: &ContainerState) -> Result<()> {
        match Phase::try_from(state.phase) {
            Ok(Phase::Exited) => self.exited(state).await,
            Ok(Phase::Running) => {
                let Ok(container) = self.book.container(&state.id) else { return Ok(()) };
                container.hold(state);
                let started = |record: &mut ContainerRecord| {
                    let news = record.stage() == ContainerStage::Started && record.started_at == 0;
                    if news {
                        record.started_at = pick(state.started_at, nanoseconds());
                    }
                    news
                };
                self.book.change_container(&container, started).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Publishes an event with the pod's current status, if there are subscribers.
    pub(super) async fn tell(&self, id: &str, sandbox_id: &str, kind: Kind) {
        if !self.events.is_heard() {
            return;
        }
        let created_at = nanoseconds();
        // Reading images takes a moment, and events must stay in order.
        let _turn = self.events.turn().await;
        let sandbox = self.book.sandbox(sandbox_id).ok();
        let containers = self.book.containers_of(sandbox_id);
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

fn pick(first: i64, otherwise: i64) -> i64 {
    if first == 0 { otherwise } else { first }
}
