//! Clients on real connections: one whose input is not read, and one that leaves meanwhile.

use std::time::Duration;

use tokio::net::TcpStream;

use super::*;
use crate::streams::session::{MAX_BUFFERED_INPUT, PART};
use crate::streams::tests::pair;

const LONG: Duration = Duration::from_secs(20);
const STDIN: CommandStreams =
    CommandStreams { stdin: true, stdout: true, stderr: false, tty: false };

fn version_four() -> ChannelProtocol {
    channels::negotiate(&["v4.channel.k8s.io".to_owned()]).unwrap()
}

/// A client's message; the mask is zero.
fn message(channel: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x82, 0x80 | 127];
    bytes.extend((content.len() as u64 + 1).to_be_bytes());
    bytes.extend([0, 0, 0, 0, channel]);
    bytes.extend(content);
    bytes
}

/// Sends until the server stops reading, and returns how much that was.
async fn sent_until_stuck(client: &mut TcpStream, most: usize) -> usize {
    let one = message(channels::STDIN, &vec![b'x'; 70_000]);
    let (mut sent, mut at) = (0, 0);
    while sent < most {
        match tokio::time::timeout(Duration::from_secs(1), client.write(&one[at..])).await {
            Ok(written) => {
                let written = written.unwrap();
                sent += written;
                at = (at + written) % one.len();
            }
            Err(_) => return sent,
        }
    }
    sent
}

#[tokio::test]
async fn a_client_is_throttled_while_its_input_is_not_read() {
    let (socket, mut client) = pair().await;
    let session = begin(socket, version_four(), STDIN);
    // The kernel's buffers of a connection come on top.
    let sent = sent_until_stuck(&mut client, 64 << 20).await;
    assert!(sent < 32 << 20, "{sent} bytes were taken of a client for nobody");
    drop(session);
}

/// All that it sent has arrived, so its disconnect is detected even if the queue is full.
#[tokio::test]
async fn a_client_that_disconnects_while_stdin_is_blocked_is_detected() {
    let (socket, mut client) = pair().await;
    let CommandSession { mut gone, input, output, tasks } = begin(socket, version_four(), STDIN);
    let sent = message(channels::STDIN, &vec![b'x'; MAX_BUFFERED_INPUT + 10 * PART]);
    client.write_all(&sent).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), gone.left()).await;
    assert!(early.is_err(), "it is still there");
    drop(client);
    tokio::time::timeout(LONG, gone.left()).await.expect("it has left");
    drop((input, output, tasks));
}

/// After the command's end the connection is closed in order, whatever the client still sends.
#[tokio::test]
async fn input_after_the_commands_end_is_discarded() {
    let (socket, mut client) = pair().await;
    let CommandSession { input, output, tasks, .. } = begin(socket, version_four(), STDIN);
    drop(input);
    output.send(Output::Status(super::super::session::CommandStatus::Success)).await.unwrap();
    drop(output);
    let finishing = tokio::spawn(tasks.finish());
    let many = message(channels::STDIN, &vec![b'x'; 4 << 20]);
    let (mut reading, mut writing) = client.split();
    let (written, received) = tokio::join!(writing.write_all(&many), async {
        let mut received = Vec::new();
        reading.read_to_end(&mut received).await.map(|_| received)
    });
    written.expect("it is taken");
    let received = String::from_utf8_lossy(&received.expect("a clean end")).into_owned();
    assert!(received.contains("Success"), "{received:?}");
    drop(client);
    tokio::time::timeout(LONG, finishing).await.expect("an end").unwrap();
}
