//! A remote command or an attached container on a link, with this program's own streams at this
//! end.
//!
//! Rule: nothing is buffered without limit: each direction waits for its slower side. The end of
//! this program's input closes the command's input and nothing else. A terminal at this end is raw
//! during the session and restored however it ends; its size is passed on.

use super::ending::Ending;
use super::local_io::{self, Channel, Input};
use super::raw_terminal::{self, RawTerminal};
use super::spdy_link::{self, COMMAND_PROTOCOL, Reader, Writer};
use super::stream::Stream;
use crate::terminal;
use anyhow::{Context as _, Result};
use ports::local_runtime::LocalCommand;
use std::time::Duration;
use stream_frames::spdy::Frame;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

const ERROR: u32 = 1;
const STDIN: u32 = 3;
const STDOUT: u32 = 5;
const STDERR: u32 = 7;
const RESIZE: u32 = 9;
/// Upper limit of a status.
const LONGEST_STATUS: usize = 64 * 1024;
/// After the status: the runtime sends its remaining output at once.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Which streams the command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Has {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

impl Has {
    /// The request to the agent; no arguments to attach to a container.
    pub(crate) fn command(self, words: Vec<String>) -> LocalCommand {
        let Self { stdin, stdout, stderr, tty } = self;
        LocalCommand { command: words, stdin, stdout, stderr, tty }
    }
}

/// A session that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) ending: Ending,
    /// Whether any output came.
    pub(crate) had_output: bool,
}

/// Runs the session to its end.
pub(crate) async fn join(stream: Stream, has: Has) -> Result<Joined> {
    let (reader, mut writer) = spdy_link::connect(stream, COMMAND_PROTOCOL).await?;
    open(&mut writer, has).await?;
    let raw = if has.tty && has.stdin { RawTerminal::enter() } else { None };
    if has.tty && has.stdin && raw.is_none() {
        terminal::print_error("warning: standard input is no terminal; it is passed on as it is");
    }
    let (sizes, input) = local_io::input(has.stdin);
    let (output, all_written) = local_io::output();
    let (urgent_sender, urgent) = mpsc::channel(4);
    let mut had_output = false;
    let ending = tokio::select! {
        ending = read(reader, (&output, &mut had_output), &urgent_sender) => ending?,
        never = write(writer, input, urgent) => match never {},
        never = follow_size(has.tty, &sizes) => match never {},
        why = told_to_end() => Ending::Failed(why?),
    };
    drop(output);
    // If standard output is closed the writing thread ends early, and there is nothing to wait for.
    let written = all_written.await.is_ok();
    drop(raw);
    let ending = if written { ending } else { Ending::NobodyReads };
    Ok(Joined { ending, had_output })
}

async fn open(writer: &mut Writer, has: Has) -> Result<()> {
    let streams = [
        (ERROR, "error", true),
        (STDIN, "stdin", has.stdin),
        (STDOUT, "stdout", has.stdout),
        (STDERR, "stderr", has.stderr),
        (RESIZE, "resize", has.tty),
    ];
    for (stream, kind, _) in streams.into_iter().filter(|(_, _, wanted)| *wanted) {
        writer.open(stream, &[("streamtype", kind)]).await?;
    }
    Ok(())
}

/// Passes output on until the status comes.
async fn read(
    mut reader: Reader,
    (output, had_output): (&mpsc::Sender<(Channel, Vec<u8>)>, &mut bool),
    urgent: &mpsc::Sender<Frame>,
) -> Result<Ending> {
    let mut status = Vec::new();
    let mut is_told = false;
    loop {
        let frame = if is_told {
            let last = tokio::time::timeout(LAST_WORDS, reader.next()).await;
            last.unwrap_or(Ok(None))?
        } else {
            reader.next().await?
        };
        match frame {
            Some(Frame::Data { stream: ERROR, bytes, end }) => {
                let room = LONGEST_STATUS - status.len();
                status.extend_from_slice(&bytes[..bytes.len().min(room)]);
                is_told |= end;
            }
            Some(Frame::Data { stream, bytes, .. }) if !bytes.is_empty() => {
                let channel = if stream == STDERR { Channel::Errors } else { Channel::Output };
                *had_output = true;
                if output.send((channel, bytes)).await.is_err() {
                    return Ok(Ending::NobodyReads);
                }
            }
            Some(Frame::Reset { stream: ERROR, .. }) => is_told = true,
            Some(Frame::Ping { id }) => {
                let _ = urgent.send(Frame::Ping { id }).await;
            }
            None | Some(Frame::GoAway { .. }) if is_told || !status.is_empty() => {
                return Ok(Ending::of_status(&status));
            }
            None => {
                let why = "the runtime closed the stream before the command's end was known";
                return Ok(Ending::Failed(why.to_owned()));
            }
            Some(_) => {}
        }
    }
}

/// Passes input on; the reading side detects the end.
async fn write(
    mut writer: Writer,
    mut input: mpsc::Receiver<Input>,
    mut urgent: mpsc::Receiver<Frame>,
) -> std::convert::Infallible {
    loop {
        let frame = tokio::select! {
            Some(frame) = urgent.recv() => frame,
            Some(input) = input.recv() => match input {
                Input::Bytes(bytes) => Frame::Data { stream: STDIN, bytes, end: false },
                Input::End => Frame::Data { stream: STDIN, bytes: Vec::new(), end: true },
                Input::Size(columns, rows) => {
                    let text = format!("{{\"Width\":{columns},\"Height\":{rows}}}\n");
                    Frame::Data { stream: RESIZE, bytes: text.into_bytes(), end: false }
                }
            },
            else => std::future::pending().await,
        };
        if writer.send(&frame).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Sends the size of this terminal, now and whenever it changes.
async fn follow_size(has_terminal: bool, sizes: &mpsc::Sender<Input>) -> std::convert::Infallible {
    let changes = has_terminal.then(|| signal(SignalKind::window_change()));
    let Some(Ok(mut changes)) = changes else { return std::future::pending().await };
    loop {
        if let Some((columns, rows)) = raw_terminal::size() {
            let _ = sizes.send(Input::Size(columns, rows)).await;
        }
        changes.recv().await;
    }
}

/// A signal that would end this program must not leave a raw terminal behind.
async fn told_to_end() -> Result<String> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok("ended by a signal".to_owned())
}
