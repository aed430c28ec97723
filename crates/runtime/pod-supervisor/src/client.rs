//! The server's side of the supervisor socket.
//!
//! Rule: calls may be made from many tasks at once, and each has a deadline. When the connection
//! ends, calls without a response fail with the reason. The caller runs [`ClientDriver`] as a task
//! of its own. The client neither starts supervisors nor reconnects by itself.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use container_create::spec::{ContainerSpec, PodSpec, ProcessSpec, TerminalSize};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::protocol::frame::{FrameError, FrameReader, OutgoingFrame, ReceivedFrame};
use crate::protocol::{
    Attach, ContainerName, ContainerState, Empty, Event, Exec, ExecState, ExecUser, HOOKS_SINCE,
    Hello, Kill, MessageBody, PodState, RequestBody, RequestErrorKind, Resize, Response,
    ResponseBody, SupervisorMessage, SupervisorRequest, VERSION,
};
use crate::socket_path::SocketPath;

#[cfg(test)]
mod tests;

/// For calls that only look something up or send a signal.
const SHORT_TIMEOUT: Duration = Duration::from_secs(20);
/// For calls that create or remove something; the supervisor has shorter deadlines of its own.
const LONG_TIMEOUT: Duration = Duration::from_secs(150);
const CALL_QUEUE: usize = 64;
/// Unread events; one read of the socket yields at most a hundred.
const EVENT_QUEUE: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("connecting to the supervisor at {path}: {source}")]
    Connect { path: PathBuf, source: io::Error },
    /// The supervisor has exited, or the driver was dropped.
    #[error("the connection to the supervisor has ended: {0}")]
    Ended(String),
    #[error("the supervisor did not answer to {what} within {limit:?}")]
    Deadline { what: &'static str, limit: Duration },
    #[error("{message}")]
    Refused { kind: RequestErrorKind, message: String },
    #[error("unexpected response of the supervisor to {what}")]
    UnexpectedResponse { what: &'static str },
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl ClientError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { kind: RequestErrorKind::NotFound, .. })
    }

    /// The supervisor cannot be reached any more: see [`crate::orphans`].
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Ended(_))
    }

    /// No process listens on the socket: the supervisor has exited, and none will come back.
    pub fn is_not_listening(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        matches!(self, Self::Connect { source, .. }
            if matches!(source.kind(), ConnectionRefused | NotFound))
    }
}

type Result<T, E = ClientError> = std::result::Result<T, E>;

/// Clones share the connection.
#[derive(Debug, Clone)]
pub struct SupervisorClient {
    calls: mpsc::Sender<PendingCall>,
    next: Arc<AtomicU64>,
    /// The protocol version that both sides know.
    version: u32,
}

#[derive(Debug)]
struct PendingCall {
    id: u64,
    frame: OutgoingFrame,
    response: oneshot::Sender<(Response, Vec<OwnedFd>)>,
}

/// A connection after the hello exchange.
#[derive(Debug)]
pub struct ClientConnection {
    pub client: SupervisorClient,
    /// Events from now on. When the queue is full, events are dropped and replaced by one whose
    /// `body` is none: the reader must then list.
    pub events: mpsc::Receiver<Event>,
    pub driver: ClientDriver,
    /// The protocol version that both sides know.
    pub version: u32,
    /// PID of the supervisor, from the kernel.
    pub supervisor_pid: u32,
}

