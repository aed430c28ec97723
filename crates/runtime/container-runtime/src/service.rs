//! The two services of CRI: each call is passed to its implementation. Nothing is decided here.

use cri_wire::AcceptsInProcessStream;
use cri_wire::v1;
use cri_wire::v1::image_service_server::ImageService;
use cri_wire::v1::runtime_service_server::RuntimeService;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use crate::events::in_chunks;
use crate::failure::CriError;
use crate::images::RegistryPullRequest;
use crate::runtime::Runtime;
use crate::streams::StreamRequest;

/// Items in one message of a streaming list.
const PART: usize = 100;

type GrpcResult<T> = Result<Response<T>, Status>;

fn respond<T, R>(outcome: Result<T, CriError>, wrap: impl FnOnce(T) -> R) -> GrpcResult<R> {
    match outcome {
        Ok(value) => Ok(Response::new(wrap(value))),
        Err(failure) => {
            tracing::debug!(code = ?failure.code, %failure, "refused");
            Err(failure.into())
        }
    }
}

/// A stream in the form that the client can use: a connection for a client in this process that
/// asks for it, a URL for all others.
async fn streamed<Q, R>(
    runtime: &Runtime,
    request: Request<Q>,
    to_request: impl FnOnce(Q) -> StreamRequest,
    wrap: impl FnOnce(String) -> R,
) -> GrpcResult<R> {
    let takes_open = request.extensions().get::<AcceptsInProcessStream>().is_some();
    let to_request = to_request(request.into_inner());
    if !takes_open {
        return respond(runtime.stream_address(to_request).await, wrap);
    }
    let open = respond(runtime.open_stream(to_request), |open| open)?.into_inner();
    let mut response = Response::new(wrap(String::new()));
    response.extensions_mut().insert(open);
    Ok(response)
}

