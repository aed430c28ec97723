//! What a remote command sees of its client, whatever carries it.
//!
//! Rule: what waits between the two sides is limited in messages and in bytes; beyond that the
//! client waits. That a client has left is told beside the queue, not through it: whoever is stuck
//! on what the client once sent still learns of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use container_create::spec::TerminalSize;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use super::connection::Reading;

#[cfg(test)]
mod tests;

/// Messages that may wait in each direction: a slow side slows the other.
pub(super) const QUEUE: usize = 16;
/// What is sent as one message.
pub(super) const PART: usize = 32 * 1024;
/// Bytes of a client that may wait for whoever takes them.
pub(super) const HELD: usize = 1 << 20;
/// After the end of one side, the other is waited for this long without a step forward.
pub(super) const SILENCE: Duration = Duration::from_millis(500);
/// A client that was told the end may take this long to close; cutting it off at once would throw
/// away what it has not read yet.
const LINGER: Duration = Duration::from_secs(10);

/// Which streams a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Has {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Stdout,
    Stderr,
}

/// From the client.
#[derive(Debug)]
pub(super) enum Input {
    Stdin(Held),
    StdinEnd,
    Resize(TerminalSize),
}

/// To the client.
#[derive(Debug)]
pub(super) enum Output {
    Data(Channel, Bytes),
    /// The end of it all, with how it ended.
    Status(Ending),
}

/// How a command ended, as the client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    ExitCode(i32),
    Failed(String),
}

impl Ending {
    /// As protocol version 4 and later tell it.
    ///
    /// upstream: apimachinery metav1.Status; streaming remotecommand (ExecInContainer's errors)
    pub(super) fn status_object(&self) -> String {
        match self {
            Self::Success => json!({ "metadata": {}, "status": "Success" }),
            Self::ExitCode(code) => json!({
                "metadata": {},
                "status": "Failure",
                "message":
                    format!("command terminated with non-zero exit code: exit status {code}"),
                "reason": "NonZeroExitCode",
                "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
            }),
            Self::Failed(why) => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError",
                "details": { "causes": [{ "message": why }] },
                "code": 500,
            }),
        }
        .to_string()
    }

    /// As older versions tell it; success says nothing.
    pub(super) fn plain(&self) -> Option<String> {
        match self {
            Self::Success => None,
            Self::ExitCode(code) => {
                Some(format!("command terminated with non-zero exit code: exit status {code}"))
            }
            Self::Failed(why) => Some(why.clone()),
        }
    }
}

/// Bytes of a client, and the room that they take until they are dropped.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Room for the bytes of one client.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Semaphore>);

impl Room {
    pub(super) fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// Waits for room. `bytes` must not exceed a part.
    pub(super) async fn hold(&self, bytes: &[u8]) -> Option<Held> {
        let size = u32::try_from(bytes.len()).ok()?;
        let room = Arc::clone(&self.0).acquire_many_owned(size).await.ok()?;
        // A copy: a slice would keep the whole message alive.
        Some(Held { bytes: Bytes::copy_from_slice(bytes), _room: room })
    }
}

/// Says that the client has left, to whoever asks and as often as it asks.
#[derive(Debug, Clone)]
pub(super) struct Gone(watch::Receiver<()>);

impl Gone {
    /// The client is there as long as the first is kept.
    pub(super) fn pair() -> (watch::Sender<()>, Self) {
        let (here, gone) = watch::channel(());
        (here, Self(gone))
    }

    pub(super) async fn left(&mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// The client has left, and what it left behind was not taken for a while.
    pub(super) async fn left_behind(&mut self) {
        self.left().await;
        tokio::time::sleep(SILENCE).await;
    }
}

/// Where a client's input is put.
#[derive(Debug)]
pub(super) struct Inbox {
    sender: mpsc::Sender<Input>,
    room: Room,
    /// Dropped with the rest when nothing more comes.
    _here: watch::Sender<()>,
}

impl Inbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<Input>, Gone) {
        let (sender, input) = mpsc::channel(QUEUE);
        let (here, gone) = Gone::pair();
        (Self { sender, room: Room::of(HELD), _here: here }, input, gone)
    }

    /// `false`: nobody takes it any more.
    pub(super) async fn stdin(&self, bytes: &[u8]) -> bool {
        for part in bytes.chunks(PART) {
            let Some(held) = self.room.hold(part).await else { return false };
            if !self.send(Input::Stdin(held)).await {
                return false;
            }
        }
        true
    }

    pub(super) async fn send(&self, event: Input) -> bool {
        self.sender.send(event).await.is_ok()
    }

    pub(super) async fn resize(&self, text: &[u8]) -> bool {
        for size in sizes(text) {
            if !self.send(Input::Resize(size)).await {
                return false;
            }
        }
        true
    }

    /// The command is over.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// The peer has closed its side or is lost, and what it sent before was not taken for a while. Seen
/// without reading: a reader that waits for room does not read.
pub(super) async fn hung_up(reader: &Reading) {
    if reader.closed().await.is_ok() {
        tokio::time::sleep(SILENCE).await;
    }
}

/// A client of a remote command.
#[derive(Debug)]
pub(super) struct Session {
    /// Ends when the client is gone and what it sent was taken.
    pub(super) input: mpsc::Receiver<Input>,
    pub(super) output: mpsc::Sender<Output>,
    pub(super) gone: Gone,
    pub(super) tasks: Tasks,
}

/// The two directions of a session's connection.
#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) reading: JoinHandle<()>,
    pub(super) writing: JoinHandle<()>,
}

impl Tasks {
    /// After the command: the client takes its time to read what is left, and none to close.
    pub(super) async fn finish(mut self) {
        let _ = (&mut self.writing).await;
        let _ = tokio::time::timeout(LINGER, &mut self.reading).await;
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.reading.abort();
        self.writing.abort();
    }
}

/// A terminal's size as clients write it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    #[serde(default)]
    width: u16,
    #[serde(default)]
    height: u16,
}

/// Sizes come as JSON objects one after another.
pub(super) fn sizes(text: &[u8]) -> Vec<TerminalSize> {
    serde_json::Deserializer::from_slice(text)
        .into_iter::<Size>()
        .map_while(Result::ok)
        .map(|size| TerminalSize { columns: size.width.into(), rows: size.height.into() })
        .collect()
}
