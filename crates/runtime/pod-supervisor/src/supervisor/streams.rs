//! A container's standard streams: a thread per container copies them to the log and to attached
//! clients.
//!
//! Rule: a slow disk or client blocks this container and nothing else: output that cannot be
//! written is not read, and the container blocks in its own write. Memory is allocated once, at the
//! start; the thread never allocates afterwards (the supervisor forks while it runs). When the log
//! cannot be written, lines are dropped; the container goes on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::SystemTime;

use container_create::spec::TerminalSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::log_lines::{LineHead, LogLineBuffer, LogTimestamp, OutputStream};

mod control;
mod log_file;
#[cfg(test)]
mod tests;

use control::{ControlSocket, StreamCommand};
use log_file::ContainerLogFile;
pub(super) use log_file::LogPath;

/// Room for an incomplete line and one read.
const READ_BUFFER: usize = 32 * 1024;
const INPUT_BUFFER: usize = 4 * 1024;
const MAX_ATTACHMENTS: usize = 8;
/// A client that reads nothing for this long is dropped.
const STALL_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const DEFAULT_LINE_LENGTH: usize = 16 * 1024;
const STACK_SIZE: usize = 64 * 1024;

/// Inputs of the thread.
pub(super) struct StreamsStart {
    pub(super) output: OwnedFd,
    /// None with a terminal.
    pub(super) error: Option<OwnedFd>,
    pub(super) input: Option<OwnedFd>,
    pub(super) terminal: bool,
    pub(super) log: Option<LogPath>,
    pub(super) stdin_once: bool,
    /// 0: the default.
    pub(super) longest_line: usize,
    pub(super) wake: Arc<OwnedFd>,
}

#[derive(Default)]
struct StreamsShared {
    drained: AtomicBool,
    reopened: AtomicU32,
    reopen_error: AtomicI32,
}

/// The supervisor's side.
pub(super) struct ContainerStreams {
    control: ControlSocket,
    shared: Arc<StreamsShared>,
    terminal: Option<OwnedFd>,
    reopens: u32,
}

impl ContainerStreams {
    /// Opens the log and starts the thread; returns when it runs.
    pub(super) fn start(start: StreamsStart) -> io::Result<Self> {
        let log = ContainerLogFile::open(start.log)?;
        let terminal = start.terminal.then(|| start.output.try_clone()).transpose()?;
        let (ours, theirs) = ControlSocket::pair()?;
        let shared = Arc::new(StreamsShared::default());
        let all = [Some(&start.output), start.error.as_ref(), start.input.as_ref()];
        for stream in all.into_iter().flatten() {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        let longest =
            if start.longest_line == 0 { DEFAULT_LINE_LENGTH } else { start.longest_line };
        let lines = LogLineBuffer::new(longest);
        let room = lines.longest() + READ_BUFFER / 2;
        let worker = StreamsWorker {
            output: Some(OutputSource::new(start.output, OutputStream::Output, room)),
            error: start.error.map(|error| OutputSource::new(error, OutputStream::Error, room)),
            input: start.input,
            pending: vec![0; INPUT_BUFFER].into_boxed_slice(),
            pending_range: (0, 0),
            stdin_once: start.stdin_once,
            terminal: start.terminal,
            attachments: std::array::from_fn(|_| AttachedClient::default()),
            control: theirs,
            lines,
            timestamp: LogTimestamp::new(),
            log,
            shared: Arc::clone(&shared),
            wake: start.wake,
        };
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new().stack_size(STACK_SIZE).spawn(move || {
            let _ = ready.send(());
            drop(ready);
            worker.run();
        })?;
        let _ = started.recv();
        Ok(Self { control: ours, shared, terminal, reopens: 0 })
    }

    /// All output is written, and the thread has ended.
    pub(super) fn is_drained(&self) -> bool {
        self.shared.drained.load(Ordering::Acquire)
    }

    /// Asks the thread to reopen the log; returns the number that [`ContainerStreams::reopened`]
    /// reaches then.
    pub(super) fn reopen(&mut self) -> io::Result<u32> {
        self.control.send(StreamCommand::Reopen, &[])?;
        self.reopens += 1;
        Ok(self.reopens)
    }

    pub(super) fn reopened(&self) -> (u32, Option<io::Error>) {
        let count = self.shared.reopened.load(Ordering::Acquire);
        let error = self.shared.reopen_error.load(Ordering::Acquire);
        (count, (error != 0).then(|| io::Error::from_raw_os_error(error)))
    }

    pub(super) fn attach(&self, streams: &[Option<OwnedFd>; 3]) -> io::Result<()> {
        let mut which = 0;
        for (number, stream) in streams.iter().enumerate() {
            which |= u8::from(stream.is_some()) << number;
        }
        let some: Vec<BorrowedFd<'_>> = streams.iter().flatten().map(AsFd::as_fd).collect();
        self.control.send(StreamCommand::Attach { which }, &some)
    }

    pub(super) fn close_input(&self) -> io::Result<()> {
        self.control.send(StreamCommand::CloseInput, &[])
    }

    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let terminal =
            self.terminal.as_ref().ok_or_else(|| io::Error::other("it has no terminal"))?;
        container_create::system::set_terminal_size(terminal, size)
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }
}