/// Standard streams to pass on; a stream that is none is empty.
#[derive(Debug, Default)]
pub struct StdioDescriptors {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

impl StdioDescriptors {
    fn into_descriptors(self) -> Vec<OwnedFd> {
        [self.stdin, self.stdout, self.stderr].into_iter().flatten().collect()
    }
}

#[derive(Debug, Default)]
pub struct ExecOptions {
    pub container: String,
    /// Unique in the pod.
    pub exec: String,
    pub process: ProcessSpec,
    /// After this time the whole process tree is killed.
    pub timeout: Option<Duration>,
    /// Ignored with a terminal.
    pub stdio: StdioDescriptors,
    pub user: Option<ExecUser>,
}

#[derive(Debug)]
pub struct StartedExec {
    pub state: ExecState,
    /// The master side, if a terminal was requested. Closing it hangs up.
    pub terminal: Option<OwnedFd>,
}

impl SupervisorClient {
    /// `dir` is the pod's state directory.
    pub async fn connect(dir: &Path) -> Result<ClientConnection> {
        let path = dir.join(crate::SOCKET);
        let failed = |source| ClientError::Connect { path: path.clone(), source };
        let socket_path = SocketPath::of(dir).map_err(failed)?;
        let connecting =
            tokio::time::timeout(SHORT_TIMEOUT, UnixStream::connect(&socket_path.path)).await;
        let socket = connecting
            .map_err(|_| ClientError::Deadline { what: "connect", limit: SHORT_TIMEOUT })?
            .map_err(failed)?;
        let supervisor_pid = socket.peer_cred().map_err(failed)?.pid().unwrap_or_default();
        let (calls, queue) = mpsc::channel(CALL_QUEUE);
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let mut client = Self { calls, next: Arc::new(AtomicU64::new(1)), version: 0 };
        let mut driver = ClientDriver {
            socket,
            reader: FrameReader::default(),
            queue,
            events: sender,
            waiting: HashMap::new(),
            dropped: false,
        };
        let hello = Hello { version: VERSION, program: env!("CARGO_PKG_VERSION").to_owned() };
        let greeting = client.call("hello", SHORT_TIMEOUT, RequestBody::Hello(hello), Vec::new());
        let body = tokio::select! {
            body = greeting => body?,
            ended = driver.drive() => return Err(ended),
        };
        let (ResponseBody::Hello(hello), _) = body else {
            return Err(ClientError::UnexpectedResponse { what: "hello" });
        };
        client.version = hello.version.min(VERSION);
        Ok(ClientConnection {
            version: client.version,
            client,
            events,
            driver,
            supervisor_pid: u32::try_from(supervisor_pid).unwrap_or_default(),
        })
    }

    /// The connection is over. Only a new connection shows whether the supervisor is gone as well.
    pub fn is_disconnected(&self) -> bool {
        self.calls.is_closed()
    }

    async fn call(
        &self,
        what: &'static str,
        limit: Duration,
        body: RequestBody,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(ResponseBody, Vec<OwnedFd>)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = OutgoingFrame::new(&SupervisorRequest { id, body: Some(body) }, descriptors)?;
        let (sender, receiver) = oneshot::channel();
        let ended = || ClientError::Ended("its driver has stopped".to_owned());
        let exchange = async {
            self.calls
                .send(PendingCall { id, frame, response: sender })
                .await
                .map_err(|_| ended())?;
            receiver.await.map_err(|_| ended())
        };
        let response = tokio::time::timeout(limit, exchange).await;
        let (response, descriptors) =
            response.map_err(|_| ClientError::Deadline { what, limit })??;
        if let Some(error) = response.error {
            return Err(ClientError::Refused { kind: error.kind(), message: error.message });
        }
        let body = response.body.ok_or(ClientError::UnexpectedResponse { what })?;
        Ok((body, descriptors))
    }

    async fn done(&self, what: &'static str, limit: Duration, body: RequestBody) -> Result<()> {
        self.call(what, limit, body, Vec::new()).await.map(drop)
    }

    /// Creates the pod's namespaces. Returns the state, which lists them.
    pub async fn create_pod(&self, spec: PodSpec) -> Result<PodState> {
        match self.call("pod", LONG_TIMEOUT, RequestBody::Pod(spec), Vec::new()).await?.0 {
            ResponseBody::State(state) => Ok(state),
            _ => Err(ClientError::UnexpectedResponse { what: "pod" }),
        }
    }

    /// Creates a container; its program waits for [`SupervisorClient::start`].
    pub async fn create(&self, spec: ContainerSpec) -> Result<ContainerState> {
        if !spec.hooks.is_empty() && self.version < HOOKS_SINCE {
            return Err(ClientError::Refused {
                kind: RequestErrorKind::InvalidSpec,
                message: "the pod's supervisor does not support hooks yet: recreate the pod"
                    .to_owned(),
            });
        }
        self.container("create", LONG_TIMEOUT, RequestBody::Create(spec)).await
    }

    /// Returns when the program runs.
    pub async fn start(&self, id: &str) -> Result<ContainerState> {
        self.container("start", LONG_TIMEOUT, RequestBody::Start(name(id))).await
    }

