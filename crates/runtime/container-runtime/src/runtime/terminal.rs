//! The master side of a terminal, read and written without blocking.
//!
//! A terminal whose last user has gone answers with an error instead of an end; that is its end.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use container_create::spec::TerminalSize;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, ReadBuf};

#[derive(Debug)]
pub(crate) struct Terminal {
    master: Arc<AsyncFd<OwnedFd>>,
}

impl Terminal {
    pub(crate) fn new(master: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok(Self { master: Arc::new(AsyncFd::new(master)?) })
    }

    pub(crate) fn resize(&self, size: TerminalSize) {
        let number = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        let size = Winsize {
            ws_row: number(size.rows),
            ws_col: number(size.columns),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let _ = tcsetwinsize(self.master.get_ref(), size);
    }

    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.master.writable().await?;
            let wrote = ready.try_io(|master| Ok(rustix::io::write(master.get_ref(), bytes)?));
            match wrote {
                Ok(Ok(count)) => bytes = &bytes[count..],
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn reader(&self) -> TerminalReader {
        TerminalReader(Arc::clone(&self.master))
    }
}

#[derive(Debug)]
pub(crate) struct TerminalReader(Arc<AsyncFd<OwnedFd>>);

impl AsyncRead for TerminalReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let space = buffer.initialize_unfilled();
            let read = ready.try_io(|master| {
                match rustix::io::read(master.get_ref(), &mut *space) {
                    // Nobody has the other side any more.
                    Err(rustix::io::Errno::IO) => Ok(0),
                    other => Ok(other?),
                }
            });
            match read {
                Ok(outcome) => {
                    buffer.advance(outcome?);
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}
