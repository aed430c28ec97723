//! This program's own streams as channels.
//!
//! Rule: each is a thread, because reading from a terminal or writing to a slow pipe blocks;
//! channels are short, so that a slow side slows the other and nothing is buffered without limit.
//! The reading thread ends with the program: a read from a terminal cannot be cancelled.

use std::io::{self, Read, Write};
use tokio::sync::{mpsc, oneshot};

/// Chunks that may wait in each direction.
const QUEUE: usize = 16;
const PART: usize = 32 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStream {
    Output,
    Errors,
}

/// Input for the other side.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionInput {
    Bytes(Vec<u8>),
    End,
    /// Columns and rows.
    Size(u16, u16),
}

/// Standard input, to its end; sizes may be sent beside it.
pub(super) fn input(reads: bool) -> (mpsc::Sender<SessionInput>, mpsc::Receiver<SessionInput>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    if reads {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut source = io::stdin().lock();
            let mut part = vec![0; PART];
            loop {
                let input = match source.read(&mut part) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => SessionInput::End,
                    Ok(read) => SessionInput::Bytes(part[..read].to_vec()),
                };
                let is_over = input == SessionInput::End;
                if sender.blocking_send(input).is_err() || is_over {
                    return;
                }
            }
        });
    }
    (sender, receiver)
}

/// Standard output and errors; the second half resolves when all that was sent is written.
pub(super) fn output() -> (mpsc::Sender<(OutputStream, Vec<u8>)>, oneshot::Receiver<()>) {
    let (sender, mut receiver) = mpsc::channel::<(OutputStream, Vec<u8>)>(QUEUE);
    let (done, all_written) = oneshot::channel();
    std::thread::spawn(move || {
        while let Some((channel, bytes)) = receiver.blocking_recv() {
            let written = match channel {
                OutputStream::Output => {
                    let mut output = io::stdout().lock();
                    output.write_all(&bytes).and_then(|()| output.flush())
                }
                OutputStream::Errors => io::stderr().lock().write_all(&bytes),
            };
            if written.is_err() {
                return;
            }
        }
        let _ = done.send(());
    });
    (sender, all_written)
}