    async fn container(
        &self,
        what: &'static str,
        limit: Duration,
        body: RequestBody,
    ) -> Result<ContainerState> {
        match self.call(what, limit, body, Vec::new()).await?.0 {
            ResponseBody::Container(state) => Ok(state),
            _ => Err(ClientError::UnexpectedResponse { what }),
        }
    }

    /// Sends a signal to the container's first process.
    pub async fn kill(&self, id: &str, signal: i32) -> Result<()> {
        let kill = Kill { id: id.to_owned(), signal, ..Kill::default() };
        self.done("kill", SHORT_TIMEOUT, RequestBody::Kill(kill)).await
    }

    /// Sends SIGKILL to every process of the container.
    pub async fn kill_all(&self, id: &str) -> Result<()> {
        let kill = Kill { id: id.to_owned(), signal: 9, all: true, ..Kill::default() };
        self.done("kill", SHORT_TIMEOUT, RequestBody::Kill(kill)).await
    }

    /// Sends a signal to an exec's first process; with `all`, SIGKILL to its whole tree.
    pub async fn kill_exec(
        &self,
        container: &str,
        exec: &str,
        signal: i32,
        all: bool,
    ) -> Result<()> {
        let kill = Kill { id: container.to_owned(), signal, all, exec: exec.to_owned() };
        self.done("kill", SHORT_TIMEOUT, RequestBody::Kill(kill)).await
    }

    /// Returns when the program runs; its exit is reported as an event.
    pub async fn exec(&self, request: ExecOptions) -> Result<StartedExec> {
        let exec = Exec {
            container: request.container,
            exec: request.exec,
            process: Some(request.process),
            timeout_milliseconds: request
                .timeout
                .map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1)),
            stdin: request.stdio.stdin.is_some(),
            stdout: request.stdio.stdout.is_some(),
            stderr: request.stdio.stderr.is_some(),
            user: request.user,
        };
        let descriptors = request.stdio.into_descriptors();
        match self.call("exec", LONG_TIMEOUT, RequestBody::Exec(exec), descriptors).await? {
            (ResponseBody::Exec(state), terminal) => {
                Ok(StartedExec { state, terminal: terminal.into_iter().next() })
            }
            _ => Err(ClientError::UnexpectedResponse { what: "exec" }),
        }
    }

    /// Copies the container's output to these descriptors, and their input to the container, until
    /// either end closes.
    pub async fn attach(&self, container: &str, stdio: StdioDescriptors) -> Result<()> {
        let attach = Attach {
            container: container.to_owned(),
            stdin: stdio.stdin.is_some(),
            stdout: stdio.stdout.is_some(),
            stderr: stdio.stderr.is_some(),
        };
        let descriptors = stdio.into_descriptors();
        self.call("attach", SHORT_TIMEOUT, RequestBody::Attach(attach), descriptors).await.map(drop)
    }

    /// Resizes the container's terminal; for an exec's terminal use its descriptor.
    pub async fn resize(&self, container: &str, size: TerminalSize) -> Result<()> {
        let resize =
            Resize { container: container.to_owned(), exec: String::new(), size: Some(size) };
        self.done("resize", SHORT_TIMEOUT, RequestBody::Resize(resize)).await
    }

    /// Reopens the log file by its path: call it after the old file was renamed.
    pub async fn reopen_log(&self, id: &str) -> Result<()> {
        self.done("reopen log", SHORT_TIMEOUT, RequestBody::ReopenLog(name(id))).await
    }

    pub async fn close_stdin(&self, id: &str) -> Result<()> {
        self.done("close stdin", SHORT_TIMEOUT, RequestBody::CloseStdin(name(id))).await
    }

    /// Kills remaining processes, removes the cgroup, and deletes the container's state and exit
    /// record.
    pub async fn delete(&self, id: &str) -> Result<()> {
        self.done("delete", LONG_TIMEOUT, RequestBody::Delete(name(id))).await
    }

    pub async fn list(&self) -> Result<PodState> {
        match self.call("list", SHORT_TIMEOUT, RequestBody::List(Empty {}), Vec::new()).await?.0 {
            ResponseBody::State(state) => Ok(state),
            _ => Err(ClientError::UnexpectedResponse { what: "list" }),
        }
    }

    /// The pod's namespaces as descriptors, by name (`net`, `ipc`, `uts`, `pid`, `user`).
    pub async fn namespaces(&self) -> Result<Vec<(String, OwnedFd)>> {
        match self
            .call("namespaces", SHORT_TIMEOUT, RequestBody::Namespaces(Empty {}), Vec::new())
            .await?
        {
            (ResponseBody::State(state), descriptors)
                if state.namespaces.len() == descriptors.len() =>
            {
                Ok(state.namespaces.into_iter().zip(descriptors).collect())
            }
            _ => Err(ClientError::UnexpectedResponse { what: "namespaces" }),
        }
    }

    /// Removes the pod's containers and namespaces; the supervisor then exits.
    pub async fn shutdown(&self) -> Result<()> {
        self.done("shutdown", LONG_TIMEOUT, RequestBody::Shutdown(Empty {})).await
    }
}

