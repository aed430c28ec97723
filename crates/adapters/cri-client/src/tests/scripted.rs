//! A runtime that behaves as its requests say, and peers that are no runtime.
//!
//! Rule: the id in a request chooses the behaviour, so that one server serves all tests.

use std::path::PathBuf;
use std::pin::Pin;

use cri_wire::v1;
use cri_wire::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::tokio_stream::{self, Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::Endpoint;

/// More than any message may have.
pub(crate) const OVERSIZED: usize = cri_wire::MESSAGE_SIZE_LIMIT + 1;

pub(crate) type Parts<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(crate) struct ScriptedRuntime;

#[tonic::async_trait]
impl RuntimeService for ScriptedRuntime {
    async fn version(
        &self,
        _: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "scripted".into(),
            runtime_version: "1.2.3".into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(
        &self,
        _: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        let condition = |name: &str, status, reason: &str| v1::RuntimeCondition {
            r#type: name.into(),
            status,
            reason: reason.into(),
            message: String::new(),
        };
        let conditions = vec![
            condition("RuntimeReady", true, ""),
            condition("NetworkReady", false, "NoNetwork"),
            condition("Mood", true, ""),
        ];
        let status = Some(v1::RuntimeStatus { conditions });
        Ok(Response::new(v1::StatusResponse { status, ..Default::default() }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        let filling = match request.into_inner().container_id.as_str() {
            "hang" => std::future::pending().await,
            "absent" => return Err(Status::not_found("no container \"absent\"")),
            "large" => OVERSIZED - 1024,
            "oversized" => OVERSIZED,
            other => return Err(Status::invalid_argument(format!("{other:?} is no id"))),
        };
        let info = [("filling".to_owned(), "x".repeat(filling))].into();
        Ok(Response::new(v1::ContainerStatusResponse { info, ..Default::default() }))
    }

    async fn exec_sync(
        &self,
        _: Request<v1::ExecSyncRequest>,
    ) -> Result<Response<v1::ExecSyncResponse>, Status> {
        Err(Status::deadline_exceeded("the command ran too long"))
    }

    async fn stream_containers(
        &self,
        _: Request<v1::StreamContainersRequest>,
    ) -> Result<Response<Parts<v1::StreamContainersResponse>>, Status> {
        let parts = [&["one", "two"][..], &[][..], &["three"][..]].map(|ids| {
            let container = |id: &&str| v1::Container { id: (*id).into(), ..Default::default() };
            Ok(v1::StreamContainersResponse { containers: ids.iter().map(container).collect() })
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(parts))))
    }

    async fn stream_pod_sandboxes(
        &self,
        _: Request<v1::StreamPodSandboxesRequest>,
    ) -> Result<Response<Parts<v1::StreamPodSandboxesResponse>>, Status> {
        let part = tokio_stream::once(Ok(v1::StreamPodSandboxesResponse::default()));
        Ok(Response::new(Box::pin(part.chain(tokio_stream::pending()))))
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Result<Response<Parts<v1::ContainerEventResponse>>, Status> {
        let events = ["first", "second"].map(|id| {
            Ok(v1::ContainerEventResponse { container_id: id.into(), ..Default::default() })
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(events).chain(tokio_stream::pending()))))
    }
}

/// A temporary directory for one socket.
pub(crate) struct SocketDir {
    dir: tempfile::TempDir,
}

/// Stops the peer and cuts its connections when dropped.
pub(crate) struct GarbageServer {
    _tasks: JoinSet<()>,
    handle: AbortHandle,
}

impl Drop for GarbageServer {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl SocketDir {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("runtime.sock")
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::unix(self.socket())
    }

    /// A socket on which no connection is accepted.
    pub(crate) fn listen(&self) -> UnixListener {
        UnixListener::bind(self.socket()).expect("a socket in the folder")
    }

    pub(crate) fn remove_socket(&self) {
        std::fs::remove_file(self.socket()).expect("the socket is there");
    }

    pub(crate) fn serve(&self, runtime: impl RuntimeService) -> GarbageServer {
        let listener = self.listen();
        // Cutting a connection from outside needs a pump per connection: the server keeps those
        // it has accepted for as long as they live.
        let (accepted, incoming) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        let handle = tasks.spawn(async move {
            let mut connections = JoinSet::new();
            let server = RuntimeServiceServer::new(runtime)
                .max_decoding_message_size(2 * OVERSIZED)
                .max_encoding_message_size(2 * OVERSIZED);
            connections.spawn(async move {
                let served = tonic::transport::Server::builder().add_service(server);
                let _ = served.serve_with_incoming(ReceiverStream::new(incoming)).await;
            });
            while let Ok((mut outer, _)) = listener.accept().await {
                let (mut inner, served) = tokio::io::duplex(64 * 1024);
                connections.spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
                });
                if accepted.send(Ok::<_, std::io::Error>(served)).await.is_err() {
                    return;
                }
            }
        });
        GarbageServer { _tasks: tasks, handle }
    }

    /// A peer that sends the same bytes on every connection and closes it.
    pub(crate) fn answer_each_with(&self, farewell: &'static [u8]) -> GarbageServer {
        let listener = self.listen();
        let mut tasks = JoinSet::new();
        let handle = tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 256]).await;
                let _ = stream.write_all(farewell).await;
            }
        });
        GarbageServer { _tasks: tasks, handle }
    }
}
