//! Recovery after a restart of this process or a reboot of the host.
//!
//! Order: records are read (by the store), supervisors that live are queried, other pods are
//! settled by what is on disk, partial changes are taken back, and only then is anything served.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Runtime;
use super::reconnecting::has_run;
use super::sandbox_stop::PartialNetwork;
use crate::durable;
use crate::failure::{Result, blocking};
use crate::network::PodNetwork;
use crate::record_store::Sandbox;
use crate::records::{ContainerStage, SandboxStage};

/// How long startup waits for pods whose recovery is slow.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which a starting container is checked.
const START_POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Runtime {
    pub(super) async fn recover(&self) -> Result<()> {
        let mut networks = Vec::new();
        for sandbox in self.record_store.sandboxes() {
            let record = sandbox.record();
            if let Some(network) = record.network.clone().filter(|network| !network.closed) {
                networks.push((PodNetwork::of(&record), network));
            }
        }
        self.network.adopt(networks).await;
        self.recover_sandboxes().await;
        for container in self.record_store.containers() {
            let record = container.record();
            let orphan = self.record_store.sandbox(&record.sandbox_id).is_err();
            let unfinished =
                matches!(record.stage(), ContainerStage::Creating | ContainerStage::Removing);
            if orphan || unfinished {
                tracing::info!(container = container.id, "removing what was left half made");
                if let Err(failure) = self.cleanup_container(&container).await {
                    tracing::error!(container = container.id, %failure, "what was left half made");
                }
            }
        }
        self.sweep().await
    }

    /// All in parallel: a slow pod delays only itself, up to a limit; then it is served as
    /// recorded, and its recovery goes on.
    async fn recover_sandboxes(&self) {
        let mut tasks = tokio::task::JoinSet::new();
        for sandbox in self.record_store.sandboxes() {
            let runtime = self.clone();
            tasks.spawn(async move {
                if let Err(failure) = Box::pin(runtime.recover_sandbox(&sandbox)).await {
                    tracing::error!(sandbox = sandbox.id, %failure, "recovering a pod");
                }
            });
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(RECOVERY_TIMEOUT, all).await.is_err() {
            tracing::error!(missing = tasks.len(), "pods that are not recovered yet; going on");
            tasks.detach_all();
        }
    }

    async fn recover_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        match sandbox.record().stage() {
            SandboxStage::Creating => {
                tracing::info!(sandbox = sandbox.id, "removing a sandbox that was left half made");
                self.reconnect(sandbox).await;
                for container in self.record_store.containers_of(&sandbox.id) {
                    self.cleanup_container(&container).await?;
                }
                let _guard = sandbox.exclusive_lock.lock().await;
                self.discard(sandbox).await
            }
            SandboxStage::Ready => {
                while let Some(supervisor) = self.reconnect(sandbox).await {
                    match self.recover_supervisor(sandbox, &supervisor).await {
                        // The connection was cut; only the supervisor's state matters.
                        Err(_) if supervisor.client.is_disconnected() => {}
                        outcome => return outcome,
                    }
                }
                let _guard = sandbox.exclusive_lock.lock().await;
                self.settle_orphaned_pod(sandbox, self.rebooted).await
            }
            // A supervisor or a network may be left if the process died between two steps of a
            // stop, or a plugin failed.
            SandboxStage::Stopped => {
                if let Some(supervisor) = self.reconnect(sandbox).await {
                    let _ = supervisor.client.shutdown().await;
                    sandbox.set_supervisor(None);
                }
                let _guard = sandbox.exclusive_lock.lock().await;
                self.free_network(sandbox, PartialNetwork::MustBeFreed).await
            }
        }
    }

    async fn recover_supervisor(
        &self,
        sandbox: &Arc<Sandbox>,
        supervisor: &Arc<crate::supervision::SupervisorConnection>,
    ) -> Result<()> {
        for state in supervisor.client.list().await?.containers {
            self.adopt(&state).await?;
        }
        self.revert_unstarted(sandbox, supervisor).await
    }

    /// A start that was interrupted before it was sent to the supervisor did not happen.
    async fn revert_unstarted(
        &self,
        sandbox: &Arc<Sandbox>,
        supervisor: &Arc<crate::supervision::SupervisorConnection>,
    ) -> Result<()> {
        let mut known = supervisor.client.list().await?.containers;
        // Started by the earlier process; whether it runs will be known in a moment.
        while known.iter().any(|state| state.starting) {
            tokio::time::sleep(START_POLL_INTERVAL).await;
            known = supervisor.client.list().await?.containers;
            for state in &known {
                self.adopt(state).await?;
            }
        }
        for container in self.record_store.containers_of(&sandbox.id) {
            let record = container.record();
            if record.stage() != ContainerStage::Started || record.started_at != 0 {
                continue;
            }
            let state = known.iter().find(|state| state.id == container.id);
            let ran = state.is_some_and(has_run);
            if !ran {
                if state.is_some() {
                    supervisor.client.delete(&container.id).await?;
                }
                self.record_store
                    .change_container(&container, |record| {
                        record.set_stage(ContainerStage::Created);
                        true
                    })
                    .await?;
            }
        }
        Ok(())
    }

    /// Removes directories, mounts and image views without a record.
    async fn sweep(&self) -> Result<()> {
        let sandboxes: BTreeSet<_> =
            self.record_store.sandboxes().iter().map(|sandbox| self.pod_dir(&sandbox.id)).collect();
        let containers = self.record_store.containers();
        let dirs: BTreeSet<_> =
            containers.iter().map(|container| self.container_dir(&container.id)).collect();
        let mounts: BTreeSet<_> =
            containers.iter().map(|container| self.container_mounts(&container.id)).collect();
        let views: BTreeSet<String> = containers
            .iter()
            .flat_map(|container| {
                let mut views = container.record().image_views;
                views.push(container.id.clone());
                views
            })
            .collect();
        let settings = self.settings.clone();
        let store = self.images.store();
        blocking(move || {
            for (parent, known) in [
                (settings.state.join("pods"), &sandboxes),
                (settings.root.join("containers"), &dirs),
                (settings.state.join("mounts"), &mounts),
            ] {
                sweep_dir(&parent, known);
            }
            let left = store.list_views();
            for view in log_error("the views of images", left).unwrap_or_default() {
                if !views.contains(&view) {
                    log_error(&view, store.remove_view(&view));
                }
            }
            Ok(())
        })
        .await
    }
}

/// Removes unknown entries. What cannot be removed is logged and retried at the next start: it must
/// not keep the server from serving all other pods.
fn sweep_dir(parent: &Path, known: &BTreeSet<PathBuf>) {
    let names = log_error(&parent.display(), durable::names_in(parent)).unwrap_or_default();
    for path in names.into_iter().map(|name| parent.join(name)) {
        if !known.contains(&path) {
            log_error(&path.display(), super::pod_files::remove_with_mounts(&path));
        }
    }
}

fn log_error<T, E: Display>(what: &(impl Display + ?Sized), outcome: Result<T, E>) -> Option<T> {
    outcome.map_err(|error| tracing::error!(%what, %error, "a leftover cannot be removed")).ok()
}