/// One output stream of the container and its incomplete last line.
struct OutputSource {
    descriptor: OwnedFd,
    stream: OutputStream,
    buffer: Box<[u8]>,
    have: usize,
}

impl OutputSource {
    fn new(descriptor: OwnedFd, stream: OutputStream, room: usize) -> Self {
        Self { descriptor, stream, buffer: vec![0; room].into_boxed_slice(), have: 0 }
    }
}

#[derive(Default)]
struct AttachedClient {
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
}

struct StreamsWorker {
    output: Option<OutputSource>,
    error: Option<OutputSource>,
    input: Option<OwnedFd>,
    /// Read from a client, not yet written to the container.
    pending: Box<[u8]>,
    pending_range: (usize, usize),
    stdin_once: bool,
    terminal: bool,
    attachments: [AttachedClient; MAX_ATTACHMENTS],
    control: ControlSocket,
    lines: LogLineBuffer,
    timestamp: LogTimestamp,
    log: ContainerLogFile,
    shared: Arc<StreamsShared>,
    wake: Arc<OwnedFd>,
}

const CONTROL: usize = 0;
const OUTPUT: usize = 1;
const ERROR: usize = 2;
const CONTAINER_INPUT: usize = 3;
const CLIENTS: usize = 4;

impl StreamsWorker {
    fn run(mut self) {
        while self.output.is_some() || self.error.is_some() {
            let ready = self.wait();
            if ready[CONTROL] && !self.handle_command() {
                break;
            }
            if ready[OUTPUT] {
                self.output = self.output.take().and_then(|source| self.copy(source));
            }
            if ready[ERROR] {
                self.error = self.error.take().and_then(|source| self.copy(source));
            }
            if ready[CONTAINER_INPUT] {
                self.write_input();
            }
            for client in 0..MAX_ATTACHMENTS {
                if ready[CLIENTS + client] && self.has_room() {
                    self.read_client(client);
                }
            }
        }
        self.shared.drained.store(true, Ordering::Release);
        self.wake_supervisor();
    }

    fn has_room(&self) -> bool {
        self.pending_range.0 == self.pending_range.1
    }

