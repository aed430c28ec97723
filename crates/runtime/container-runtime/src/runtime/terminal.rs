//! The master side of a terminal, read and written without blocking.
//!
//! A terminal returns an error instead of an end of file once its last user has closed it; readers
//! treat that as the end.

use std::os::fd::OwnedFd;

use container_create::spec::TerminalSize;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe;

/// The two directions, and a descriptor for its size.
pub(crate) struct AsyncTerminal {
    /// tokio's pipe types read and write a terminal as well.
    reader: pipe::Receiver,
    writer: pipe::Sender,
    master: OwnedFd,
}

impl AsyncTerminal {
    pub(crate) fn new(master: OwnedFd) -> std::io::Result<Self> {
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok(Self {
            reader: pipe::Receiver::from_owned_fd_unchecked(master.try_clone()?)?,
            writer: pipe::Sender::from_owned_fd_unchecked(master.try_clone()?)?,
            master,
        })
    }
}

/// Changes a terminal's size.
pub(crate) struct Resizer(OwnedFd);

impl AsyncTerminal {
    pub(crate) fn split(self) -> (pipe::Receiver, pipe::Sender, Resizer) {
        (self.reader, self.writer, Resizer(self.master))
    }
}

impl Resizer {
    pub(crate) fn resize(&self, size: TerminalSize) {
        let number = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        let size = Winsize {
            ws_row: number(size.rows),
            ws_col: number(size.columns),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let _ = tcsetwinsize(&self.0, size);
    }
}
