//! Every unary call, each with its limit.
//!
//! Rule: one line per call; a method takes the CRI request and returns the CRI response. Does not
//! interpret either. The calls that open streams are in `open_streams`.

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;

use crate::client::CriClient;
use crate::limits;

macro_rules! calls {
    ($service:ident, $call:ident, $($method:ident($request:ident) -> $answer:ident $name:literal $limit:ident;)*) => {
        impl CriClient {
            $(
                #[doc = concat!("The call `", $name, "`.")]
                pub async fn $method(
                    &self,
                    request: v1::$request,
                ) -> Result<v1::$answer, ContainerRuntimeError> {
                    let limit = limits::$limit(&request, &self.limits);
                    let mut service = self.$service();
                    let send = |request| async move {
                        service.$method(request).await.map(tonic::Response::into_inner)
                    };
                    // Boxed: the future of a generated call is large, and callers nest it.
                    Box::pin(self.$call($name, limit).make(request, send)).await
                }
            )*
        }
    };
}

calls! { runtime_service, runtime_call,
    version(VersionRequest) -> VersionResponse "Version" ordinary;
    run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse "RunPodSandbox" sandbox;
    stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse "StopPodSandbox" ordinary;
    remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse "RemovePodSandbox" ordinary;
    pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse "PodSandboxStatus" ordinary;
    list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse "ListPodSandbox" ordinary;
    create_container(CreateContainerRequest) -> CreateContainerResponse "CreateContainer" ordinary;
    start_container(StartContainerRequest) -> StartContainerResponse "StartContainer" ordinary;
    stop_container(StopContainerRequest) -> StopContainerResponse "StopContainer" stop;
    remove_container(RemoveContainerRequest) -> RemoveContainerResponse "RemoveContainer" ordinary;
    list_containers(ListContainersRequest) -> ListContainersResponse "ListContainers" ordinary;
    container_status(ContainerStatusRequest) -> ContainerStatusResponse "ContainerStatus" ordinary;
    update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse "UpdateContainerResources" ordinary;
    reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse "ReopenContainerLog" ordinary;
    exec_sync(ExecSyncRequest) -> ExecSyncResponse "ExecSync" exec;
    container_stats(ContainerStatsRequest) -> ContainerStatsResponse "ContainerStats" ordinary;
    list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse "ListContainerStats" ordinary;
    pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse "PodSandboxStats" ordinary;
    list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse "ListPodSandboxStats" ordinary;
    update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse "UpdateRuntimeConfig" ordinary;
    status(StatusRequest) -> StatusResponse "Status" ordinary;
    checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse "CheckpointContainer" checkpoint;
    list_metric_descriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse "ListMetricDescriptors" ordinary;
    list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse "ListPodSandboxMetrics" ordinary;
    runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse "RuntimeConfig" ordinary;
    update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse "UpdatePodSandboxResources" ordinary;
}

calls! { image_service, image_call,
    list_images(ListImagesRequest) -> ListImagesResponse "ListImages" ordinary;
    image_status(ImageStatusRequest) -> ImageStatusResponse "ImageStatus" ordinary;
    pull_image(PullImageRequest) -> PullImageResponse "PullImage" pull;
    remove_image(RemoveImageRequest) -> RemoveImageResponse "RemoveImage" ordinary;
    image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse "ImageFsInfo" ordinary;
}