    fn wait(&self) -> [bool; CLIENTS + MAX_ATTACHMENTS] {
        let control = self.control.as_fd();
        let mut watched: [PollFd<'_>; CLIENTS + MAX_ATTACHMENTS] = std::array::from_fn(|number| {
            let (descriptor, flags) = match number {
                CONTROL => (Some(control), PollFlags::IN),
                OUTPUT => (self.output.as_ref().map(|one| one.descriptor.as_fd()), PollFlags::IN),
                ERROR => (self.error.as_ref().map(|one| one.descriptor.as_fd()), PollFlags::IN),
                CONTAINER_INPUT => (
                    self.input.as_ref().filter(|_| !self.has_room()).map(AsFd::as_fd),
                    PollFlags::OUT,
                ),
                client => {
                    let attachment = &self.attachments[client - CLIENTS];
                    let input = attachment.input.as_ref().filter(|_| self.has_room());
                    (input.map(AsFd::as_fd), PollFlags::IN)
                }
            };
            match descriptor {
                Some(descriptor) => PollFd::from_borrowed_fd(descriptor, flags),
                None => PollFd::from_borrowed_fd(control, PollFlags::empty()),
            }
        });
        if poll(&mut watched, None).is_err() {
            return [false; CLIENTS + MAX_ATTACHMENTS];
        }
        // An unused slot polls the control socket for no events, but still gets its hangup.
        let used = |number: usize| match number {
            CONTROL => true,
            OUTPUT => self.output.is_some(),
            ERROR => self.error.is_some(),
            CONTAINER_INPUT => self.input.is_some() && !self.has_room(),
            client => self.attachments[client - CLIENTS].input.is_some() && self.has_room(),
        };
        std::array::from_fn(|number| !watched[number].revents().is_empty() && used(number))
    }

    /// False: the supervisor has closed the control socket.
    fn handle_command(&mut self) -> bool {
        let mut descriptors = [None, None, None];
        match self.control.receive(&mut descriptors) {
            Ok(Some(StreamCommand::Reopen)) => {
                self.reopen();
                true
            }
            Ok(Some(StreamCommand::Attach { which })) => {
                self.add_client(which, descriptors);
                true
            }
            Ok(Some(StreamCommand::CloseInput)) => {
                self.input = None;
                true
            }
            Ok(None) => false,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn reopen(&mut self) {
        let error = match self.log.reopen() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error(),
        };
        self.shared.reopen_error.store(error, Ordering::Release);
        self.shared.reopened.fetch_add(1, Ordering::AcqRel);
        self.wake_supervisor();
    }

    fn wake_supervisor(&self) {
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    fn add_client(&mut self, which: u8, descriptors: [Option<OwnedFd>; 3]) {
        let mut descriptors = descriptors.into_iter().flatten();
        let mut next =
            |number: u8| if which & (1 << number) != 0 { descriptors.next() } else { None };
        let client = AttachedClient { input: next(0), output: next(1), error: next(2) };
        for stream in [&client.input, &client.output, &client.error].into_iter().flatten() {
            let _ = rustix::io::ioctl_fionbio(stream, true);
        }
        let free = |one: &&mut AttachedClient| {
            one.input.is_none() && one.output.is_none() && one.error.is_none()
        };
        self.drop_disconnected_clients();
        // Without a free slot the new client is closed, which it notices.
        if let Some(slot) = self.attachments.iter_mut().find(free) {
            *slot = client;
        }
    }

    /// Without this, a client that left would be noticed only on the next write, and a silent
    /// container would keep its slot occupied for ever. Input already received is kept; what its
    /// end means to a container with `stdin_once` is decided in [`StreamsWorker::read_client`].
    fn drop_disconnected_clients(&mut self) {
        for client in &mut self.attachments {
            for slot in [&mut client.output, &mut client.error] {
                slot.take_if(|one| hung_up(one).is_some());
            }
            if !self.stdin_once {
                client.input.take_if(|one| hung_up(one).is_some_and(|more| !more));
            }
        }
    }

    /// Reads the container's output once; none at the end.
    fn copy(&mut self, mut source: OutputSource) -> Option<OutputSource> {
        let count = match rustix::io::read(&source.descriptor, &mut source.buffer[source.have..]) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Some(source),
            // A read from a terminal fails when its other side is closed.
            Err(_) => 0,
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.timestamp.set(i64::try_from(now.as_secs()).unwrap_or_default(), now.subsec_nanos());
        let filled = source.have + count;
        let head = LineHead { stream: source.stream, timestamp: &self.timestamp };
        let used = self.lines.take(&source.buffer[..filled], count == 0, head, &mut self.log);
        self.write_to_clients(source.stream, &source.buffer[source.have..filled]);
        source.buffer.copy_within(used..filled, 0);
        source.have = filled - used;
        (count > 0).then_some(source)
    }

    fn write_to_clients(&mut self, stream: OutputStream, bytes: &[u8]) {
        for client in &mut self.attachments {
            let slot = match stream {
                OutputStream::Output => &mut client.output,
                OutputStream::Error => &mut client.error,
            };
            if let Some(descriptor) = slot.take()
                && write_all(&descriptor, bytes)
            {
                *slot = Some(descriptor);
            }
        }
    }

    fn read_client(&mut self, number: usize) {
        let client = &mut self.attachments[number];
        let Some(input) = &client.input else { return };
        match rustix::io::read(input, &mut *self.pending) {
            Ok(0) | Err(Errno::IO | Errno::PIPE | Errno::CONNRESET) => {
                client.input = None;
                // A terminal has no input half to close.
                if self.stdin_once && !self.terminal {
                    self.input = None;
                }
            }
            Ok(count) => {
                self.pending_range = (0, count);
                self.write_input();
            }
            Err(_) => {}
        }
    }

    fn write_input(&mut self) {
        let (from, to) = self.pending_range;
        let Some(input) = &self.input else {
            // The container has closed its input.
            self.pending_range = (0, 0);
            return;
        };
        match rustix::io::write(input, &self.pending[from..to]) {
            Ok(count) => self.pending_range.0 = from + count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                self.input = None;
                self.pending_range = (0, 0);
            }
        }
    }
}

/// Some if the peer has closed; the value says whether there is still input to read.
fn hung_up(descriptor: &OwnedFd) -> Option<bool> {
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)).ok()?;
    let found = watched[0].revents();
    found
        .intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
        .then(|| found.contains(PollFlags::IN))
}

/// False: the client is gone, or has read nothing for too long.
fn write_all(descriptor: &OwnedFd, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(descriptor, rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut watched = [PollFd::new(descriptor, PollFlags::OUT)];
                if !poll(&mut watched, Some(&STALL_TIMEOUT)).is_ok_and(|ready| ready > 0) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}
