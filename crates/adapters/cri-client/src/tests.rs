//! The client against scripted runtimes: on a socket, hostile ones, and one in the same process.

pub(crate) mod scripted;

use std::time::Duration;

use cri_wire::v1;
use cri_wire::v1::runtime_service_server::RuntimeServiceServer;
use ports::container_runtime::{
    ContainerRuntime, ContainerRuntimeError, RuntimeConditionKind, UnavailableCause,
};

use crate::{CallLimits, CriClient, Endpoint, RuntimeTransport};
use scripted::{OVERSIZED, ScriptedRuntime, SocketDir};

const SHORT: Duration = Duration::from_millis(300);

fn client(endpoint: &Endpoint, request: Duration) -> CriClient {
    CriClient::connect(endpoint, None, CallLimits { request, ..CallLimits::default() })
}

fn patient(endpoint: &Endpoint) -> CriClient {
    client(endpoint, Duration::from_secs(20))
}

fn status_of(id: &str) -> v1::ContainerStatusRequest {
    v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false }
}

#[tokio::test]
async fn the_port_answers_over_a_socket() {
    let dir = SocketDir::new();
    let _server = dir.serve(ScriptedRuntime);
    let runtime: Box<dyn ContainerRuntime> = Box::new(patient(&dir.endpoint()));
    let version = runtime.version().await.expect("version");
    assert_eq!(version.runtime_name, "scripted");
    assert_eq!(version.interface_version, "v1");
    let status = runtime.status().await.expect("status");
    let network = status.condition(&RuntimeConditionKind::NetworkReady).expect("reported");
    assert!(!network.met);
    assert_eq!(network.reason, "NoNetwork");
    assert!(status.condition(&RuntimeConditionKind::RuntimeReady).expect("reported").met);
    assert!(status.condition(&RuntimeConditionKind::Other("Mood".into())).is_some());
}

