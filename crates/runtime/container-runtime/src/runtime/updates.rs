//! Changes to what runs: resources, logs.
//!
//! upstream: containerd internal/cri/server/container_update_resources.go, container_log_reopen.go

use container_create::spec::LimitsSpec;
use cri_wire::v1;
use prost::Message as _;

use super::Runtime;
use super::container_create::SPECIFICATION;
use super::container_views::state_of;
use crate::durable;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::records::{ContainerStage, SandboxStage};
use crate::specification::resources;

impl Runtime {
    pub async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<()> {
        let runtime = self.clone();
        self.to_its_end(async move { Box::pin(runtime.update(request)).await }).await
    }

    async fn update(&self, request: v1::UpdateContainerResourcesRequest) -> Result<()> {
        let container =
            self.book.container(&request.container_id).doing("failed to find container")?;
        let record = container.record();
        if record.stage() == ContainerStage::Removing {
            return Err(Failure::plain(format!(
                "container {:?} is in removing state",
                container.id
            )));
        }
        let Some(update) = request.linux else { return Ok(()) };
        let limits = resources::limits(&update, self.machine.abilities);
        if state_of(&record) == v1::ContainerState::ContainerRunning {
            self.apply(&record.cgroup, limits.clone()).await.doing("failed to update resources")?;
        }
        let merged = resources::merged(record.resources.as_ref(), &update);
        let all = resources::limits(&merged, self.machine.abilities);
        // A container that has not started yet gets them then.
        let mut spec = self.specification(&container.id).await?;
        if let Some(cgroup) = &mut spec.cgroup {
            cgroup.limits = Some(all);
        }
        let path = self.container_folder(&container.id).join(SPECIFICATION);
        blocking(move || durable::write_whole(&path, &spec.encode_to_vec())).await?;
        self.book
            .change_container(&container, |record| {
                record.resources = Some(merged);
                true
            })
            .await
            .map(drop)
    }

    /// Writes limits to a group.
    async fn apply(&self, path: &str, limits: LimitsSpec) -> Result<()> {
        let group =
            self.hierarchy.group(path).map_err(|error| Failure::plain(error.to_string()))?;
        blocking(move || {
            group.apply(&limits.to_limits()).map_err(|error| Failure::plain(error.to_string()))
        })
        .await
    }

    /// Takes note of a pod's resources; its group is the caller's, as with the reference runtime.
    pub async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<()> {
        let sandbox = self.book.sandbox(&request.pod_sandbox_id).doing("failed to find sandbox")?;
        let _turn = sandbox.turn.lock().await;
        if sandbox.record().stage() != SandboxStage::Ready {
            return Err(Failure::plain(format!("sandbox {:?} is not ready", sandbox.id)));
        }
        self.book
            .change_sandbox(&sandbox, |record| {
                record.overhead = request.overhead;
                record.resources = request.resources;
            })
            .await
            .map(drop)
    }

    pub async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let container = self
            .book
            .container(id)
            .doing(format!("an error occurred when try to find container {id:?}"))?;
        if state_of(&container.record()) != v1::ContainerState::ContainerRunning {
            return Err(Failure::plain("container is not running"));
        }
        let supervisor = self.book.sandbox(&container.sandbox_id)?.reachable()?;
        Ok(supervisor.client.reopen_log(&container.id).await?)
    }
}