fn name(id: &str) -> ContainerName {
    ContainerName { id: id.to_owned() }
}

/// Waits for room in the queue. A server that dropped its receiver wants no events.
async fn send_resync_event(events: &mpsc::Sender<Event>) {
    if let Ok(permit) = events.reserve().await {
        permit.send(Event::default());
    }
}

/// Carries frames in both directions. Without it no call makes progress.
#[derive(Debug)]
pub struct ClientDriver {
    socket: UnixStream,
    reader: FrameReader,
    queue: mpsc::Receiver<PendingCall>,
    events: mpsc::Sender<Event>,
    waiting: HashMap<u64, oneshot::Sender<(Response, Vec<OwnedFd>)>>,
    /// Events were dropped, and the resync event has not been sent yet.
    dropped: bool,
}

impl ClientDriver {
    /// Runs until the connection ends or all clients are dropped; returns why.
    pub async fn run(mut self) -> ClientError {
        self.drive().await
    }

    async fn drive(&mut self) -> ClientError {
        loop {
            let outcome = tokio::select! {
                call = self.queue.recv() => match call {
                    Some(call) => self.send(call).await,
                    None => return ClientError::Ended("all clients were dropped".to_owned()),
                },
                () = send_resync_event(&self.events), if self.dropped => {
                    self.dropped = false;
                    Ok(())
                }
                ready = self.socket.readable() => match ready {
                    Ok(()) => self.receive(),
                    Err(error) => Err(ClientError::Ended(error.to_string())),
                },
            };
            if let Err(error) = outcome {
                return error;
            }
        }
    }

    /// The supervisor reads all pending input before it does anything else, so this write does not
    /// block for long; its responses are read afterwards.
    async fn send(&mut self, mut call: PendingCall) -> Result<()> {
        // The caller has dropped the call: the request was not sent, and will not be.
        if call.response.is_closed() {
            return Ok(());
        }
        self.waiting.retain(|_, waiter| !waiter.is_closed());
        self.waiting.insert(call.id, call.response);
        loop {
            let ended = |error: io::Error| ClientError::Ended(error.to_string());
            self.socket.writable().await.map_err(ended)?;
            let sent =
                self.socket.try_io(Interest::WRITABLE, || call.frame.send(self.socket.as_fd()));
            match sent {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(ended(error)),
            }
        }
    }

    fn receive(&mut self) -> Result<()> {
        let reader = &mut self.reader;
        let mut frame_error = None;
        let filled = self.socket.try_io(Interest::READABLE, || {
            reader.fill(self.socket.as_fd()).or_else(|error| match error {
                FrameError::Io(error) => Err(error),
                other => {
                    frame_error = Some(other);
                    Ok(false)
                }
            })
        });
        if let Some(frame_error) = frame_error {
            return Err(frame_error.into());
        }
        match filled {
            Ok(true) => {}
            Ok(false) => return Err(ClientError::Ended("the supervisor closed it".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(ClientError::Ended(error.to_string())),
        }
        while let Some(ReceivedFrame { message, descriptors }) =
            self.reader.take::<SupervisorMessage>()?
        {
            match message.body {
                Some(MessageBody::Response(response)) => {
                    if let Some(waiter) = self.waiting.remove(&response.id) {
                        let _ = waiter.send((response, descriptors));
                    }
                }
                Some(MessageBody::Event(event)) => {
                    let full = |error| matches!(error, mpsc::error::TrySendError::Full(_));
                    // An event after a dropped one would be out of order.
                    self.dropped |= self.dropped || self.events.try_send(event).is_err_and(full);
                }
                // A kind that only newer supervisors know.
                None => {}
            }
        }
        Ok(())
    }
}
