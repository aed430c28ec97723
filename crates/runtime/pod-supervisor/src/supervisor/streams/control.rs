//! Messages from the supervisor to a container's thread, with descriptors.
//!
//! Rule: receiving does not allocate. One command per message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Reopen,
    /// Bits 0 to 2: which of input, output, error are sent with it.
    Attach {
        which: u8,
    },
    CloseInput,
}

pub(super) struct Control(OwnedFd);

impl Control {
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(ours), Self(theirs)))
    }

    pub(super) fn send(&self, command: Command, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let word = match command {
            Command::Reopen => [1, 0],
            Command::Attach { which } => [2, which],
            Command::CloseInput => [3, 0],
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors"));
        }
        sendmsg(&self.0, &[IoSlice::new(&word)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// None: the peer has closed.
    pub(super) fn receive(
        &self,
        descriptors: &mut [Option<OwnedFd>; 3],
    ) -> io::Result<Option<Command>> {
        let mut word = [0; 2];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut word)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                for (place, descriptor) in descriptors.iter_mut().zip(some) {
                    *place = Some(descriptor);
                }
            }
        }
        Ok(match (received.bytes, word) {
            (2, [1, _]) => Some(Command::Reopen),
            (2, [2, which]) => Some(Command::Attach { which }),
            (2, [3, _]) => Some(Command::CloseInput),
            _ => None,
        })
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
