//! A netlink socket: one request, its answers, a timeout.
//!
//! A socket belongs to the network namespace of the thread that created it, whatever that thread
//! does later; [`in_namespace`] makes use of that.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, sendto,
    socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::message::{NetlinkMessage, NetlinkWriter, ParseError, messages, u32_at};

/// The kernel answers at once; a longer wait means that something is broken.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const BUFFER: usize = 256 * 1024;
const DONE: u16 = 3;
const ERROR: u16 = 2;

#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel returned an error.
    #[error("{operation}: {cause}")]
    Refused { operation: String, cause: Errno },
    #[error("{operation}: {cause}")]
    Answer { operation: String, cause: ParseError },
    #[error("{operation}: it is not there")]
    Missing { operation: String },
    #[error("{operation}: {reason}")]
    Invalid { operation: String, reason: String },
}

impl NetlinkError {
    /// The kernel's error, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { cause, .. } => Some(*cause),
            Self::Missing { .. } => Some(Errno::NODEV),
            _ => None,
        }
    }
}

pub(crate) type Result<T, E = NetlinkError> = std::result::Result<T, E>;

/// A netlink socket.
#[derive(Debug)]
pub struct NetlinkSocket {
    descriptor: OwnedFd,
    sequence: u32,
}

impl NetlinkSocket {
    /// A socket for links, addresses and routes of this thread's network namespace.
    pub fn routes() -> Result<Self> {
        Self::open(None, "opening a route socket")
    }

    /// A socket for nftables of this thread's network namespace.
    pub fn firewall() -> Result<Self> {
        Self::open(Some(netlink::NETFILTER), "opening a firewall socket")
    }

    fn open(protocol: Option<rustix::net::Protocol>, operation: &str) -> Result<Self> {
        let refused = |cause| NetlinkError::Refused { operation: operation.to_owned(), cause };
        let descriptor =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
                .map_err(refused)?;
        bind(&descriptor, &SocketAddrNetlink::new(0, 0)).map_err(refused)?;
        set_socket_timeout(&descriptor, Timeout::Recv, Some(RESPONSE_TIMEOUT)).map_err(refused)?;
        Ok(Self { descriptor, sequence: 0 })
    }

    /// Sends one request and waits for its acknowledgement.
    pub(crate) fn request(&mut self, operation: &str, message: NetlinkWriter) -> Result<()> {
        self.request_payloads(operation, message).map(drop)
    }

    /// Sends one request and returns the payloads of its answers.
    pub(crate) fn request_payloads(
        &mut self,
        operation: &str,
        message: NetlinkWriter,
    ) -> Result<Vec<(u16, Vec<u8>)>> {
        self.sequence += 1;
        let sequence = self.sequence;
        self.send(operation, &message.finish(sequence))?;
        let mut answers = Vec::new();
        loop {
            let bytes = self.receive(operation)?;
            for message in read(operation, &bytes)? {
                if message.sequence != sequence {
                    continue;
                }
                match message.kind {
                    DONE => return Ok(answers),
                    ERROR => return check_error(operation, &message).map(|()| answers),
                    kind => answers.push((kind, message.payload.to_vec())),
                }
            }
        }
    }

    /// Sends messages that are applied together or not at all, and waits for the acknowledgement of
    /// the last.
    pub(crate) fn transaction(&mut self, operation: &str, parts: Vec<NetlinkWriter>) -> Result<()> {
        let mut bytes = Vec::new();
        let first = self.sequence + 1;
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        for part in parts {
            self.sequence += 1;
            bytes.extend(part.finish(self.sequence));
        }
        let last = self.sequence;
        debug_assert_eq!(last - first + 1, count);
        self.send(operation, &bytes)?;
        // Only the last message but one asks for an acknowledgement; errors come for any.
        loop {
            let received = self.receive(operation)?;
            for message in read(operation, &received)? {
                if message.kind == ERROR && (first..=last).contains(&message.sequence) {
                    return check_error(operation, &message);
                }
            }
        }
    }

    fn send(&self, operation: &str, bytes: &[u8]) -> Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        let sent = sendto(&self.descriptor, bytes, SendFlags::empty(), &kernel);
        match sent {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(_) => Err(NetlinkError::Refused {
                operation: operation.to_owned(),
                cause: Errno::MSGSIZE,
            }),
            Err(cause) => Err(NetlinkError::Refused { operation: operation.to_owned(), cause }),
        }
    }

    fn receive(&self, operation: &str) -> Result<Vec<u8>> {
        let mut buffer = vec![0; BUFFER];
        loop {
            match recv(&self.descriptor, buffer.as_mut_slice(), RecvFlags::empty()) {
                Ok((received, _)) => {
                    buffer.truncate(received);
                    return Ok(buffer);
                }
                Err(Errno::INTR) => {}
                Err(cause) => {
                    return Err(NetlinkError::Refused { operation: operation.to_owned(), cause });
                }
            }
        }
    }
}

fn read<'a>(operation: &str, bytes: &'a [u8]) -> Result<Vec<NetlinkMessage<'a>>> {
    messages(bytes).map_err(|cause| NetlinkError::Answer { operation: operation.to_owned(), cause })
}

/// An error message carries a negative errno, or zero for success.
fn check_error(operation: &str, message: &NetlinkMessage<'_>) -> Result<()> {
    let number = u32_at(message.payload, 0)
        .map_err(|cause| NetlinkError::Answer { operation: operation.to_owned(), cause })?;
    match number.cast_signed() {
        0 => Ok(()),
        number => {
            let cause = Errno::from_raw_os_error(number.saturating_neg());
            Err(NetlinkError::Refused { operation: operation.to_owned(), cause })
        }
    }
}

/// Calls a function in another network namespace, on a thread of its own that ends with it.
pub fn in_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let operation = "entering a network namespace";
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, move || {
                move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).map_err(
                    |cause| NetlinkError::Refused { operation: operation.to_owned(), cause },
                )?;
                work()
            });
        let thread = thread.map_err(|error| NetlinkError::Invalid {
            operation: operation.to_owned(),
            reason: format!("no thread: {error}"),
        })?;
        thread.join().unwrap_or_else(|_| {
            Err(NetlinkError::Invalid {
                operation: operation.to_owned(),
                reason: "the thread panicked".to_owned(),
            })
        })
    })
}
