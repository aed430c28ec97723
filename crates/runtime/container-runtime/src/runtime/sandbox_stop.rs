//! StopPodSandbox and RemovePodSandbox: idempotent.

use std::sync::Arc;
use std::time::Duration;

use cri_wire::v1::ContainerEventType as Kind;

use super::{Runtime, pod_files};
use crate::book::Sandbox;
use crate::crash_points::reached;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::network::PodNetwork;
use crate::records::{SandboxRecord, SandboxStage};

/// How long the kernel may take to release killed processes.
const GROUP_GONE: Duration = Duration::from_secs(10);

/// What to do with an incomplete network that cannot be torn down now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HalfMade {
    /// The pod is stopped when its processes are; plugins' resources are freed with its record.
    MayWait,
    MustGo,
}

impl Runtime {
    /// Stops everything in a pod and frees its network. An unknown id is no error.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let Some(sandbox) = known(self.book.sandbox(id))? else { return Ok(()) };
        let runtime = self.clone();
        self.to_its_end(
            async move { Box::pin(runtime.stop_sandbox(&sandbox, HalfMade::MayWait)).await },
        )
        .await
    }

    /// Stops and removes a pod with its containers. An unknown id is no error.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let Some(sandbox) = known(self.book.sandbox(id))? else { return Ok(()) };
        let runtime = self.clone();
        self.to_its_end(async move { Box::pin(runtime.remove_sandbox(&sandbox)).await }).await
    }

    async fn stop_sandbox(&self, sandbox: &Arc<Sandbox>, half_made: HalfMade) -> Result<()> {
        for container in self.book.containers_of(&sandbox.id) {
            self.stop(&container, 0)
                .await
                .doing(format!("failed to stop container {:?}", container.id))?;
        }
        let _turn = sandbox.turn.lock().await;
        let was_ready = sandbox.record().stage() == SandboxStage::Ready;
        // Recorded before the supervisor is ended, so that its end is expected.
        if was_ready {
            self.book
                .change_sandbox(sandbox, |record| record.set_stage(SandboxStage::Stopped))
                .await?;
            reached("stop-recorded");
        }
        self.take_down(sandbox, half_made)
            .await
            .doing(format!("failed to stop sandbox {:?}", sandbox.id))?;
        if was_ready {
            self.tell(&sandbox.id, &sandbox.id, Kind::ContainerStoppedEvent).await;
        }
        Ok(())
    }

    /// Ends the supervisor, frees the network, removes the shared files. Idempotent. On a full disk
    /// the supervisor and its records stay as long as they alone contain the containers' exits.
    pub(super) async fn take_down(
        &self,
        sandbox: &Arc<Sandbox>,
        half_made: HalfMade,
    ) -> Result<()> {
        if self.book.containers_of(&sandbox.id).iter().any(|one| one.is_unwritten()) {
            self.take_down_when_written(sandbox);
            return self.free_network(sandbox, half_made).await;
        }
        if self.end_supervisor(sandbox).await? {
            reached("supervisor-ended");
        }
        self.remove_group(&sandbox.record().cgroup, &sandbox.id).await?;
        self.free_network(sandbox, half_made).await?;
        let folder = self.pod_folder(&sandbox.id);
        blocking(move || pod_files::remove_with_mounts(&folder)).await
    }

    fn take_down_when_written(&self, sandbox: &Arc<Sandbox>) {
        let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
        tokio::spawn(async move {
            for container in runtime.book.containers_of(&sandbox.id) {
                container.written().await;
            }
            let _turn = sandbox.turn.lock().await;
            if runtime.book.sandbox(&sandbox.id).is_err() {
                return;
            }
            let down = Box::pin(runtime.take_down(&sandbox, HalfMade::MayWait)).await;
            if let Err(failure) = down {
                tracing::error!(sandbox = sandbox.id, %failure, "taking down what was left");
            }
        });
    }

    /// Takes down a sandbox that was never ready. One that cannot be taken down stays in the store,
    /// not ready, so that a removal can try again.
    pub(super) async fn discard(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let Err(failure) = self.take_down(sandbox, HalfMade::MustGo).await else {
            return self.book.remove_sandbox(&sandbox.id).await;
        };
        let stopped = |record: &mut SandboxRecord| record.set_stage(SandboxStage::Stopped);
        self.book.change_sandbox(sandbox, stopped).await?;
        Err(failure)
    }

    /// upstream: containerd internal/cri/server/sandbox_stop.go, which lets a stop succeed where a
    /// set-up never ended, and a removal too; ours keeps the record until nothing is left.
    pub(super) async fn free_network(
        &self,
        sandbox: &Arc<Sandbox>,
        half_made: HalfMade,
    ) -> Result<()> {
        let record = sandbox.record();
        let Some(network) = record.network.clone().filter(|network| !network.closed) else {
            // What was planned and could not be recorded is free again.
            self.network.release(&sandbox.id);
            return Ok(());
        };
        match self.network.tear_down(&PodNetwork::of(&record), &network).await {
            Err(failure) if !network.complete && half_made == HalfMade::MayWait => {
                tracing::warn!(sandbox = sandbox.id, %failure, "a half-made network is left");
                return Ok(());
            }
            outcome => outcome.doing("failed to destroy network")?,
        }
        reached("network-freed");
        self.book
            .change_sandbox(sandbox, |record| {
                if let Some(network) = &mut record.network {
                    network.closed = true;
                }
            })
            .await
            .map(drop)
    }

    /// Kills and removes a cgroup that belongs to this id alone; left by a supervisor that died.
    pub(super) async fn remove_group(&self, path: &str, id: &str) -> Result<()> {
        if !path.contains(id) {
            return Ok(());
        }
        let failed = |error: cgroup_files::CgroupError| Failure::plain(error.to_string());
        let group = self.hierarchy.group(path).map_err(failed)?;
        blocking(move || {
            if group.exists_somewhere() {
                group.end_within(GROUP_GONE).map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    async fn remove_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        self.stop_sandbox(sandbox, HalfMade::MustGo)
            .await
            .doing(format!("failed to forcibly stop sandbox {:?}", sandbox.id))?;
        for container in self.book.containers_of(&sandbox.id) {
            self.remove(&container)
                .await
                .doing(format!("failed to remove container {:?}", container.id))?;
        }
        let _turn = sandbox.turn.lock().await;
        // It was left while its records were needed; those of a removed pod are not.
        if self.pod_folder(&sandbox.id).exists() {
            self.take_down(sandbox, HalfMade::MustGo).await?;
        }
        self.tell(&sandbox.id, &sandbox.id, Kind::ContainerDeletedEvent).await;
        self.book.remove_sandbox(&sandbox.id).await
    }
}

/// An object that does not exist need not be stopped or removed.
pub(super) fn known<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.code == tonic::Code::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}
