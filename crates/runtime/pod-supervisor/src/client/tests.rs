//! A scripted supervisor that responds late, wrongly or not at all.

use super::*;
use tokio::net::UnixListener;

async fn next(socket: &UnixStream, reader: &mut FrameReader) -> SupervisorRequest {
    loop {
        if let Some(received) = reader.take::<SupervisorRequest>().expect("a frame") {
            return received.message;
        }
        socket.readable().await.expect("ready");
        let _ = socket.try_io(Interest::READABLE, || {
            reader.fill(socket.as_fd()).map_err(|error| match error {
                FrameError::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })
        });
    }
}

fn send_response(socket: &UnixStream, id: u64, body: ResponseBody) {
    let response = Response { id, error: None, body: Some(body) };
    let reply = SupervisorMessage { body: Some(MessageBody::Response(response)) };
    let mut frame = OutgoingFrame::new(&reply, Vec::new()).expect("a frame");
    assert!(frame.send(socket.as_fd()).expect("sent"));
}

async fn accept_and_greet(listener: &UnixListener) -> (UnixStream, FrameReader) {
    let (socket, _) = listener.accept().await.expect("accepted");
    let mut reader = FrameReader::default();
    let request = next(&socket, &mut reader).await;
    send_response(
        &socket,
        request.id,
        ResponseBody::Hello(Hello { version: 99, program: "test".into() }),
    );
    (socket, reader)
}

async fn greeted() -> (tempfile::TempDir, UnixStream, FrameReader, ClientConnection) {
    let dir = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(dir.path().join(crate::SOCKET)).expect("bound");
    let connecting = SupervisorClient::connect(dir.path());
    let (connection, (socket, reader)) = tokio::join!(connecting, accept_and_greet(&listener));
    (dir, socket, reader, connection.expect("connected"))
}

/// The supervisor listens from inside its directory; a server must find the socket there.
#[tokio::test]
async fn a_socket_path_longer_than_sun_path_can_be_connected_to() {
    let outer = tempfile::tempdir().expect("a folder");
    let dir = outer.path().join("x".repeat(100)).join("y".repeat(100));
    std::fs::create_dir_all(&dir).expect("made");
    let not_listening = SupervisorClient::connect(&dir).await.expect_err("nobody is there");
    assert!(not_listening.is_not_listening(), "{not_listening}");
    assert!(!crate::orphans::supervisor_is_alive(&dir));
    // Bound by a short path, as the supervisor does it.
    let short = outer.path().join("s");
    let listener = UnixListener::bind(&short).expect("bound");
    std::fs::rename(&short, dir.join(crate::SOCKET)).expect("moved");
    let (connection, _) =
        tokio::join!(SupervisorClient::connect(&dir), accept_and_greet(&listener));
    assert_eq!(connection.expect("connected").version, VERSION);
    assert!(crate::orphans::supervisor_is_alive(&dir));
    let none = SupervisorClient::connect(&dir.join("none")).await.expect_err("no folder");
    assert!(none.is_not_listening(), "{none}");
}

#[tokio::test]
async fn responses_reach_their_callers_in_any_order() {
    let (_dir, socket, mut reader, connection) = greeted().await;
    assert_eq!(connection.version, VERSION);
    let driver = tokio::spawn(connection.driver.run());
    let (one, two) = (connection.client.clone(), connection.client);
    let first = tokio::spawn(async move { one.list().await });
    let a = next(&socket, &mut reader).await;
    let second = tokio::spawn(async move { two.start("x").await });
    let b = next(&socket, &mut reader).await;
    send_response(
        &socket,
        b.id,
        ResponseBody::Container(ContainerState { pid: 7, ..Default::default() }),
    );
    assert_eq!(second.await.expect("joined").expect("answered").pid, 7);
    send_response(
        &socket,
        a.id,
        ResponseBody::State(PodState { init_pid: 5, ..Default::default() }),
    );
    assert_eq!(first.await.expect("joined").expect("answered").init_pid, 5);
    driver.abort();
}

#[tokio::test]
async fn a_supervisor_that_dies_fails_every_call_at_once() {
    let (_dir, socket, mut reader, connection) = greeted().await;
    let driver = tokio::spawn(connection.driver.run());
    let (client, other) = (connection.client.clone(), connection.client);
    assert!(!other.is_disconnected());
    let call = tokio::spawn(async move { client.list().await });
    next(&socket, &mut reader).await;
    drop(socket);
    let error = call.await.expect("joined").expect_err("gone");
    assert!(error.is_disconnected() && other.is_disconnected(), "{error}");
    assert!(driver.await.expect("joined").is_disconnected());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_fails_at_its_deadline() {
    let (_dir, _socket, _reader, connection) = greeted().await;
    let driver = tokio::spawn(connection.driver.run());
    let error = connection.client.list().await.expect_err("silence");
    assert!(matches!(error, ClientError::Deadline { what: "list", .. }), "{error}");
    driver.abort();
}

#[tokio::test]
async fn unread_events_are_replaced_by_one_resync_event() {
    let (_dir, socket, mut reader, connection) = greeted().await;
    let driver = tokio::spawn(connection.driver.run());
    let (client, mut events) = (connection.client, connection.events);
    let body = Some(crate::protocol::EventBody::ExecExited(ExecState::default()));
    for _ in 0..EVENT_QUEUE + 10 {
        let reply =
            SupervisorMessage { body: Some(MessageBody::Event(Event { body: body.clone() })) };
        let mut frame = OutgoingFrame::new(&reply, Vec::new()).expect("a frame");
        // The socket buffer has room for only a part of them.
        loop {
            socket.writable().await.expect("ready");
            match socket.try_io(Interest::WRITABLE, || frame.send(socket.as_fd())) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
            }
        }
    }
    // Responses are not delayed by them.
    let other = client.clone();
    let call = tokio::spawn(async move { other.list().await });
    let request = next(&socket, &mut reader).await;
    send_response(&socket, request.id, ResponseBody::State(PodState::default()));
    call.await.expect("joined").expect("answered");
    for _ in 0..EVENT_QUEUE {
        assert_eq!(events.recv().await.expect("an event").body, body);
    }
    assert_eq!(events.recv().await.expect("an event").body, None);
    drop(client);
    driver.abort();
}
