//! A command that does not read, and a client that leaves.

use std::time::Duration;

use super::*;
use crate::streams::session::{Inbox, MAX_BUFFERED_INPUT, QUEUE};

const LONG: Duration = Duration::from_secs(20);

fn client(
    input: mpsc::Receiver<ClientInput>,
    gone: ClientGone,
) -> (StreamClient, mpsc::Receiver<Output>, watch::Sender<bool>, watch::Receiver<bool>) {
    let (output, received) = mpsc::channel(QUEUE);
    let (over_sender, over) = watch::channel(false);
    (StreamClient { input, output, gone }, received, over_sender, over)
}

const COMMAND_STREAMS: CommandStreams =
    CommandStreams { stdin: true, stdout: true, stderr: false, tty: false };

#[tokio::test]
async fn a_disconnected_client_is_detected_while_the_command_reads_nothing() {
    let (stdio, ends) = pipes(COMMAND_STREAMS).unwrap();
    let (inbox, input, gone) = Inbox::new();
    let (client, _received, _over, over) = client(input, gone);
    let copying = tokio::spawn(copy_pipes(ends, client, over));
    // More than a pipe's buffer, so that the copying blocks on it.
    assert!(inbox.stdin(&vec![0; MAX_BUFFERED_INPUT / 2]).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!copying.is_finished(), "the client is still there");
    drop(inbox);
    let left = tokio::time::timeout(LONG, copying).await.expect("it is seen").unwrap();
    assert_eq!(left, EndedBy::StreamClient);
    drop(stdio);
}

/// Input that a client sent before it left reaches a command that reads it.
#[tokio::test]
async fn input_sent_before_a_disconnect_reaches_the_command() {
    let (stdio, ends) = pipes(COMMAND_STREAMS).unwrap();
    let (inbox, input, gone) = Inbox::new();
    let (client, _received, _over, over) = client(input, gone);
    let copying = tokio::spawn(copy_pipes(ends, client, over));
    let reading = tokio::task::spawn_blocking(move || {
        let mut pipe = std::fs::File::from(stdio.stdin.unwrap());
        let (mut all, mut part) = (0, vec![0; 4096]);
        while let Ok(read @ 1..) = std::io::Read::read(&mut pipe, &mut part) {
            all += read;
        }
        (all, stdio.stdout)
    });
    assert!(inbox.stdin(&vec![0; MAX_BUFFERED_INPUT]).await);
    drop(inbox);
    assert_eq!(
        tokio::time::timeout(LONG, copying).await.expect("an end").unwrap(),
        EndedBy::StreamClient
    );
    assert_eq!(reading.await.unwrap().0, MAX_BUFFERED_INPUT);
}

/// A command that has closed its output continues, and so does the watch on its client.
#[tokio::test]
async fn a_disconnected_client_is_detected_by_a_command_without_output() {
    let (mut stdio, ends) = pipes(COMMAND_STREAMS).unwrap();
    let (inbox, input, gone) = Inbox::new();
    let (client, _received, _over, over) = client(input, gone);
    stdio.stdout = None;
    let copying = tokio::spawn(copy_pipes(ends, client, over));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!copying.is_finished(), "neither has ended");
    drop(inbox);
    assert_eq!(
        tokio::time::timeout(LONG, copying).await.expect("seen").unwrap(),
        EndedBy::StreamClient
    );
}

/// A client that accepts no output any more counts as gone: no command continues for it.
#[tokio::test]
async fn a_client_that_takes_no_output_counts_as_disconnected() {
    let (stdio, ends) = pipes(COMMAND_STREAMS).unwrap();
    let (_inbox, input, gone) = Inbox::new();
    let (client, received, _over, over) = client(input, gone);
    drop(received);
    rustix::io::write(stdio.stdout.as_ref().unwrap(), b"hello").unwrap();
    let left = tokio::time::timeout(LONG, copy_pipes(ends, client, over)).await.expect("an end");
    assert_eq!(left, EndedBy::StreamClient);
}