#[tokio::test]
async fn the_port_answers_in_process() {
    let transport =
        RuntimeTransport::in_process("embedded", RuntimeServiceServer::new(ScriptedRuntime));
    let client = CriClient::over(transport.clone(), transport, CallLimits::default());
    let version = ContainerRuntime::version(&client).await.expect("version");
    assert_eq!(version.runtime_name, "scripted");
    let error = client.container_status(status_of("absent")).await.expect_err("absent");
    assert!(matches!(error, ContainerRuntimeError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_hanging_call_ends_at_its_limit() {
    let dir = SocketDir::new();
    let _server = dir.serve(ScriptedRuntime);
    let error = client(&dir.endpoint(), SHORT)
        .container_status(status_of("hang"))
        .await
        .expect_err("never answers");
    let expected =
        ContainerRuntimeError::DeadlineExceeded { call: "ContainerStatus", limit: SHORT };
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), "ContainerStatus: no answer within 300ms");
}

#[tokio::test]
async fn a_pull_ends_at_its_own_limit() {
    let dir = SocketDir::new();
    let _listener = dir.listen();
    let limits = CallLimits { pull: SHORT, ..CallLimits::default() };
    let client = CriClient::connect(&dir.endpoint(), None, limits);
    let error = client.pull_image(v1::PullImageRequest::default()).await.expect_err("no answer");
    assert_eq!(error, ContainerRuntimeError::DeadlineExceeded { call: "PullImage", limit: SHORT });
}

#[tokio::test]
async fn a_socket_that_never_speaks_ends_at_the_limit() {
    let dir = SocketDir::new();
    let _listener = dir.listen();
    let error = client(&dir.endpoint(), SHORT)
        .container_status(status_of("any"))
        .await
        .expect_err("nobody accepts");
    assert!(
        matches!(error, ContainerRuntimeError::DeadlineExceeded { limit: SHORT, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_list_in_parts_that_stalls_ends_at_the_limit() {
    let dir = SocketDir::new();
    let _server = dir.serve(ScriptedRuntime);
    let client = client(&dir.endpoint(), SHORT);
    let request = v1::StreamPodSandboxesRequest::default();
    let error = client.stream_pod_sandboxes(request).await.expect_err("stalls after one part");
    assert!(matches!(error, ContainerRuntimeError::DeadlineExceeded { .. }), "{error}");
}

#[tokio::test]
async fn a_list_in_parts_is_put_together() {
    let dir = SocketDir::new();
    let _server = dir.serve(ScriptedRuntime);
    let containers = patient(&dir.endpoint())
        .stream_containers(v1::StreamContainersRequest::default())
        .await
        .expect("list");
    let ids: Vec<&str> = containers.iter().map(|container| container.id.as_str()).collect();
    assert_eq!(ids, ["one", "two", "three"]);
}

#[tokio::test]
async fn answers_of_the_runtime_keep_their_meaning() {
    let dir = SocketDir::new();
    let _server = dir.serve(ScriptedRuntime);
    let client = patient(&dir.endpoint());
    let error = client.container_status(status_of("absent")).await.expect_err("absent");
    let expected = ContainerRuntimeError::NotFound {
        call: "ContainerStatus",
        message: "no container \"absent\"".into(),
    };
    assert_eq!(error, expected);
    let error = client.runtime_config(v1::RuntimeConfigRequest {}).await.expect_err("unknown");
    assert!(
        matches!(error, ContainerRuntimeError::Unimplemented { call: "RuntimeConfig", .. }),
        "{error}"
    );
    let error = client.container_status(status_of("bad id")).await.expect_err("refused");
    assert_eq!(error.to_string(), "ContainerStatus: InvalidArgument: \"bad id\" is no id");
    // The runtime's own deadline (a command that ran too long) is its answer, not our limit.
    let error = client.exec_sync(v1::ExecSyncRequest::default()).await.expect_err("too long");
    assert!(
        matches!(&error, ContainerRuntimeError::Refused { code, .. } if code == "DeadlineExceeded"),
        "{error}"
    );
    // A whole service that the server does not have.
    let error = client.list_images(v1::ListImagesRequest::default()).await.expect_err("no images");
    assert!(matches!(error, ContainerRuntimeError::Unimplemented { .. }), "{error}");
}

#[tokio::test]
async fn messages_up_to_the_limit_pass_and_larger_ones_do_not() {
    let dir = SocketDir::new();
    let _server = dir.serve(ScriptedRuntime);
    let client = patient(&dir.endpoint());
    let large = client.container_status(status_of("large")).await.expect("within the limit");
    assert!(large.info["filling"].len() > 15 * 1024 * 1024);
    let error = client.container_status(status_of("oversized")).await.expect_err("too large");
    assert!(
        matches!(&error, ContainerRuntimeError::Refused { code, .. } if code == "OutOfRange"),
        "{error}"
    );
    let request = v1::ExecSyncRequest { cmd: vec!["x".repeat(OVERSIZED)], ..Default::default() };
    let error = client.exec_sync(request).await.expect_err("too large to send");
    assert!(
        matches!(&error, ContainerRuntimeError::Refused { code, .. } if code == "ResourceExhausted"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_socket_and_a_refused_connection_are_different_errors() {
    let dir = SocketDir::new();
    let client = patient(&dir.endpoint());
    let error = client.container_status(status_of("any")).await.expect_err("nothing there");
    let ContainerRuntimeError::Unavailable { endpoint, cause, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*endpoint, dir.endpoint().to_string());
    assert_eq!(*cause, UnavailableCause::NoSocket);
    drop(dir.listen());
    let error = client.container_status(status_of("any")).await.expect_err("nobody listens");
    let dead = UnavailableCause::NotListening;
    assert!(
        matches!(error, ContainerRuntimeError::Unavailable { cause, .. } if cause == dead),
        "{error}"
    );
    // The same client finds the runtime once it is there.
    dir.remove_socket();
    let _server = dir.serve(ScriptedRuntime);
    ContainerRuntime::version(&client).await.expect("now there");
}

#[tokio::test]
async fn garbage_and_a_closed_connection_are_connection_errors() {
    for farewell in [&b"HTTP/1.1 400 Bad Request\r\n\r\nthis is no runtime\r\n"[..], &b""[..]] {
        let dir = SocketDir::new();
        let _peer = dir.answer_each_with(farewell);
        let error = patient(&dir.endpoint())
            .container_status(status_of("any"))
            .await
            .expect_err("no runtime");
        let broken = UnavailableCause::Broken;
        assert!(
            matches!(error, ContainerRuntimeError::Unavailable { cause, .. } if cause == broken),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_runtime_that_dies_during_a_call_is_unavailable_until_it_restarts() {
    let dir = SocketDir::new();
    let server = dir.serve(ScriptedRuntime);
    let client = patient(&dir.endpoint());
    ContainerRuntime::version(&client).await.expect("alive");
    let hanging = {
        let client = client.clone();
        tokio::spawn(async move { client.container_status(status_of("hang")).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(server);
    let error = hanging.await.expect("joins").expect_err("died");
    assert!(matches!(error, ContainerRuntimeError::Unavailable { .. }), "{error}");
    dir.remove_socket();
    let _server = dir.serve(ScriptedRuntime);
    ContainerRuntime::version(&client).await.expect("back again");
}

#[tokio::test]
async fn events_come_in_order_and_end_with_the_runtime() {
    let dir = SocketDir::new();
    let server = dir.serve(ScriptedRuntime);
    let mut events = patient(&dir.endpoint()).container_events();
    for expected in ["first", "second"] {
        let event = events.next().await.expect("open").expect("an event");
        assert_eq!(event.container_id, expected);
    }
    // A cancelled wait loses nothing, and silence is no error.
    tokio::time::timeout(SHORT, events.next()).await.expect_err("silence");
    drop(server);
    let error = events.next().await.expect_err("the runtime died");
    assert!(matches!(error, ContainerRuntimeError::Unavailable { .. }), "{error}");
    assert_eq!(events.next().await, Ok(None), "an ended stream stays ended");
}
