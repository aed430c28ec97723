//! SPDY clients on real connections that send too much, too early.

use tokio::io::AsyncReadExt as _;

use super::*;
use crate::streams::session::CommandStatus;
use crate::streams::session::PART;
use crate::streams::tests::{given_pair, pair};

const LONG: Duration = Duration::from_secs(20);
const BOTH: CommandStreams =
    CommandStreams { stdin: true, stdout: true, stderr: false, tty: false };

fn opened(encoder: &mut SpdyEncoder, kinds: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, kind) in kinds.iter().enumerate() {
        let headers = Headers::new([("streamtype", *kind)]);
        let stream = u32::try_from(at).unwrap() * 2 + 1;
        encoder.write(&SpdyFrame::Open { stream, headers, end: false }, &mut bytes).unwrap();
    }
    bytes
}

fn data(encoder: &mut SpdyEncoder, stream: u32, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let frame = SpdyFrame::Data { stream, bytes: vec![b'x'; size], end: false };
    encoder.write(&frame, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn input_before_the_streams_are_open_is_limited() {
    // Large frames, and so many empty ones that they cost as much.
    for (size, count) in [(1 << 20, 40), (0, 400_000)] {
        let (socket, mut client) = pair().await;
        let (mut encoder, mut bytes) = (SpdyEncoder::default(), Vec::new());
        bytes.extend(opened(&mut encoder, &["stdin"]));
        for _ in 0..count {
            bytes.extend(data(&mut encoder, 1, size));
        }
        let sending = tokio::spawn(async move {
            let _ = client.write_all(&bytes).await;
            client
        });
        let begun = tokio::time::timeout(LONG, begin(socket, "v4.channel.k8s.io", BOTH)).await;
        let why = begun.expect("an answer before the client is").unwrap_err();
        assert!(why.contains("before all streams were open"), "{why}");
        drop(sending.await.unwrap());
    }
}

/// A client may send its input with the streams; it is kept in order.
#[tokio::test]
async fn early_input_within_the_limit_is_delivered() {
    let (socket, mut client) = pair().await;
    let mut encoder = SpdyEncoder::default();
    let mut bytes = opened(&mut encoder, &["stdin"]);
    bytes.extend(data(&mut encoder, 1, 100_000));
    for (stream, kind) in [(3, "stdout"), (5, "error")] {
        let headers = Headers::new([("streamtype", kind)]);
        encoder.write(&SpdyFrame::Open { stream, headers, end: false }, &mut bytes).unwrap();
    }
    client.write_all(&bytes).await.unwrap();
    let begun = tokio::time::timeout(LONG, begin(socket, "v4.channel.k8s.io", BOTH)).await;
    let CommandSession { mut input, output, tasks, .. } =
        begun.expect("in time").expect("a session");
    let mut taken = 0;
    while taken < 100_000 {
        match input.recv().await {
            Some(ClientInput::Stdin(held)) => taken += held.bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    drop(input);
    output.send(Output::Status(CommandStatus::Success)).await.unwrap();
    drop(output);
    let finishing = tokio::spawn(tasks.finish());
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    drop(client);
    tokio::time::timeout(LONG, finishing).await.expect("an end").unwrap();
}

/// On a passed connection: input and output, the end of the command, the end of both sides.
#[tokio::test]
async fn a_given_connection_carries_a_command_to_its_end() {
    let (socket, mut client) = given_pair();
    let mut encoder = SpdyEncoder::default();
    let mut bytes = opened(&mut encoder, &["stdin", "stdout", "error"]);
    bytes.extend(data(&mut encoder, 1, 100_000));
    let end = SpdyFrame::Data { stream: 1, bytes: Vec::new(), end: true };
    encoder.write(&end, &mut bytes).unwrap();
    let sending = tokio::spawn(async move {
        client.write_all(&bytes).await.unwrap();
        client
    });
    let begun = tokio::time::timeout(LONG, begin(socket, "v4.channel.k8s.io", BOTH)).await;
    let CommandSession { mut input, output, mut gone, tasks } =
        begun.expect("in time").expect("begun");
    let mut taken = 0;
    loop {
        match input.recv().await {
            Some(ClientInput::Stdin(held)) => taken += held.bytes.len(),
            Some(ClientInput::StdinEnd) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(taken, 100_000);
    let early = tokio::time::timeout(Duration::from_millis(50), gone.left()).await;
    assert!(early.is_err(), "the end of its input is not its own");
    let received = bytes::Bytes::from_static(b"said");
    output.send(Output::Data(OutputChannel::Stdout, received)).await.unwrap();
    output.send(Output::Status(CommandStatus::ExitCode(7))).await.unwrap();
    drop((input, output));
    let finishing = tokio::spawn(tasks.finish());
    let mut client = sending.await.unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    let received = String::from_utf8_lossy(&received).into_owned();
    assert!(received.contains("said") && received.contains("NonZeroExitCode"), "{received:?}");
    drop(client);
    tokio::time::timeout(LONG, finishing).await.expect("an end").unwrap();
}

/// A client's disconnect is detected on a passed connection too, even while its input is blocked.
#[tokio::test]
async fn a_client_of_a_given_connection_that_leaves_while_stdin_is_blocked_is_detected() {
    let (socket, mut client) = given_pair();
    let mut encoder = SpdyEncoder::default();
    let mut bytes = opened(&mut encoder, &["stdin", "stdout", "error"]);
    bytes.extend(data(&mut encoder, 1, MAX_BUFFERED_INPUT + 10 * PART));
    let sending = tokio::spawn(async move {
        client.write_all(&bytes).await.unwrap();
        client
    });
    let begun = tokio::time::timeout(LONG, begin(socket, "v4.channel.k8s.io", BOTH)).await;
    let CommandSession { mut gone, input, output, tasks } = begun.expect("in time").expect("begun");
    let client = sending.await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), gone.left()).await;
    assert!(early.is_err(), "it is still there");
    drop(client);
    tokio::time::timeout(LONG, gone.left()).await.expect("it has left");
    drop((input, output, tasks));
}
