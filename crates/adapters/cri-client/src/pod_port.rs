//! The client as the port through which the agent runs pods.
//!
//! Rule: one call of the port is one call of CRI (observing pods is a listing and the statuses of
//! what it lists), with translation only. Does not retry, cache or choose; time limits are in
//! `limits`.

mod container;
mod image;
mod observe;
mod records;
mod sandbox;
mod security;
mod signals;

use std::time::Duration;

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use ports::pod_runtime::{PodRuntime, RuntimeFuture, RuntimeSignals};
use ports::runtime_objects::{
    CgroupDriver, ContainerConfig, ContainerUsage, ExecOutput, FilesystemUsage, HandlerFeatures,
    ImageRecord, ImageSpec, LinuxResources, ListedPods, PullRequest, RuntimePods, SandboxConfig,
};

use crate::client::CriClient;

#[cfg(test)]
mod tests;

/// The error for a response that violates the CRI contract.
fn malformed_response(call: &'static str, message: String) -> ContainerRuntimeError {
    ContainerRuntimeError::Refused { call, code: "Internal".to_owned(), message }
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> i64 {
    let whole = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    i64::try_from(whole).unwrap_or(i64::MAX)
}

impl PodRuntime for CriClient {
    fn observe_all(&self) -> RuntimeFuture<'_, RuntimePods> {
        Box::pin(observe::all(self))
    }

    fn observe_pod<'a>(&'a self, uid: &'a str) -> RuntimeFuture<'a, RuntimePods> {
        Box::pin(observe::pod(self, uid))
    }

    fn list_pods(&self) -> RuntimeFuture<'_, ListedPods> {
        Box::pin(observe::listed(self))
    }

    fn signals(&self) -> Box<dyn RuntimeSignals> {
        Box::new(signals::ContainerEventSignals::new(self.clone()))
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> RuntimeFuture<'a, String> {
        Box::pin(async move {
            let request = v1::RunPodSandboxRequest {
                config: Some(sandbox::to_wire(config)),
                runtime_handler: config.runtime_handler.clone(),
            };
            let id = self.run_pod_sandbox(request).await?.pod_sandbox_id;
            named("RunPodSandbox", "the sandbox", id)
        })
    }

    fn stop_sandbox<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
            ignore_not_found(self.stop_pod_sandbox(request).await)
        })
    }

    fn remove_sandbox<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
            ignore_not_found(self.remove_pod_sandbox(request).await)
        })
    }

    fn create_container<'a>(
        &'a self,
        sandbox_id: &'a str,
        config: &'a ContainerConfig,
        sandbox: &'a SandboxConfig,
    ) -> RuntimeFuture<'a, String> {
        Box::pin(async move {
            let request = v1::CreateContainerRequest {
                pod_sandbox_id: sandbox_id.to_owned(),
                config: Some(container::to_wire(config)?),
                sandbox_config: Some(sandbox::to_wire(sandbox)),
            };
            let id = CriClient::create_container(self, request).await?.container_id;
            named("CreateContainer", "the container", id)
        })
    }

    fn start_container<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request = v1::StartContainerRequest { container_id: id.to_owned() };
            CriClient::start_container(self, request).await.map(drop)
        })
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request =
                v1::StopContainerRequest { container_id: id.to_owned(), timeout: seconds(grace) };
            ignore_not_found(CriClient::stop_container(self, request).await)
        })
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
            ignore_not_found(CriClient::remove_container(self, request).await)
        })
    }

    fn update_container<'a>(
        &'a self,
        id: &'a str,
        resources: &'a LinuxResources,
    ) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request = v1::UpdateContainerResourcesRequest {
                container_id: id.to_owned(),
                linux: Some(security::resources_to_wire(resources)),
                ..Default::default()
            };
            self.update_container_resources(request).await.map(drop)
        })
    }

    fn reopen_log<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
            self.reopen_container_log(request).await.map(drop)
        })
    }

    fn exec_sync<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> RuntimeFuture<'a, ExecOutput> {
        Box::pin(async move {
            let request = v1::ExecSyncRequest {
                container_id: id.to_owned(),
                cmd: command.to_vec(),
                timeout: seconds(limit),
            };
            let v1::ExecSyncResponse { stdout, stderr, exit_code } =
                CriClient::exec_sync(self, request).await?;
            Ok(ExecOutput { stdout, stderr, exit_code })
        })
    }

    fn container_usage(&self) -> RuntimeFuture<'_, Vec<ContainerUsage>> {
        Box::pin(async move {
            let answer = self.list_container_stats(v1::ListContainerStatsRequest::default());
            Ok(answer.await?.stats.into_iter().map(records::usage).collect())
        })
    }

    fn image<'a>(&'a self, image: &'a ImageSpec) -> RuntimeFuture<'a, Option<ImageRecord>> {
        Box::pin(image::status(self, image))
    }

    fn images(&self) -> RuntimeFuture<'_, Vec<ImageRecord>> {
        Box::pin(async move {
            let answer = self.list_images(v1::ListImagesRequest::default()).await?;
            Ok(answer.images.into_iter().map(image::record).collect())
        })
    }

    fn pull_image<'a>(&'a self, request: &'a PullRequest) -> RuntimeFuture<'a, String> {
        Box::pin(image::pull(self, request))
    }

    fn remove_image<'a>(&'a self, image: &'a ImageSpec) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let request = v1::RemoveImageRequest { image: Some(image::spec_to_wire(image)) };
            ignore_not_found(CriClient::remove_image(self, request).await)
        })
    }

    fn image_filesystems(&self) -> RuntimeFuture<'_, (Vec<FilesystemUsage>, Vec<FilesystemUsage>)> {
        Box::pin(async move {
            let answer = self.image_fs_info(v1::ImageFsInfoRequest {}).await?;
            let ours =
                |usages: Vec<_>| usages.into_iter().map(records::filesystem).collect::<Vec<_>>();
            Ok((ours(answer.image_filesystems), ours(answer.container_filesystems)))
        })
    }

    fn cgroup_driver(&self) -> RuntimeFuture<'_, CgroupDriver> {
        Box::pin(async move {
            records::cgroup_driver(self.runtime_config(v1::RuntimeConfigRequest {}).await?)
        })
    }

    fn handlers(&self) -> RuntimeFuture<'_, Vec<HandlerFeatures>> {
        Box::pin(async move {
            let answer = CriClient::status(self, v1::StatusRequest { verbose: false }).await?;
            Ok(answer.runtime_handlers.into_iter().map(records::handler).collect())
        })
    }

    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let network = v1::NetworkConfig { pod_cidr: cidr.to_owned() };
            let config = v1::RuntimeConfig { network_config: Some(network) };
            let request = v1::UpdateRuntimeConfigRequest { runtime_config: Some(config) };
            self.update_runtime_config(request).await.map(drop)
        })
    }
}

/// A container or sandbox that does not exist counts as stopped or removed; runtimes differ in
/// whether they return NotFound.
fn ignore_not_found<T>(
    outcome: Result<T, ContainerRuntimeError>,
) -> Result<(), ContainerRuntimeError> {
    match outcome {
        Ok(_) | Err(ContainerRuntimeError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A created object must have an id, or it could never be found again.
fn named(call: &'static str, what: &str, id: String) -> Result<String, ContainerRuntimeError> {
    if id.is_empty() {
        return Err(malformed_response(
            call,
            format!("the runtime did not name {what} that it made"),
        ));
    }
    Ok(id)
}
