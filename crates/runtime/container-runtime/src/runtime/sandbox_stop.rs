//! StopPodSandbox and RemovePodSandbox: idempotent.

use std::sync::Arc;
use std::time::Duration;

use cri_wire::v1::ContainerEventType as Kind;

use super::{Runtime, pod_files};
use crate::crash_points::reached;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::network::PodNetwork;
use crate::record_store::Sandbox;
use crate::records::{SandboxStage, StoredSandbox};

/// How long the kernel may take to release killed processes.
const CGROUP_REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What to do with an incomplete network that cannot be torn down now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartialNetwork {
    /// The pod is stopped when its processes are; plugins' resources are freed with its record.
    MayRemain,
    MustBeFreed,
}

impl Runtime {
    /// Stops everything in a pod and frees its network. An unknown id is no error.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let Some(sandbox) = found_or_none(self.record_store.sandbox(id))? else { return Ok(()) };
        let runtime = self.clone();
        self.run_to_completion(async move {
            Box::pin(runtime.stop_sandbox(&sandbox, PartialNetwork::MayRemain)).await
        })
        .await
    }

    /// Stops and removes a pod with its containers. An unknown id is no error.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let Some(sandbox) = found_or_none(self.record_store.sandbox(id))? else { return Ok(()) };
        let runtime = self.clone();
        self.run_to_completion(async move { Box::pin(runtime.remove_sandbox(&sandbox)).await })
            .await
    }

    async fn stop_sandbox(
        &self,
        sandbox: &Arc<Sandbox>,
        partial_network: PartialNetwork,
    ) -> Result<()> {
        for container in self.record_store.containers_of(&sandbox.id) {
            self.stop(&container, 0)
                .await
                .doing(format!("failed to stop container {:?}", container.id))?;
        }
        let _guard = sandbox.exclusive_lock.lock().await;
        let was_ready = sandbox.record().stage() == SandboxStage::Ready;
        // Recorded before the supervisor is ended, so that its end is expected.
        if was_ready {
            self.record_store
                .change_sandbox(sandbox, |record| record.set_stage(SandboxStage::Stopped))
                .await?;
            reached("stop-recorded");
        }
        self.teardown(sandbox, partial_network)
            .await
            .doing(format!("failed to stop sandbox {:?}", sandbox.id))?;
        if was_ready {
            self.send_event(&sandbox.id, &sandbox.id, Kind::ContainerStoppedEvent).await;
        }
        Ok(())
    }

    /// Ends the supervisor, frees the network, removes the shared files. Idempotent. On a full disk
    /// the supervisor and its records stay as long as they alone contain the containers' exits.
    pub(super) async fn teardown(
        &self,
        sandbox: &Arc<Sandbox>,
        partial_network: PartialNetwork,
    ) -> Result<()> {
        if self.record_store.containers_of(&sandbox.id).iter().any(|one| one.is_unwritten()) {
            self.teardown_when_written(sandbox);
            return self.free_network(sandbox, partial_network).await;
        }
        if self.stop_supervisor(sandbox).await? {
            reached("supervisor-ended");
        }
        self.remove_group(&sandbox.record().cgroup, &sandbox.id).await?;
        self.free_network(sandbox, partial_network).await?;
        let dir = self.pod_dir(&sandbox.id);
        blocking(move || pod_files::remove_with_mounts(&dir)).await
    }

    fn teardown_when_written(&self, sandbox: &Arc<Sandbox>) {
        let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
        tokio::spawn(async move {
            for container in runtime.record_store.containers_of(&sandbox.id) {
                container.written().await;
            }
            let _guard = sandbox.exclusive_lock.lock().await;
            if runtime.record_store.sandbox(&sandbox.id).is_err() {
                return;
            }
            let down = Box::pin(runtime.teardown(&sandbox, PartialNetwork::MayRemain)).await;
            if let Err(failure) = down {
                tracing::error!(sandbox = sandbox.id, %failure, "taking down what was left");
            }
        });
    }

    /// Takes down a sandbox that was never ready. One that cannot be taken down stays in the store,
    /// not ready, so that a removal can try again.
    pub(super) async fn discard(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let Err(failure) = self.teardown(sandbox, PartialNetwork::MustBeFreed).await else {
            return self.record_store.remove_sandbox(&sandbox.id).await;
        };
        let stopped = |record: &mut StoredSandbox| record.set_stage(SandboxStage::Stopped);
        self.record_store.change_sandbox(sandbox, stopped).await?;
        Err(failure)
    }

    /// upstream: containerd internal/cri/server/sandbox_stop.go, which lets a stop succeed where a
    /// set-up never ended, and a removal too; ours keeps the record until nothing is left.
    pub(super) async fn free_network(
        &self,
        sandbox: &Arc<Sandbox>,
        partial_network: PartialNetwork,
    ) -> Result<()> {
        let record = sandbox.record();
        let Some(network) = record.network.clone().filter(|network| !network.closed) else {
            // What was planned and could not be recorded is free again.
            self.network.release(&sandbox.id);
            return Ok(());
        };
        match self.network.tear_down(&PodNetwork::of(&record), &network).await {
            Err(failure) if !network.complete && partial_network == PartialNetwork::MayRemain => {
                tracing::warn!(sandbox = sandbox.id, %failure, "a half-made network is left");
                return Ok(());
            }
            outcome => outcome.doing("failed to destroy network")?,
        }
        reached("network-freed");
        self.record_store
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
        let failed = |error: cgroup_files::CgroupError| CriError::plain(error.to_string());
        let group = self.hierarchy.group(path).map_err(failed)?;
        blocking(move || {
            if group.exists_in_any_hierarchy() {
                group.kill_and_remove_within(CGROUP_REMOVE_TIMEOUT).map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    async fn remove_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        self.stop_sandbox(sandbox, PartialNetwork::MustBeFreed)
            .await
            .doing(format!("failed to forcibly stop sandbox {:?}", sandbox.id))?;
        for container in self.record_store.containers_of(&sandbox.id) {
            self.remove(&container)
                .await
                .doing(format!("failed to remove container {:?}", container.id))?;
        }
        let _guard = sandbox.exclusive_lock.lock().await;
        // It was left while its records were needed; those of a removed pod are not.
        if self.pod_dir(&sandbox.id).exists() {
            self.teardown(sandbox, PartialNetwork::MustBeFreed).await?;
        }
        self.send_event(&sandbox.id, &sandbox.id, Kind::ContainerDeletedEvent).await;
        self.record_store.remove_sandbox(&sandbox.id).await
    }
}

/// An object that does not exist need not be stopped or removed.
pub(super) fn found_or_none<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.code == tonic::Code::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}
