//! Changes to running containers: resources, logs.
//!
//! upstream: containerd internal/cri/server/container_update_resources.go, container_log_reopen.go

use cgroup_files::CgroupResources;
use container_create::spec::LimitsSpec;
use cri_wire::v1;
use prost::Message as _;

use super::Runtime;
use super::container_create::SPECIFICATION;
use super::container_views::state_of;
use crate::durable;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::records::{ContainerStage, SandboxStage};
use crate::specification::{group_of_pod, resources};

impl Runtime {
    pub async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<()> {
        let runtime = self.clone();
        self.run_to_completion(async move { Box::pin(runtime.update(request)).await }).await
    }

    async fn update(&self, request: v1::UpdateContainerResourcesRequest) -> Result<()> {
        let container =
            self.record_store.container(&request.container_id).doing("failed to find container")?;
        let record = container.record();
        if record.stage() == ContainerStage::Removing {
            return Err(CriError::plain(format!(
                "container {:?} is in removing state",
                container.id
            )));
        }
        let Some(update) = request.linux else { return Ok(()) };
        let limits = resources::limits(&update, self.machine.kernel_features);
        if state_of(&record) == v1::ContainerState::ContainerRunning {
            self.apply(&record.cgroup, limits.clone()).await.doing("failed to update resources")?;
        }
        let merged = resources::merged(record.resources.as_ref(), &update);
        let all = resources::limits(&merged, self.machine.kernel_features);
        // A container that has not started yet gets them at its start.
        let mut spec = self.specification(&container.id).await?;
        if let Some(cgroup) = &mut spec.cgroup {
            cgroup.limits = Some(all);
        }
        let path = self.container_dir(&container.id).join(SPECIFICATION);
        blocking(move || durable::write_durably(&path, &spec.encode_to_vec())).await?;
        self.record_store
            .change_container(&container, |record| {
                record.resources = Some(merged);
                true
            })
            .await
            .map(drop)
    }

    /// Sets limits of a container's cgroup; with systemd the scope's properties first.
    async fn apply(&self, path: &str, limits: LimitsSpec) -> Result<()> {
        let group =
            self.hierarchy.group(path).map_err(|error| CriError::plain(error.to_string()))?;
        let scope = path.rsplit('/').next().filter(|name| name.ends_with(".scope"));
        let scope = scope.map(str::to_owned);
        blocking(move || {
            if let Some(unit) = scope {
                let version = group.hierarchy().version();
                container_create::scopes::change(&unit, &limits, version)
                    .map_err(|trouble| CriError::plain(trouble.message))?;
            }
            group.apply(&limits.to_limits()).map_err(|error| CriError::plain(error.to_string()))
        })
        .await
    }

    /// Adjusts the limits of a pod's cgroup. A kubelet creates the cgroup and has set them before;
    /// other clients rely on this.
    pub async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<()> {
        let sandbox =
            self.record_store.sandbox(&request.pod_sandbox_id).doing("failed to find sandbox")?;
        let _guard = sandbox.exclusive_lock.lock().await;
        let record = sandbox.record();
        if record.stage() != SandboxStage::Ready {
            return Err(CriError::plain(format!("sandbox {:?} is not ready", sandbox.id)));
        }
        let wanted = pod_limits(request.resources.as_ref(), request.overhead.as_ref());
        if let Some(path) = record.config.as_ref().and_then(group_of_pod) {
            self.move_limits(&path, wanted).await.doing("failed to update the pod's resources")?;
        }
        self.record_store
            .change_sandbox(&sandbox, |record| {
                record.overhead = request.overhead;
                record.resources = request.resources;
            })
            .await
            .map(drop)
    }

    /// Changes limits that the cgroup already has; unlimited ones stay unlimited.
    async fn move_limits(&self, path: &str, wanted: CgroupResources) -> Result<()> {
        let odd = |error: cgroup_files::CgroupError| CriError::plain(error.to_string());
        let group = self.hierarchy.group(path).map_err(odd)?;
        blocking(move || {
            if !group.exists_in_any_hierarchy() {
                return Ok(());
            }
            let now = group.current_limits().map_err(odd)?;
            let limits = CgroupResources {
                memory: wanted.memory.filter(|_| now.memory.is_some()),
                cpu_quota: wanted.cpu_quota.filter(|_| now.cpu_quota.is_some()),
                cpu_period: wanted.cpu_period.filter(|_| now.cpu_quota.is_some()),
                ..CgroupResources::default()
            };
            group.apply(&limits).map_err(odd)
        })
        .await
    }

    pub async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let container = self
            .record_store
            .container(id)
            .doing(format!("an error occurred when try to find container {id:?}"))?;
        if state_of(&container.record()) != v1::ContainerState::ContainerRunning {
            return Err(CriError::plain("container is not running"));
        }
        let sandbox = self.record_store.sandbox(&container.sandbox_id)?;
        let supervisor = self.supervisor_of(&sandbox).await?;
        Ok(supervisor.client.reopen_log(&container.id).await?)
    }
}

/// The resources of a pod: its containers' and the overhead together. Without a limit of the
/// containers there is none; CPU shares are left to the caller, whose formula for weights may
/// differ.
///
/// upstream: pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go sends the sum of the existing
/// limits even if a container has none, so a limit is only adjusted here and never added.
fn pod_limits(
    resources: Option<&v1::LinuxContainerResources>,
    overhead: Option<&v1::LinuxContainerResources>,
) -> CgroupResources {
    let sum = |of: fn(&v1::LinuxContainerResources) -> i64| {
        let own = resources.map_or(0, of);
        (own > 0).then(|| own.saturating_add(overhead.map_or(0, of).max(0)))
    };
    CgroupResources {
        memory: sum(|one| one.memory_limit_in_bytes),
        cpu_quota: sum(|one| one.cpu_quota),
        cpu_period: resources
            .and_then(|one| u64::try_from(one.cpu_period).ok())
            .filter(|period| *period > 0),
        ..CgroupResources::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_its_containers_and_the_overhead_together() {
        let resources = |memory, quota| v1::LinuxContainerResources {
            memory_limit_in_bytes: memory,
            cpu_quota: quota,
            cpu_period: 100_000,
            ..Default::default()
        };
        let limits = pod_limits(Some(&resources(1000, 5000)), Some(&resources(24, 100)));
        assert_eq!((limits.memory, limits.cpu_quota), (Some(1024), Some(5100)));
        assert_eq!(limits.cpu_period, Some(100_000));
        let open = pod_limits(Some(&resources(0, -1)), Some(&resources(24, 100)));
        assert_eq!((open.memory, open.cpu_quota), (None, None), "an overhead is no limit");
        assert_eq!(pod_limits(None, None), CgroupResources::default());
    }
}
