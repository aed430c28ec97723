//! A scripted supervisor that responds late, wrongly or not at all.

use super::*;
use tokio::net::UnixListener;

async fn next(socket: &UnixStream, reader: &mut FrameReader) -> Request {
    loop {
        if let Some(received) = reader.take::<Request>().expect("a frame") {
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

fn say(socket: &UnixStream, id: u64, told: Told) {
    let answer = Answer { id, failure: None, told: Some(told) };
    let reply = Reply { said: Some(Said::Answer(answer)) };
    let mut frame = Outgoing::new(&reply, Vec::new()).expect("a frame");
    assert!(frame.send(socket.as_fd()).expect("sent"));
}

async fn welcome(listener: &UnixListener) -> (UnixStream, FrameReader) {
    let (socket, _) = listener.accept().await.expect("accepted");
    let mut reader = FrameReader::default();
    let request = next(&socket, &mut reader).await;
    say(&socket, request.id, Told::Hello(Hello { version: 99, program: "test".into() }));
    (socket, reader)
}

async fn greeted() -> (tempfile::TempDir, UnixStream, FrameReader, Connection) {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(folder.path().join(crate::SOCKET)).expect("bound");
    let connecting = Client::connect(folder.path());
    let (connection, (socket, reader)) = tokio::join!(connecting, welcome(&listener));
    (folder, socket, reader, connection.expect("connected"))
}

/// The supervisor listens from inside its directory; a server must find the socket there.
#[tokio::test]
async fn a_folder_deeper_than_a_sockets_name_is_reached() {
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("x".repeat(100)).join("y".repeat(100));
    std::fs::create_dir_all(&folder).expect("made");
    let nobody = Client::connect(&folder).await.expect_err("nobody is there");
    assert!(nobody.is_nobody(), "{nobody}");
    assert!(!crate::afterwards::supervisor_lives(&folder));
    // Bound by a short path, as the supervisor does it.
    let short = outer.path().join("s");
    let listener = UnixListener::bind(&short).expect("bound");
    std::fs::rename(&short, folder.join(crate::SOCKET)).expect("moved");
    let (connection, _) = tokio::join!(Client::connect(&folder), welcome(&listener));
    assert_eq!(connection.expect("connected").version, VERSION);
    assert!(crate::afterwards::supervisor_lives(&folder));
    let none = Client::connect(&folder.join("none")).await.expect_err("no folder");
    assert!(none.is_nobody(), "{none}");
}

#[tokio::test]
async fn answers_reach_their_own_callers_in_any_order() {
    let (_folder, socket, mut reader, connection) = greeted().await;
    assert_eq!(connection.version, VERSION);
    let driver = tokio::spawn(connection.driver.run());
    let (one, two) = (connection.client.clone(), connection.client);
    let first = tokio::spawn(async move { one.list().await });
    let a = next(&socket, &mut reader).await;
    let second = tokio::spawn(async move { two.start("x").await });
    let b = next(&socket, &mut reader).await;
    say(&socket, b.id, Told::Container(ContainerState { pid: 7, ..Default::default() }));
    assert_eq!(second.await.expect("joined").expect("answered").pid, 7);
    say(&socket, a.id, Told::State(PodState { init_pid: 5, ..Default::default() }));
    assert_eq!(first.await.expect("joined").expect("answered").init_pid, 5);
    driver.abort();
}

#[tokio::test]
async fn a_supervisor_that_dies_fails_every_call_at_once() {
    let (_folder, socket, mut reader, connection) = greeted().await;
    let driver = tokio::spawn(connection.driver.run());
    let (client, other) = (connection.client.clone(), connection.client);
    assert!(!other.is_ended());
    let call = tokio::spawn(async move { client.list().await });
    next(&socket, &mut reader).await;
    drop(socket);
    let error = call.await.expect("joined").expect_err("gone");
    assert!(error.is_gone() && other.is_ended(), "{error}");
    assert!(driver.await.expect("joined").is_gone());
}

#[tokio::test(start_paused = true)]
async fn silence_ends_at_the_deadline() {
    let (_folder, _socket, _reader, connection) = greeted().await;
    let driver = tokio::spawn(connection.driver.run());
    let error = connection.client.list().await.expect_err("silence");
    assert!(matches!(error, ClientError::Deadline { what: "list", .. }), "{error}");
    driver.abort();
}

#[tokio::test]
async fn events_that_nobody_reads_become_one_that_says_look_again() {
    let (_folder, socket, mut reader, connection) = greeted().await;
    let driver = tokio::spawn(connection.driver.run());
    let (client, mut events) = (connection.client, connection.events);
    let happened = Some(crate::protocol::Happened::ExecExited(ExecState::default()));
    for _ in 0..EVENTS + 10 {
        let reply = Reply { said: Some(Said::Event(Event { happened: happened.clone() })) };
        let mut frame = Outgoing::new(&reply, Vec::new()).expect("a frame");
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
    say(&socket, request.id, Told::State(PodState::default()));
    call.await.expect("joined").expect("answered");
    for _ in 0..EVENTS {
        assert_eq!(events.recv().await.expect("an event").happened, happened);
    }
    assert_eq!(events.recv().await.expect("an event").happened, None);
    drop(client);
    driver.abort();
}
