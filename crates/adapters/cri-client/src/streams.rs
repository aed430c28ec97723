//! Calls whose response comes in parts: lists too large for one message, and container events.
//!
//! Rule: a list in parts is one call with one limit for all of it. The event stream has no limit,
//! since silence is its normal state; when the runtime goes away it ends with an error. Does not
//! reopen: events only mean "observe again", so the caller observes and opens a new stream.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use tonic::{Status, Streaming};

use crate::call_error::{RuntimeCallContext, from_status};
use crate::client::CriClient;
use crate::limits;

macro_rules! lists_in_parts {
    ($service:ident, $call:ident, $($method:ident($request:ident) -> $item:ident in $field:ident $name:literal;)*) => {
        impl CriClient {
            $(
                #[doc = concat!("The call `", $name, "`, with all of its parts.")]
                pub async fn $method(
                    &self,
                    request: v1::$request,
                ) -> Result<Vec<v1::$item>, ContainerRuntimeError> {
                    let limit = limits::ordinary(&request, &self.limits);
                    let mut service = self.$service();
                    let send = |request| async move {
                        let mut parts = service.$method(request).await?.into_inner();
                        let mut items = Vec::new();
                        while let Some(part) = parts.message().await? {
                            items.extend(part.$field);
                        }
                        Ok(items)
                    };
                    // Boxed: the future of a generated call is large, and callers nest it.
                    Box::pin(self.$call($name, limit).make(request, send)).await
                }
            )*
        }
    };
}

lists_in_parts! { runtime_service, runtime_call,
    stream_pod_sandboxes(StreamPodSandboxesRequest) -> PodSandbox in pod_sandboxes "StreamPodSandboxes";
    stream_containers(StreamContainersRequest) -> Container in containers "StreamContainers";
    stream_container_stats(StreamContainerStatsRequest) -> ContainerStats in container_stats "StreamContainerStats";
    stream_pod_sandbox_stats(StreamPodSandboxStatsRequest) -> PodSandboxStats in pod_sandbox_stats "StreamPodSandboxStats";
    stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest) -> PodSandboxMetrics in pod_sandbox_metrics "StreamPodSandboxMetrics";
}

lists_in_parts! { image_service, image_call,
    stream_images(StreamImagesRequest) -> Image in images "StreamImages";
}

type Opening =
    Pin<Box<dyn Future<Output = Result<Streaming<v1::ContainerEventResponse>, Status>> + Send>>;

enum EventSource {
    Opening(Opening),
    Open(Box<Streaming<v1::ContainerEventResponse>>),
    Ended,
}

/// The runtime's container events, in the order in which it sends them.
pub struct ContainerEventStream {
    source: EventSource,
    endpoint: String,
}

impl CriClient {
    /// The call `GetContainerEvents`; it leaves with the first [`ContainerEventStream::next`].
    ///
    /// Opening is part of the first wait because a runtime may send its headers only together
    /// with the first event.
    pub fn container_events(&self) -> ContainerEventStream {
        let mut service = self.runtime_service();
        let opening = async move {
            service
                .get_container_events(v1::GetEventsRequest {})
                .await
                .map(tonic::Response::into_inner)
        };
        ContainerEventStream {
            source: EventSource::Opening(Box::pin(opening)),
            endpoint: self.runtime_name().to_owned(),
        }
    }
}

impl ContainerEventStream {
    /// The next event; `None` when the runtime ended the stream. Cancel-safe.
    pub async fn next(
        &mut self,
    ) -> Result<Option<v1::ContainerEventResponse>, ContainerRuntimeError> {
        let outcome = self.wait().await;
        if !matches!(outcome, Ok(Some(_))) {
            self.source = EventSource::Ended;
        }
        outcome.map_err(|status| {
            let facts = RuntimeCallContext {
                call: "GetContainerEvents",
                endpoint: &self.endpoint,
                limit: None,
                elapsed: Duration::ZERO,
            };
            from_status(&status, facts)
        })
    }

    async fn wait(&mut self) -> Result<Option<v1::ContainerEventResponse>, Status> {
        if let EventSource::Opening(opening) = &mut self.source {
            self.source = EventSource::Open(Box::new(opening.await?));
        }
        match &mut self.source {
            EventSource::Open(events) => events.message().await,
            EventSource::Opening(_) | EventSource::Ended => Ok(None),
        }
    }
}
