//! From an agent's socket, and from a runtime in this process, to the link that speaks SPDY.

use super::*;
use crate::node_pods::AgentClient;
use crate::pod_streams::spdy_link;
use local_socket::AgentSocket;
use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint as _, LocalNode, LocalPodDetail, LocalPods};
use ports::local_api::{LocalApiError, LocalStopAccepted};
use ports::local_runtime::{
    LocalCommand, LocalImageName, LocalImages, LocalProcess, LocalRuntime, LocalRuntimeResult,
    LocalStreamRequest, LocalUsages,
};
use std::sync::Arc;
use stream_frames::spdy::SpdyFrame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

struct NoPodsApi;

impl LocalApi for NoPodsApi {
    fn node(&self) -> LocalNode {
        LocalNode::default()
    }
    fn pods(&self) -> LocalPods {
        LocalPods::default()
    }
    fn pod(&self, _: &str) -> Option<LocalPodDetail> {
        None
    }
    fn changed(&self, since: u64) -> PortFuture<'_, u64> {
        Box::pin(std::future::ready(since))
    }
    fn metrics(&self) -> String {
        String::new()
    }
    fn stop<'a>(&'a self, _: &'a str) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        Box::pin(async {
            Err(LocalApiError::TemporarilyUnavailable { message: "no pods".to_owned() })
        })
    }
}

fn refused<T: Send + 'static>() -> LocalRuntimeResult<'static, T> {
    Box::pin(async {
        Err(LocalApiError::TemporarilyUnavailable { message: "not asked".to_owned() })
    })
}

/// Serves commands on the connection, as an echo of all bytes, which are frames; ports at an
/// address; attaching fails.
struct Echoing;

impl LocalRuntime for Echoing {
    fn address(&self, _: LocalStreamRequest) -> LocalRuntimeResult<'_, LocalStream> {
        refused()
    }
    fn stream(&self, wish: LocalStreamRequest) -> LocalRuntimeResult<'_, StreamEndpoint> {
        Box::pin(async move {
            match wish {
                LocalStreamRequest::Exec { .. } => {
                    Ok(StreamEndpoint::Here(Box::new(|connection, early| {
                        Box::pin(async move {
                            let connection = std::os::unix::net::UnixStream::from(connection);
                            connection.set_nonblocking(true).unwrap();
                            let mut connection = UnixStream::from_std(connection).unwrap();
                            let (mut reading, mut writing) = connection.split();
                            writing.write_all(&early).await.unwrap();
                            let _ = tokio::io::copy(&mut reading, &mut writing).await;
                        })
                    })))
                }
                LocalStreamRequest::Forward { .. } => Ok(StreamEndpoint::Address(LocalStream {
                    url: "http://127.0.0.1:1/x".to_owned(),
                    runtime: "r".to_owned(),
                })),
                LocalStreamRequest::Attach { .. } => Err(LocalApiError::TemporarilyUnavailable {
                    message: "it does not run".to_owned(),
                }),
            }
        })
    }
    fn process<'a>(&'a self, _: &'a str) -> LocalRuntimeResult<'a, LocalProcess> {
        refused()
    }
    fn usage(&self) -> LocalRuntimeResult<'_, LocalUsages> {
        refused()
    }
    fn images(&self) -> LocalRuntimeResult<'_, LocalImages> {
        refused()
    }
    fn remove_image<'a>(&'a self, _: &'a str) -> LocalRuntimeResult<'a, LocalImageName> {
        refused()
    }
}

/// What is sent is echoed frame by frame, also when it exceeds every buffer.
async fn echoes(stream: PodStream) {
    assert!(matches!(stream, PodStream::Open(_)), "{stream:?}");
    let (mut reader, mut writer) = spdy_link::connect(stream, "any").await.unwrap();
    let sending = async {
        for number in 0..64_u8 {
            let bytes = vec![number; 64 * 1024];
            writer.send(&SpdyFrame::Data { stream: 3, bytes, end: number == 63 }).await.unwrap();
        }
        writer
    };
    let receiving = async {
        for number in 0..64_u8 {
            match reader.next().await.unwrap() {
                Some(SpdyFrame::Data { stream: 3, bytes, end }) => {
                    assert!(bytes == vec![number; 64 * 1024], "part {number} is another");
                    assert_eq!(end, number == 63);
                }
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn an_agent_upgrades_the_connection_or_returns_an_address() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let (listening, mut listens) = tokio::sync::mpsc::channel(1);
    let socket = AgentSocket::new(path.clone()).with_runtime(Arc::new(Echoing)).on_listening(
        Arc::new(move || {
            let _ = listening.try_send(());
        }),
    );
    let asking = async {
        listens.recv().await;
        let agent = AgentClient::at(&path);
        let command = LocalCommand::default();
        echoes(agent.exec("c", &command).await.unwrap()).await;
        let elsewhere = agent.forward("u").await.unwrap();
        let PodStream::Address(address) = elsewhere else { panic!("{elsewhere:?}") };
        assert_eq!(address.url, "http://127.0.0.1:1/x");
        let why = agent.attach("c", &command).await.unwrap_err();
        assert!(why.to_string().contains("it does not run"), "{why}");
    };
    tokio::select! {
        why = socket.serve(Arc::new(NoPodsApi)) => panic!("{why}"),
        () = asking => {}
    }
}

#[tokio::test]
async fn a_runtime_in_this_process_needs_no_agent() {
    let wish =
        LocalStreamRequest::Exec { container: "c".to_owned(), command: LocalCommand::default() };
    let offer = Echoing.stream(wish).await.unwrap();
    echoes(PodStream::of(offer).unwrap()).await;
    // Its end of the pair ends with this one.
    let (ended, mut has_ended) = tokio::sync::mpsc::channel::<()>(1);
    let offer = StreamEndpoint::Here(Box::new(move |connection, _| {
        Box::pin(async move {
            let connection = std::os::unix::net::UnixStream::from(connection);
            connection.set_nonblocking(true).unwrap();
            let mut connection = UnixStream::from_std(connection).unwrap();
            assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
            drop(ended);
        })
    }));
    drop(PodStream::of(offer).unwrap());
    assert!(has_ended.recv().await.is_none());
}
