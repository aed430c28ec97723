//! One connection to systemd or to the bus: authentication, calls and their replies.
//!
//! Rule: a call waits for its own reply; signals that arrive meanwhile are queued. All reads
//! and writes of a call share one deadline.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::message::{DbusMessage, FIXED_HEADER_BYTES, MessageKind, MethodCall, whole_length};

/// If more signals are queued, the oldest are dropped.
const MAX_BUFFERED_SIGNALS: usize = 4096;

/// The longest line that is accepted during authentication.
const MAX_AUTH_LINE_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct DbusConnection {
    stream: UnixStream,
    deadline: Instant,
    serial: u32,
    pub(crate) signals: Vec<DbusMessage>,
}

impl DbusConnection {
    pub(crate) fn open(path: &Path, timeout: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        let deadline = Instant::now() + timeout;
        let mut connection = Self { stream, deadline, serial: 0, signals: Vec::new() };
        connection.authenticate()?;
        Ok(connection)
    }

    /// Restarts the timeout.
    pub(crate) fn set_deadline(&mut self, timeout: Duration) {
        self.deadline = Instant::now() + timeout;
    }

    /// EXTERNAL authentication: the kernel's peer credentials identify the client. `BEGIN` is sent
    /// together with `AUTH`, before the reply: if `BEGIN` and the first message arrive in one read,
    /// systemd does not process the message until more bytes arrive.
    fn authenticate(&mut self) -> io::Result<()> {
        let uid = rustix::process::getuid().as_raw().to_string();
        let hex_uid: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.send(format!("\0AUTH EXTERNAL {hex_uid}\r\nBEGIN\r\n").as_bytes())?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.receive(&mut byte)?;
            line.push(byte[0]);
            if line.len() > MAX_AUTH_LINE_BYTES {
                return Err(protocol_error("an authentication line that is too long"));
            }
        }
        if !line.starts_with(b"OK ") {
            let rejection = String::from_utf8_lossy(&line).trim_end().to_owned();
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, rejection));
        }
        Ok(())
    }

    /// Sends a call and waits for its reply, which may be an error.
    pub(crate) fn call(&mut self, call: &MethodCall<'_>) -> io::Result<DbusMessage> {
        self.serial += 1;
        let serial = self.serial;
        self.send(&call.bytes(serial))?;
        loop {
            let message = self.next_message()?;
            match message.kind {
                MessageKind::Reply | MessageKind::MethodError
                    if message.reply_to == Some(serial) =>
                {
                    return Ok(message);
                }
                MessageKind::Signal => self.buffer_signal(message),
                _ => {}
            }
        }
    }

    /// Waits for one more signal and queues it.
    pub(crate) fn wait_signal(&mut self) -> io::Result<()> {
        loop {
            let message = self.next_message()?;
            if message.kind == MessageKind::Signal {
                self.buffer_signal(message);
                return Ok(());
            }
        }
    }

    fn buffer_signal(&mut self, message: DbusMessage) {
        if self.signals.len() == MAX_BUFFERED_SIGNALS {
            self.signals.remove(0);
        }
        self.signals.push(message);
    }

    fn next_message(&mut self) -> io::Result<DbusMessage> {
        let mut fixed_header = [0; FIXED_HEADER_BYTES];
        self.receive(&mut fixed_header)?;
        let length = whole_length(&fixed_header).map_err(protocol_error)?;
        let mut bytes = fixed_header.to_vec();
        bytes.resize(length, 0);
        self.receive(&mut bytes[FIXED_HEADER_BYTES..])?;
        DbusMessage::read(&bytes).map_err(protocol_error)
    }

    fn remaining(&self) -> io::Result<Duration> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(timed_out()) } else { Ok(remaining) }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.set_write_timeout(Some(self.remaining()?))?;
        self.stream.write_all(bytes).map_err(map_timeout)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.stream.set_read_timeout(Some(self.remaining()?))?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(map_timeout(error)),
            }
        }
        Ok(())
    }
}

/// The kernel returns EAGAIN when a socket's timeout has passed.
fn map_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { timed_out() } else { error }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

fn protocol_error(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("received {what}"))
}
