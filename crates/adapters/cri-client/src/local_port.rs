//! The client as the port behind the agent's local socket.
//!
//! Rule: translation only. A stream is the runtime's own and is passed on as it is returned, as an
//! address or open; the runtime's errors are passed on with its text, prefixed by its name.

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use ports::local_api::LocalApiError;
use ports::local_runtime::{
    LocalCommandOutput, LocalImage, LocalImageName, LocalImages, LocalProcess, LocalRuntime,
    LocalRuntimeResult, LocalStream, LocalStreamRequest, LocalUsage, LocalUsages, StreamEndpoint,
};

use crate::client::CriClient;
use crate::open_streams::{OpenedStream, StreamDelivery};

#[cfg(test)]
mod tests;

const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";

impl LocalRuntime for CriClient {
    fn address(&self, stream_request: LocalStreamRequest) -> LocalRuntimeResult<'_, LocalStream> {
        Box::pin(async move {
            let opened_stream = self.opened_stream(stream_request, StreamDelivery::Url).await?;
            Ok(LocalStream { url: opened_stream.url, runtime: self.runtime_name().to_owned() })
        })
    }

    fn stream(&self, stream_request: LocalStreamRequest) -> LocalRuntimeResult<'_, StreamEndpoint> {
        Box::pin(async move {
            let opened_stream =
                self.opened_stream(stream_request, StreamDelivery::InProcess).await?;
            Ok(match opened_stream.open.and_then(|open| open.take()) {
                Some(carry) => StreamEndpoint::Here(carry),
                None => {
                    let runtime = self.runtime_name().to_owned();
                    StreamEndpoint::Address(LocalStream { url: opened_stream.url, runtime })
                }
            })
        })
    }

    fn process<'a>(&'a self, container: &'a str) -> LocalRuntimeResult<'a, LocalProcess> {
        Box::pin(async move {
            let request =
                v1::ContainerStatusRequest { container_id: container.to_owned(), verbose: true };
            let answer = self.container_status(request).await;
            let answer = answer.map_err(|error| self.to_local_error(&error))?;
            let state = answer.status.map(|status| status.state());
            if state != Some(v1::ContainerState::ContainerRunning) {
                let message = "the container does not run".to_owned();
                return Err(LocalApiError::TemporarilyUnavailable { message });
            }
            match answer.info.get("info").and_then(|info| process_in(info)) {
                Some(pid) => Ok(LocalProcess { pid }),
                None => Err(self.unsupported("does not tell the process of a container")),
            }
        })
    }

    fn usage(&self) -> LocalRuntimeResult<'_, LocalUsages> {
        Box::pin(async move {
            let request = v1::ListContainerStatsRequest { filter: None };
            let answer = self.list_container_stats(request).await;
            let answer = answer.map_err(|error| self.to_local_error(&error))?;
            Ok(LocalUsages { containers: answer.stats.into_iter().filter_map(usage).collect() })
        })
    }

    fn images(&self) -> LocalRuntimeResult<'_, LocalImages> {
        Box::pin(async move {
            let answer = self.list_images(v1::ListImagesRequest { filter: None }).await;
            let answer = answer.map_err(|error| self.to_local_error(&error))?;
            let images = answer.images.into_iter().map(|image| LocalImage {
                id: image.id,
                tags: image.repo_tags,
                digests: image.repo_digests,
                size_bytes: image.size,
                pinned: image.pinned,
            });
            Ok(LocalImages { images: images.collect() })
        })
    }

    fn remove_image<'a>(&'a self, name: &'a str) -> LocalRuntimeResult<'a, LocalImageName> {
        Box::pin(async move {
            let image = v1::ImageSpec { image: name.to_owned(), ..v1::ImageSpec::default() };
            // Removing an image that does not exist succeeds in CRI; a person wants to know.
            let request =
                v1::ImageStatusRequest { image: Some(image.clone()), ..Default::default() };
            let status = self.image_status(request).await;
            if status.map_err(|error| self.to_local_error(&error))?.image.is_none() {
                return Err(LocalApiError::NotFound { message: format!("no image named {name}") });
            }
            let removed =
                CriClient::remove_image(self, v1::RemoveImageRequest { image: Some(image) });
            removed.await.map_err(|error| self.to_local_error(&error))?;
            Ok(LocalImageName { name: name.to_owned() })
        })
    }

    fn run_command<'a>(
        &'a self,
        container: &'a str,
        command: Vec<String>,
    ) -> LocalRuntimeResult<'a, LocalCommandOutput> {
        Box::pin(async move {
            let container_id = container.to_owned();
            let request = v1::ExecSyncRequest { container_id, cmd: command, timeout: 0 };
            let ended = self.exec_sync(request).await;
            let v1::ExecSyncResponse { stdout, stderr, exit_code } =
                ended.map_err(|error| self.to_local_error(&error))?;
            Ok(LocalCommandOutput { stdout, stderr, exit_code })
        })
    }

    fn checkpoint<'a>(
        &'a self,
        container: &'a str,
        path: String,
        seconds: i64,
    ) -> LocalRuntimeResult<'a, ()> {
        Box::pin(async move {
            let container_id = container.to_owned();
            let request =
                v1::CheckpointContainerRequest { container_id, location: path, timeout: seconds };
            let written = self.checkpoint_container(request).await;
            written.map(drop).map_err(|error| self.to_local_error(&error))
        })
    }
}

