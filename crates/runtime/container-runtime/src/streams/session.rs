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

use super::connection::SocketReader;

#[cfg(test)]
mod tests;

/// Queued messages in each direction: a slow side slows the other.
pub(super) const QUEUE: usize = 16;
/// The size of one message.
pub(super) const PART: usize = 32 * 1024;
/// The limit of queued bytes from a client.
pub(super) const MAX_BUFFERED_INPUT: usize = 1 << 20;
/// After one side has ended, wait this long for the other without progress.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a client may take to close after it received the result; cutting it off at once would
/// drop data that it has not read yet.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Which streams a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommandStreams {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputChannel {
    Stdout,
    Stderr,
}

/// From the client.
#[derive(Debug)]
pub(super) enum ClientInput {
    Stdin(BufferedInput),
    StdinEnd,
    Resize(TerminalSize),
}

/// To the client.
#[derive(Debug)]
pub(super) enum Output {
    Data(OutputChannel, Bytes),
    /// The result, which ends the session.
    Status(CommandStatus),
}

/// The result of a command, as sent to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandStatus {
    Success,
    ExitCode(i32),
    Failed(String),
}

impl CommandStatus {
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
pub(super) struct BufferedInput {
    pub(super) bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Room for the bytes of one client.
#[derive(Debug, Clone)]
pub(super) struct InputBudget(Arc<Semaphore>);

impl InputBudget {
    pub(super) fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// Waits for room. `bytes` must not exceed a part.
    pub(super) async fn reserve(&self, bytes: &[u8]) -> Option<BufferedInput> {
        let size = u32::try_from(bytes.len()).ok()?;
        let room = Arc::clone(&self.0).acquire_many_owned(size).await.ok()?;
        // A copy: a slice would keep the whole message alive.
        Some(BufferedInput { bytes: Bytes::copy_from_slice(bytes), _room: room })
    }
}

/// Signals that the client has left; can be awaited repeatedly and by several tasks.
#[derive(Debug, Clone)]
pub(super) struct ClientGone(watch::Receiver<()>);

impl ClientGone {
    /// Dropping the sender signals that the client has left.
    pub(super) fn pair() -> (watch::Sender<()>, Self) {
        let (here, gone) = watch::channel(());
        (here, Self(gone))
    }

    pub(super) async fn left(&mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// Waits until the client has left, and then for a while to let its input be read.
    pub(super) async fn left_and_idle(&mut self) {
        self.left().await;
        tokio::time::sleep(IDLE_TIMEOUT).await;
    }
}

/// The queue of a client's input.
#[derive(Debug)]
pub(super) struct Inbox {
    sender: mpsc::Sender<ClientInput>,
    room: InputBudget,
    /// Dropped with the rest when no more input comes.
    _here: watch::Sender<()>,
}

impl Inbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<ClientInput>, ClientGone) {
        let (sender, input) = mpsc::channel(QUEUE);
        let (here, gone) = ClientGone::pair();
        (Self { sender, room: InputBudget::of(MAX_BUFFERED_INPUT), _here: here }, input, gone)
    }

    /// `false`: the input is no longer read.
    pub(super) async fn stdin(&self, bytes: &[u8]) -> bool {
        for part in bytes.chunks(PART) {
            let Some(held) = self.room.reserve(part).await else { return false };
            if !self.send(ClientInput::Stdin(held)).await {
                return false;
            }
        }
        true
    }

    pub(super) async fn send(&self, event: ClientInput) -> bool {
        self.sender.send(event).await.is_ok()
    }

    pub(super) async fn resize(&self, text: &[u8]) -> bool {
        for size in sizes(text) {
            if !self.send(ClientInput::Resize(size)).await {
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

/// Where the reading side of a transport puts what it received. `U` are the messages that the
/// writing side sends before further output.
pub(super) struct SessionInbox<U> {
    pub(super) inbox: Inbox,
    pub(super) urgent: mpsc::Sender<U>,
}

/// What the writing side of a transport sends.
pub(super) struct SessionOutbox<U> {
    pub(super) output: mpsc::Receiver<Output>,
    pub(super) urgent: mpsc::Receiver<U>,
}

/// Waits until the peer has closed its side or is lost, and then for a while to let its input be
/// read. Does not read: a reader that waits for room cannot.
pub(super) async fn closed_and_idle(reader: &SocketReader) {
    if reader.closed().await.is_ok() {
        tokio::time::sleep(IDLE_TIMEOUT).await;
    }
}

/// A client of a remote command.
#[derive(Debug)]
pub(super) struct CommandSession {
    /// Closed when the client is gone and its input was read.
    pub(super) input: mpsc::Receiver<ClientInput>,
    pub(super) output: mpsc::Sender<Output>,
    pub(super) gone: ClientGone,
    pub(super) tasks: SessionTasks,
}

/// The two directions of a session's connection.
#[derive(Debug)]
pub(super) struct SessionTasks {
    pub(super) reading: JoinHandle<()>,
    pub(super) writing: JoinHandle<()>,
}

impl SessionTasks {
    /// After the command: lets the client read what is left, and limits its time to close.
    pub(super) async fn finish(mut self) {
        let _ = (&mut self.writing).await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, &mut self.reading).await;
    }
}

impl Drop for SessionTasks {
    fn drop(&mut self) {
        self.reading.abort();
        self.writing.abort();
    }
}

/// A terminal's size as clients send it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TerminalSizeJson {
    #[serde(default)]
    width: u16,
    #[serde(default)]
    height: u16,
}

/// Sizes come as JSON objects one after another.
pub(super) fn sizes(text: &[u8]) -> Vec<TerminalSize> {
    serde_json::Deserializer::from_slice(text)
        .into_iter::<TerminalSizeJson>()
        .map_while(Result::ok)
        .map(|size| TerminalSize { columns: size.width.into(), rows: size.height.into() })
        .collect()
}
