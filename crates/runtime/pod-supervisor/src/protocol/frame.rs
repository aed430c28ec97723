//! Frames on a unix socket: length, number of descriptors, message.
//!
//! Rule: a frame is taken whole or not at all; lengths and counts are limited, and descriptors
//! beyond a frame's count are closed. Never blocks: the caller waits until the socket is ready.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use prost::Message;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

#[cfg(test)]
mod tests;

/// The environment and mounts of the largest pod need far less.
pub const MAX_FRAME_SIZE: usize = 8 * 1024 * 1024;
pub const MAX_DESCRIPTORS: usize = 8;
const HEADER: usize = 8;
const CHUNK: usize = 16 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes; {MAX_FRAME_SIZE} is the most")]
    TooLong(usize),
    #[error("a frame with {0} descriptors; {MAX_DESCRIPTORS} is the most")]
    TooManyDescriptors(usize),
    #[error("a frame that counts {counted} descriptors and brought {brought}")]
    MissingDescriptors { counted: usize, brought: usize },
    #[error("a frame that cannot be read: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A message and the descriptors sent with it.
#[derive(Debug)]
pub struct ReceivedFrame<M> {
    pub message: M,
    pub descriptors: Vec<OwnedFd>,
}

/// Bytes and descriptors received so far.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl FrameReader {
    /// Reads once. `Ok(false)`: the peer has closed. `WouldBlock`: no data now.
    pub fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<bool, FrameError> {
        let mut chunk = [0; CHUNK];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(socket, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags)
            .map_err(io::Error::from)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if self.descriptors.len() > 2 * MAX_DESCRIPTORS {
            return Err(FrameError::TooManyDescriptors(self.descriptors.len()));
        }
        self.bytes.extend_from_slice(&chunk[..received.bytes]);
        Ok(received.bytes > 0)
    }

    /// The next whole frame, if there is one.
    pub fn take<M: Message + Default>(&mut self) -> Result<Option<ReceivedFrame<M>>, FrameError> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let counted = u32::from_le_bytes([e, f, g, h]) as usize;
        if length > MAX_FRAME_SIZE {
            return Err(FrameError::TooLong(length));
        }
        if counted > MAX_DESCRIPTORS {
            return Err(FrameError::TooManyDescriptors(counted));
        }
        let Some(body) = self.bytes.get(HEADER..HEADER + length) else { return Ok(None) };
        let message = M::decode(body)?;
        let brought = self.descriptors.len();
        if brought < counted {
            return Err(FrameError::MissingDescriptors { counted, brought });
        }
        let descriptors = self.descriptors.drain(..counted).collect();
        self.bytes.drain(..HEADER + length);
        // Do not keep the memory of one large frame.
        self.bytes.shrink_to(CHUNK);
        Ok(Some(ReceivedFrame { message, descriptors }))
    }
}

/// A frame being sent.
#[derive(Debug)]
pub struct OutgoingFrame {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
}

impl OutgoingFrame {
    pub fn new(message: &impl Message, descriptors: Vec<OwnedFd>) -> Result<Self, FrameError> {
        let length = message.encoded_len();
        if length > MAX_FRAME_SIZE {
            return Err(FrameError::TooLong(length));
        }
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(FrameError::TooManyDescriptors(descriptors.len()));
        }
        let mut bytes = Vec::with_capacity(HEADER + length);
        // Both fit: they were checked against the limits above.
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.extend_from_slice(&(descriptors.len() as u32).to_le_bytes());
        message.encode_raw(&mut bytes);
        Ok(Self { bytes, sent: 0, descriptors })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes once; true when the whole frame is sent. `WouldBlock`: no room now.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let borrowed: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(AsFd::as_fd).collect();
        if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(io::Error::other("descriptors do not fit into the message"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let rest = IoSlice::new(&self.bytes[self.sent..]);
        let sent = sendmsg(socket, &[rest], &mut control, flags)?;
        self.descriptors.clear();
        self.sent += sent;
        Ok(self.is_empty())
    }
}
