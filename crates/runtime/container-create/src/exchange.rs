//! Messages from the creating process to the supervisor, over a socket that preserves message
//! boundaries.
//!
//! Rule: first the new process's PID (with its pidfd), then either "ready" (with a terminal's
//! master, if it has one) or an error. If the socket is closed after the start without an error,
//! the program runs. Both sides are the same build: messages never cross versions.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use prost::Message;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::error::{CreateError, CreateErrorKind};

const MAX_LENGTH: usize = 8 * 1024;
/// Namespaces and the processes that hold them.
const MAX_DESCRIPTORS: usize = 8;

#[derive(Clone, PartialEq, Message)]
struct ReportMessage {
    #[prost(uint32, tag = "1")]
    stage: u32,
    #[prost(uint32, tag = "2")]
    pid: u32,
    #[prost(enumeration = "CreateErrorKind", tag = "3")]
    kind: i32,
    #[prost(string, tag = "4")]
    message: String,
    #[prost(string, repeated, tag = "5")]
    names: Vec<String>,
}

const STARTED: u32 = 1;
const READY: u32 = 2;
const FAILED: u32 = 3;

#[derive(Debug)]
pub enum CreateReport {
    /// The process exists; the descriptor is its pidfd.
    Started {
        pid: u32,
        pidfd: OwnedFd,
    },
    /// It waits for the start. The descriptors are a terminal's master, or a pod's namespaces by
    /// name.
    Ready {
        names: Vec<String>,
        descriptors: Vec<OwnedFd>,
    },
    Failed(CreateError),
}

/// The socket's end in the helper and in the new process.
#[derive(Debug)]
pub struct CreateReporter {
    socket: OwnedFd,
}

/// A socket pair: the supervisor's end first.
pub fn pair() -> io::Result<(OwnedFd, CreateReporter)> {
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, CreateReporter { socket: theirs }))
}

impl CreateReporter {
    pub(crate) fn at(socket: OwnedFd) -> Self {
        Self { socket }
    }

    pub fn started(&self, pid: u32, pidfd: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&ReportMessage { stage: STARTED, pid, ..ReportMessage::default() }, &[pidfd])
    }

    pub fn ready(&self, names: Vec<String>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(&ReportMessage { stage: READY, names, ..ReportMessage::default() }, descriptors)
    }

    pub fn failed(&self, error: &CreateError) -> io::Result<()> {
        // The message may quote a long value of the specification.
        let message = error.message.chars().take(MAX_LENGTH / 8).collect();
        self.send(
            &ReportMessage {
                stage: FAILED,
                kind: error.kind as i32,
                message,
                ..ReportMessage::default()
            },
            &[],
        )
    }

    fn send(&self, wire: &ReportMessage, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = wire.encode_to_vec();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors"));
        }
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for permission to go on; false if the other side is gone.
    pub(crate) fn wait(&self) -> bool {
        let mut byte = [0; 1];
        loop {
            match rustix::net::recv(&self.socket, &mut byte, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok((_, count)) => return count == 1,
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for CreateReporter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a descriptor to the process that waits in [`take`].
pub(crate) fn send_descriptor(socket: impl AsFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a descriptor; none if the other side is gone.
pub(crate) fn take(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut some) => some.next(),
        _ => None,
    }))
}

/// The supervisor's permission to go on.
pub fn allow_start(socket: impl AsFd) -> io::Result<()> {
    rustix::net::send(socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// The next report; none at the end of the socket. An error of kind `WouldBlock` if there is none
/// yet.
pub fn receive(socket: impl AsFd) -> io::Result<Option<CreateReport>> {
    let mut bytes = [0; MAX_LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        outcome => outcome?,
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let wire = ReportMessage::decode(&bytes[..received.bytes.min(MAX_LENGTH)])
        .map_err(io::Error::other)?;
    let report = match wire.stage {
        STARTED => {
            let pidfd = descriptors.pop().ok_or_else(|| io::Error::other("no pidfd came"))?;
            CreateReport::Started { pid: wire.pid, pidfd }
        }
        READY => CreateReport::Ready { names: wire.names, descriptors },
        _ => {
            let kind = wire.kind();
            CreateReport::Failed(CreateError { kind, message: wire.message })
        }
    };
    Ok(Some(report))
}