#[async_trait]
impl RuntimeService for Runtime {
    async fn version(&self, _: Request<v1::VersionRequest>) -> GrpcResult<v1::VersionResponse> {
        Ok(Response::new(Runtime::version(self)))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> GrpcResult<v1::RunPodSandboxResponse> {
        respond(Runtime::run_pod_sandbox(self, request.into_inner()).await, |pod_sandbox_id| {
            v1::RunPodSandboxResponse { pod_sandbox_id }
        })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> GrpcResult<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        respond(Runtime::stop_pod_sandbox(self, &id).await, |()| v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> GrpcResult<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        respond(Runtime::remove_pod_sandbox(self, &id).await, |()| v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> GrpcResult<v1::PodSandboxStatusResponse> {
        respond(Runtime::pod_sandbox_status(self, &request.into_inner()), |status| status)
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> GrpcResult<v1::ListPodSandboxResponse> {
        let items = Runtime::list_pod_sandbox(self, request.into_inner().filter);
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> GrpcResult<BoxStream<v1::StreamPodSandboxesResponse>> {
        let items = Runtime::list_pod_sandbox(self, request.into_inner().filter);
        Ok(Response::new(in_chunks(items, PART, |pod_sandboxes| v1::StreamPodSandboxesResponse {
            pod_sandboxes,
        })))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> GrpcResult<v1::CreateContainerResponse> {
        respond(Runtime::create_container(self, request.into_inner()).await, |container_id| {
            v1::CreateContainerResponse { container_id }
        })
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> GrpcResult<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        respond(Runtime::start_container(self, &id).await, |()| v1::StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> GrpcResult<v1::StopContainerResponse> {
        let request = request.into_inner();
        let outcome = Runtime::stop_container(self, &request.container_id, request.timeout).await;
        respond(outcome, |()| v1::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> GrpcResult<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        respond(Runtime::remove_container(self, &id).await, |()| v1::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> GrpcResult<v1::ListContainersResponse> {
        let containers = Runtime::list_containers(self, request.into_inner().filter);
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> GrpcResult<BoxStream<v1::StreamContainersResponse>> {
        let items = Runtime::list_containers(self, request.into_inner().filter);
        let wrap = |containers| v1::StreamContainersResponse { containers };
        Ok(Response::new(in_chunks(items, PART, wrap)))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> GrpcResult<v1::ContainerStatusResponse> {
        respond(Runtime::container_status(self, &request.into_inner()).await, |status| status)
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> GrpcResult<v1::UpdateContainerResourcesResponse> {
        let outcome = Runtime::update_container_resources(self, request.into_inner()).await;
        respond(outcome, |()| v1::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> GrpcResult<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        let outcome = Runtime::reopen_container_log(self, &id).await;
        respond(outcome, |()| v1::ReopenContainerLogResponse {})
    }

    async fn exec_sync(
        &self,
        request: Request<v1::ExecSyncRequest>,
    ) -> GrpcResult<v1::ExecSyncResponse> {
        respond(Runtime::exec_sync(self, request.into_inner()).await, |respond| respond)
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> GrpcResult<v1::ExecResponse> {
        streamed(self, request, StreamRequest::Exec, |url| v1::ExecResponse { url }).await
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> GrpcResult<v1::AttachResponse> {
        streamed(self, request, StreamRequest::Attach, |url| v1::AttachResponse { url }).await
    }

    async fn port_forward(
        &self,
        request: Request<v1::PortForwardRequest>,
    ) -> GrpcResult<v1::PortForwardResponse> {
        streamed(self, request, StreamRequest::PortForward, |url| v1::PortForwardResponse { url })
            .await
    }

    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> GrpcResult<v1::ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        respond(Runtime::container_stats(self, &id).await, |stats| v1::ContainerStatsResponse {
            stats: Some(stats),
        })
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> GrpcResult<v1::ListContainerStatsResponse> {
        let outcome = Runtime::list_container_stats(self, request.into_inner().filter).await;
        respond(outcome, |stats| v1::ListContainerStatsResponse { stats })
    }

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> GrpcResult<BoxStream<v1::StreamContainerStatsResponse>> {
        let outcome = Runtime::list_container_stats(self, request.into_inner().filter).await;
        let wrap = |container_stats| v1::StreamContainerStatsResponse { container_stats };
        respond(outcome, |stats| in_chunks(stats, PART, wrap))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> GrpcResult<v1::PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        respond(Runtime::pod_sandbox_stats(self, &id).await, |stats| v1::PodSandboxStatsResponse {
            stats: Some(stats),
        })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> GrpcResult<v1::ListPodSandboxStatsResponse> {
        let outcome = Runtime::list_pod_sandbox_stats(self, request.into_inner().filter).await;
        respond(outcome, |stats| v1::ListPodSandboxStatsResponse { stats })
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> GrpcResult<BoxStream<v1::StreamPodSandboxStatsResponse>> {
        let outcome = Runtime::list_pod_sandbox_stats(self, request.into_inner().filter).await;
        let wrap = |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats };
        respond(outcome, |stats| in_chunks(stats, PART, wrap))
    }

    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> GrpcResult<v1::UpdateRuntimeConfigResponse> {
        let config = request.into_inner().runtime_config.unwrap_or_default();
        let network = config.network_config.unwrap_or_default();
        self.network.on_pod_cidr(&network.pod_cidr).await;
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> GrpcResult<v1::StatusResponse> {
        Ok(Response::new(Runtime::status(self, request.into_inner().verbose).await))
    }

    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> GrpcResult<v1::CheckpointContainerResponse> {
        Err(Status::unimplemented("this runtime cannot write a container's processes to a file"))
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> GrpcResult<BoxStream<v1::ContainerEventResponse>> {
        Ok(Response::new(self.events.subscribe()))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> GrpcResult<v1::ListMetricDescriptorsResponse> {
        let descriptors = Runtime::list_metric_descriptors(self);
        Ok(Response::new(v1::ListMetricDescriptorsResponse { descriptors }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> GrpcResult<v1::ListPodSandboxMetricsResponse> {
        let pod_metrics = Runtime::list_pod_sandbox_metrics(self).await;
        Ok(Response::new(v1::ListPodSandboxMetricsResponse { pod_metrics }))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> GrpcResult<BoxStream<v1::StreamPodSandboxMetricsResponse>> {
        let metrics = Runtime::list_pod_sandbox_metrics(self).await;
        let wrap =
            |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics };
        Ok(Response::new(in_chunks(metrics, PART, wrap)))
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> GrpcResult<v1::RuntimeConfigResponse> {
        Ok(Response::new(Runtime::runtime_config(self)))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> GrpcResult<v1::UpdatePodSandboxResourcesResponse> {
        let outcome = Runtime::update_pod_sandbox_resources(self, request.into_inner()).await;
        respond(outcome, |()| v1::UpdatePodSandboxResourcesResponse {})
    }
}

#[async_trait]
impl ImageService for Runtime {
    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> GrpcResult<v1::ListImagesResponse> {
        let outcome = self.images.list(request.into_inner().filter).await;
        respond(outcome, |images| v1::ListImagesResponse { images })
    }

    async fn stream_images(
        &self,
        request: Request<v1::StreamImagesRequest>,
    ) -> GrpcResult<BoxStream<v1::StreamImagesResponse>> {
        let outcome = self.images.list(request.into_inner().filter).await;
        let wrap = |images| v1::StreamImagesResponse { images };
        respond(outcome, |images| in_chunks(images, PART, wrap))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> GrpcResult<v1::ImageStatusResponse> {
        let request = request.into_inner();
        respond(self.images.status(request.image, request.verbose).await, |status| status)
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> GrpcResult<v1::PullImageResponse> {
        let request = request.into_inner();
        let image = request.image.map(|image| image.image).unwrap_or_default();
        let outcome = self.images.pull(RegistryPullRequest { image, auth: request.auth }).await;
        respond(outcome, |image_ref| v1::PullImageResponse { image_ref })
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> GrpcResult<v1::RemoveImageResponse> {
        let outcome = self.images.remove(request.into_inner().image).await;
        respond(outcome, |()| v1::RemoveImageResponse {})
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> GrpcResult<v1::ImageFsInfoResponse> {
        respond(self.images.filesystem().await, |info| info)
    }
}