impl CriClient {
    /// The runtime's response to a stream request.
    async fn opened_stream(
        &self,
        stream_request: LocalStreamRequest,
        delivery: StreamDelivery,
    ) -> Result<OpenedStream, LocalApiError> {
        let opened_stream = match stream_request {
            LocalStreamRequest::Exec { container, command } => {
                let request = v1::ExecRequest {
                    container_id: container,
                    cmd: command.command,
                    tty: command.tty,
                    stdin: command.stdin,
                    stdout: command.stdout,
                    stderr: command.stderr && !command.tty,
                };
                self.exec_stream(request, delivery).await
            }
            LocalStreamRequest::Attach { container, command } => {
                let request = v1::AttachRequest {
                    container_id: container,
                    tty: command.tty,
                    stdin: command.stdin,
                    stdout: command.stdout,
                    stderr: command.stderr && !command.tty,
                };
                self.attach_stream(request, delivery).await
            }
            LocalStreamRequest::Forward { pod } => {
                let pod_sandbox_id = self.sandbox_of(&pod).await?;
                let request = v1::PortForwardRequest { pod_sandbox_id, ..Default::default() };
                self.forward_stream(request, delivery).await
            }
        };
        opened_stream.map_err(|error| self.to_local_error(&error))
    }

    /// The current sandbox of the pod with this UID.
    async fn sandbox_of(&self, pod: &str) -> Result<String, LocalApiError> {
        let filter = v1::PodSandboxFilter {
            state: Some(v1::PodSandboxStateValue {
                state: v1::PodSandboxState::SandboxReady.into(),
            }),
            label_selector: [(POD_UID.to_owned(), pod.to_owned())].into(),
            ..v1::PodSandboxFilter::default()
        };
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let listed = self.list_pod_sandbox(request).await;
        let listed = listed.map_err(|error| self.to_local_error(&error))?;
        let newest = listed.items.into_iter().max_by_key(|sandbox| sandbox.created_at);
        newest.map(|sandbox| sandbox.id).ok_or_else(|| LocalApiError::TemporarilyUnavailable {
            message: "the pod has no network yet, or not any more".to_owned(),
        })
    }

    fn unsupported(&self, what: &str) -> LocalApiError {
        let message = format!("not over this runtime yet: {} {what}", self.runtime_name());
        LocalApiError::TemporarilyUnavailable { message }
    }

    fn to_local_error(&self, error: &ContainerRuntimeError) -> LocalApiError {
        let message = match error {
            ContainerRuntimeError::Unimplemented { call, message } => {
                return self.unsupported(&format!("does not serve {call} ({message})"));
            }
            // The runtime's message is enough; the call's name is internal.
            ContainerRuntimeError::NotFound { message, .. } => {
                return LocalApiError::NotFound { message: message.clone() };
            }
            ContainerRuntimeError::Refused { message, .. } => message.clone(),
            other => other.to_string(),
        };
        LocalApiError::TemporarilyUnavailable { message }
    }
}

/// The PID of the first process in a runtime's verbose information.
fn process_in(info: &str) -> Option<u32> {
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    let pid = info.get("pid")?.as_u64()?;
    u32::try_from(pid).ok().filter(|pid| *pid > 0)
}

/// `None` for a container that belongs to no pod.
fn usage(stats: v1::ContainerStats) -> Option<LocalUsage> {
    let attributes = stats.attributes?;
    let label = |name: &str| attributes.labels.get(name).cloned().unwrap_or_default();
    let value = |value: Option<v1::UInt64Value>| value.map(|value| value.value);
    let cpu = stats.cpu.unwrap_or_default();
    Some(LocalUsage {
        name: attributes.metadata.as_ref().map(|meta| meta.name.clone()).unwrap_or_default(),
        pod_namespace: label(POD_NAMESPACE),
        pod_name: label(POD_NAME),
        pod_uid: label(POD_UID),
        container_id: attributes.id,
        at: cpu.timestamp,
        cpu_nanos: value(cpu.usage_core_nano_seconds),
        memory_bytes: value(stats.memory.and_then(|memory| memory.working_set_bytes)),
        written_bytes: value(stats.writable_layer.and_then(|layer| layer.used_bytes)),
    })
}
