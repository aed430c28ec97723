//! From an agent's socket, and from a runtime in this process, to the link that speaks SPDY.

use super::*;
use crate::node_pods::Agent;
use crate::pod_streams::spdy_link;
use local_socket::LocalSocket;
use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint as _, LocalNode, LocalPodDetail, LocalPods};
use ports::local_api::{LocalRefusal, LocalStopped};
use ports::local_runtime::{
    Answer, LocalCommand, LocalImageName, LocalImages, LocalProcess, LocalRuntime, LocalUsages,
    StreamWish,
};
use std::sync::Arc;
use stream_frames::spdy::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

struct NoPods;

impl LocalApi for NoPods {
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
    fn stop<'a>(&'a self, _: &'a str) -> PortFuture<'a, Result<LocalStopped, LocalRefusal>> {
        Box::pin(async { Err(LocalRefusal::NotNow { message: "no pods".to_owned() }) })
    }
}

fn refused<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(async { Err(LocalRefusal::NotNow { message: "not asked".to_owned() }) })
}

/// Serves commands on the connection, as an echo of all bytes, which are frames; ports at an
/// address; attaching fails.
struct Echoing;

impl LocalRuntime for Echoing {
    fn address(&self, _: StreamWish) -> Answer<'_, LocalStream> {
        refused()
    }
    fn stream(&self, wish: StreamWish) -> Answer<'_, StreamOffer> {
        Box::pin(async move {
            match wish {
                StreamWish::Exec { .. } => Ok(StreamOffer::Here(Box::new(|connection, early| {
                    Box::pin(async move {
                        let connection = std::os::unix::net::UnixStream::from(connection);
                        connection.set_nonblocking(true).unwrap();
                        let mut connection = UnixStream::from_std(connection).unwrap();
                        let (mut reading, mut writing) = connection.split();
                        writing.write_all(&early).await.unwrap();
                        let _ = tokio::io::copy(&mut reading, &mut writing).await;
                    })
                }))),
                StreamWish::Forward { .. } => Ok(StreamOffer::Address(LocalStream {
                    url: "http://127.0.0.1:1/x".to_owned(),
                    runtime: "r".to_owned(),
                })),
                StreamWish::Attach { .. } => {
                    Err(LocalRefusal::NotNow { message: "it does not run".to_owned() })
                }
            }
        })
    }
    fn process<'a>(&'a self, _: &'a str) -> Answer<'a, LocalProcess> {
        refused()
    }
    fn usage(&self) -> Answer<'_, LocalUsages> {
        refused()
    }
    fn images(&self) -> Answer<'_, LocalImages> {
        refused()
    }
    fn remove_image<'a>(&'a self, _: &'a str) -> Answer<'a, LocalImageName> {
        refused()
    }
}

/// What is sent is echoed frame by frame, also when it exceeds every buffer.
async fn echoes(stream: Stream) {
    assert!(matches!(stream, Stream::Open(_)), "{stream:?}");
    let (mut reader, mut writer) = spdy_link::connect(stream, "any").await.unwrap();
    let sending = async {
        for number in 0..64_u8 {
            let bytes = vec![number; 64 * 1024];
            writer.send(&Frame::Data { stream: 3, bytes, end: number == 63 }).await.unwrap();
        }
        writer
    };
    let receiving = async {
        for number in 0..64_u8 {
            match reader.next().await.unwrap() {
                Some(Frame::Data { stream: 3, bytes, end }) => {
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
async fn an_agent_turns_the_connection_into_the_stream_or_says_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let (listening, mut listens) = tokio::sync::mpsc::channel(1);
    let socket = LocalSocket::new(path.clone()).with_runtime(Arc::new(Echoing)).when_listening(
        Arc::new(move || {
            let _ = listening.try_send(());
        }),
    );
    let asking = async {
        listens.recv().await;
        let agent = Agent::at(&path);
        let command = LocalCommand::default();
        echoes(agent.exec("c", &command).await.unwrap()).await;
        let elsewhere = agent.forward("u").await.unwrap();
        let Stream::Address(address) = elsewhere else { panic!("{elsewhere:?}") };
        assert_eq!(address.url, "http://127.0.0.1:1/x");
        let why = agent.attach("c", &command).await.unwrap_err();
        assert!(why.to_string().contains("it does not run"), "{why}");
    };
    tokio::select! {
        why = socket.serve(Arc::new(NoPods)) => panic!("{why}"),
        () = asking => {}
    }
}

#[tokio::test]
async fn a_runtime_in_this_process_needs_no_agent() {
    let wish = StreamWish::Exec { container: "c".to_owned(), command: LocalCommand::default() };
    let offer = Echoing.stream(wish).await.unwrap();
    echoes(Stream::of(offer).unwrap()).await;
    // Its end of the pair ends with this one.
    let (ended, mut has_ended) = tokio::sync::mpsc::channel::<()>(1);
    let offer = StreamOffer::Here(Box::new(move |connection, _| {
        Box::pin(async move {
            let connection = std::os::unix::net::UnixStream::from(connection);
            connection.set_nonblocking(true).unwrap();
            let mut connection = UnixStream::from_std(connection).unwrap();
            assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
            drop(ended);
        })
    }));
    drop(Stream::of(offer).unwrap());
    assert!(has_ended.recv().await.is_none());
}
