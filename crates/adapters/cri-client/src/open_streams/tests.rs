//! A runtime that offers open streams, in this process and behind a socket.

use std::os::fd::OwnedFd;

use cri_wire::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use ports::LocalRuntime;
use ports::local_api::LocalApiError;
use ports::local_runtime::{LocalCommand, LocalStreamRequest, StreamEndpoint};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tonic::Status;

use super::*;
use crate::tests::scripted::SocketDir;
use crate::{CallLimits, RuntimeTransport};

/// Reports what was requested: on the connection if there is one, and in the address otherwise.
struct Offering;

fn offered<A>(
    is_open: bool,
    marker: String,
    answer: impl FnOnce(String) -> A,
) -> Result<Response<A>, Status> {
    if !is_open {
        return Ok(Response::new(answer(format!("http://127.0.0.1:1/{marker}"))));
    }
    let mut response = Response::new(answer(String::new()));
    let carry = move |connection: OwnedFd, early: Vec<u8>| {
        let stream = std::os::unix::net::UnixStream::from(connection);
        stream.set_nonblocking(true).expect("a socket");
        let mut stream = UnixStream::from_std(stream).expect("inside tokio");
        let carried: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            stream.write_all(marker.as_bytes()).await.expect("it is read");
            stream.write_all(&early).await.expect("it is read");
        });
        carried
    };
    response.extensions_mut().insert(InProcessStream::new(Box::new(carry)));
    Ok(response)
}

#[tonic::async_trait]
impl RuntimeService for Offering {
    async fn exec(
        &self,
        request: Request<v1::ExecRequest>,
    ) -> Result<Response<v1::ExecResponse>, Status> {
        let is_open = request.extensions().get::<AcceptsInProcessStream>().is_some();
        let v1::ExecRequest { container_id, cmd, tty, stderr, .. } = request.into_inner();
        let marker = format!("exec-{container_id}-{}-{tty}-{stderr}", cmd.join("+"));
        offered(is_open, marker, |url| v1::ExecResponse { url })
    }

    async fn attach(
        &self,
        request: Request<v1::AttachRequest>,
    ) -> Result<Response<v1::AttachResponse>, Status> {
        let is_open = request.extensions().get::<AcceptsInProcessStream>().is_some();
        let marker = format!("attach-{}", request.into_inner().container_id);
        offered(is_open, marker, |url| v1::AttachResponse { url })
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Result<Response<v1::ListPodSandboxResponse>, Status> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let sandbox = |id: &str, created_at| v1::PodSandbox {
            id: id.to_owned(),
            created_at,
            ..Default::default()
        };
        let items = match wanted["io.kubernetes.pod.uid"].as_str() {
            "u" => vec![sandbox("older", 1), sandbox("newest", 3), sandbox("old", 2)],
            _ => Vec::new(),
        };
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn port_forward(
        &self,
        request: Request<v1::PortForwardRequest>,
    ) -> Result<Response<v1::PortForwardResponse>, Status> {
        let is_open = request.extensions().get::<AcceptsInProcessStream>().is_some();
        let marker = format!("forward-{}", request.into_inner().pod_sandbox_id);
        offered(is_open, marker, |url| v1::PortForwardResponse { url })
    }
}

/// Each stream request, and how the runtime sees it.
fn stream_requests() -> [(LocalStreamRequest, &'static str); 3] {
    let container = || "c".to_owned();
    let command = vec!["a".to_owned(), "b".to_owned()];
    let command = LocalCommand { command, stdout: true, stderr: true, tty: true, stdin: false };
    [
        // A terminal has no separate stderr.
        (
            LocalStreamRequest::Exec { container: container(), command: command.clone() },
            "exec-c-a+b-true-false",
        ),
        (LocalStreamRequest::Attach { container: container(), command }, "attach-c"),
        (LocalStreamRequest::Forward { pod: "u".to_owned() }, "forward-newest"),
    ]
}

#[tokio::test]
async fn a_runtime_in_this_process_serves_a_stream_on_the_connection_that_it_is_given() {
    let transport = RuntimeTransport::in_process("embedded", RuntimeServiceServer::new(Offering));
    let client = CriClient::over(transport.clone(), transport, CallLimits::default());
    for (stream_request, marker) in stream_requests() {
        let offer = client.stream(stream_request.clone()).await.expect("an offer");
        let StreamEndpoint::Here(carry) = offer else { panic!("{offer:?}") };
        let (mut near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
        carry(far.into(), b" and early".to_vec()).await;
        let mut received = String::new();
        std::io::Read::read_to_string(&mut near, &mut received).expect("all of it");
        assert_eq!(received, format!("{marker} and early"));
        // A client that has no connection to give gets an address of the same runtime.
        let stream = client.address(stream_request).await.expect("an address");
        assert_eq!(stream.url, format!("http://127.0.0.1:1/{marker}"));
        assert_eq!(stream.runtime, "embedded");
    }
    let none = client.stream(LocalStreamRequest::Forward { pod: "x".to_owned() }).await;
    assert!(matches!(none, Err(LocalApiError::TemporarilyUnavailable { .. })), "{none:?}");
}

#[tokio::test]
async fn over_a_socket_the_same_runtime_returns_a_stream_url() {
    let dir = SocketDir::new();
    let _server = dir.serve(Offering);
    let client = CriClient::connect(&dir.endpoint(), None, CallLimits::default());
    for (stream_request, marker) in stream_requests() {
        let offer = client.stream(stream_request).await.expect("an offer");
        let StreamEndpoint::Address(stream) = offer else { panic!("{offer:?}") };
        assert_eq!(stream.url, format!("http://127.0.0.1:1/{marker}"));
        assert_eq!(stream.runtime, dir.endpoint().to_string());
    }
}

#[test]
fn an_open_stream_is_taken_once() {
    let open = InProcessStream::new(Box::new(|_, _| Box::pin(async {})));
    let same = open.clone();
    assert!(same.take().is_some());
    assert!(open.take().is_none());
}
