//! The client of a remote command, independent of the transport.
//!
//! Rule: the queues between the two sides are limited in messages and in bytes; beyond that the
//! client is not read. The client's disconnect is signalled beside the queue, not through it: a
//! task that is blocked on earlier input still sees it.

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

/// Queued messages in each direction: a slow side slows the other.
pub(super) const QUEUE: usize = 16;
/// The size of one message.
pub(super) const PART: usize = 32 * 1024;
/// The limit of queued bytes from a client.
pub(super) const HELD: usize = 1 << 20;
/// After one side has ended, wait this long for the other without progress.
pub(super) const SILENCE: Duration = Duration::from_millis(500);
/// How long a client may take to close after it received the result; cutting it off at once would
/// drop data that it has not read yet.
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
    /// The result, which ends the session.
    Status(Ending),
}

/// The result of a command, as sent to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    ExitCode(i32),
    Failed(String),
}

impl Ending {
    /// The result in protocol version 4 and later.
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

    /// The result in older versions; nothing is sent on success.
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

/// Signals that the client has left; can be awaited repeatedly and by several tasks.
#[derive(Debug, Clone)]
pub(super) struct Gone(watch::Receiver<()>);

impl Gone {
    /// Dropping the sender signals that the client has left.
    pub(super) fn pair() -> (watch::Sender<()>, Self) {
        let (here, gone) = watch::channel(());
        (here, Self(gone))
    }

    pub(super) async fn left(&mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// Waits until the client has left, and then for a while to let its input be read.
    pub(super) async fn left_behind(&mut self) {
        self.left().await;
        tokio::time::sleep(SILENCE).await;
    }
}

/// The queue of a client's input.
#[derive(Debug)]
pub(super) struct Inbox {
    sender: mpsc::Sender<Input>,
    room: Room,
    /// Dropped with the rest when no more input comes.
    _here: watch::Sender<()>,
}

impl Inbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<Input>, Gone) {
        let (sender, input) = mpsc::channel(QUEUE);
        let (here, gone) = Gone::pair();
        (Self { sender, room: Room::of(HELD), _here: here }, input, gone)
    }

    /// `false`: the input is no longer read.
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

    /// Waits until the command is over.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// Waits until the peer has closed its side or is lost, and then for a while to let its input be
/// read. Does not read: a reader that waits for room cannot.
pub(super) async fn hung_up(reader: &Reading) {
    if reader.closed().await.is_ok() {
        tokio::time::sleep(SILENCE).await;
    }
}

/// A client of a remote command.
#[derive(Debug)]
pub(super) struct Session {
    /// Closed when the client is gone and its input was read.
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
    /// After the command: lets the client read what is left, and limits its time to close.
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

/// A terminal's size as clients send it.
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
