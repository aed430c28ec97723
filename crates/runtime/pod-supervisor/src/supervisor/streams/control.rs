//! Commands from the supervisor's main thread to a container's stream thread, with descriptors.
//!
//! Rule: receiving does not allocate. One command per message: its number and its argument.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamCommand {
    Reopen,
    /// Bits 0 to 2: which of stdin, stdout and stderr are sent with it.
    Attach {
        which: u8,
    },
    CloseInput,
}

pub(super) struct ControlSocket(OwnedFd);

impl ControlSocket {
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(ours), Self(theirs)))
    }

    pub(super) fn send(
        &self,
        command: StreamCommand,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let message = match command {
            StreamCommand::Reopen => [1, 0],
            StreamCommand::Attach { which } => [2, which],
            StreamCommand::CloseInput => [3, 0],
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors"));
        }
        sendmsg(&self.0, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// `None` if the peer has closed. Received descriptors are stored in `descriptors`.
    pub(super) fn receive(
        &self,
        descriptors: &mut [Option<OwnedFd>; 3],
    ) -> io::Result<Option<StreamCommand>> {
        let mut bytes = [0; 2];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for (slot, descriptor) in descriptors.iter_mut().zip(fds) {
                    *slot = Some(descriptor);
                }
            }
        }
        Ok(match (received.bytes, bytes) {
            (2, [1, _]) => Some(StreamCommand::Reopen),
            (2, [2, which]) => Some(StreamCommand::Attach { which }),
            (2, [3, _]) => Some(StreamCommand::CloseInput),
            _ => None,
        })
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
