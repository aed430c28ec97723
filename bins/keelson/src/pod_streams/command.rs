//! A remote command or an attached container on a link, with this program's own streams at this
//! end.
//!
//! Rule: nothing is buffered without limit: each direction waits for its slower side. The end of
//! this program's input closes the command's input and nothing else. A terminal at this end is raw
//! during the session and restored however it ends; its size is passed on.

use super::local_io::{self, OutputStream, SessionInput};
use super::raw_terminal::{self, RawTerminal};
use super::session_end::SessionEnd;
use super::spdy_link::{self, COMMAND_PROTOCOL, SpdyReader, SpdyWriter};
use super::stream::PodStream;
use crate::terminal;
use anyhow::{Context as _, Result};
use ports::local_runtime::LocalCommand;
use std::time::Duration;
use stream_frames::spdy::SpdyFrame;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

const ERROR: u32 = 1;
const STDIN: u32 = 3;
const STDOUT: u32 = 5;
const STDERR: u32 = 7;
const RESIZE: u32 = 9;
/// Upper limit of a status.
const MAX_STATUS_BYTES: usize = 64 * 1024;
/// After the status: the runtime sends its remaining output at once.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Which streams the command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionStreams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

impl SessionStreams {
    /// The request to the agent; no arguments to attach to a container.
    pub(crate) fn command(self, arguments: Vec<String>) -> LocalCommand {
        let Self { stdin, stdout, stderr, tty } = self;
        LocalCommand { command: arguments, stdin, stdout, stderr, tty }
    }
}

/// A session that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionResult {
    pub(crate) session_end: SessionEnd,
    /// Whether any output came.
    pub(crate) had_output: bool,
}

/// Runs the session to its end.
pub(crate) async fn join(
    stream: PodStream,
    session_streams: SessionStreams,
) -> Result<SessionResult> {
    let (reader, mut writer) = spdy_link::connect(stream, COMMAND_PROTOCOL).await?;
    open(&mut writer, session_streams).await?;
    let raw =
        if session_streams.tty && session_streams.stdin { RawTerminal::enter() } else { None };
    if session_streams.tty && session_streams.stdin && raw.is_none() {
        terminal::print_error("warning: standard input is no terminal; it is passed on as it is");
    }
    let (sizes, input) = local_io::input(session_streams.stdin);
    let (output, all_written) = local_io::output();
    let (urgent_sender, urgent) = mpsc::channel(4);
    let mut had_output = false;
    let session_end = tokio::select! {
        session_end = read(reader, &output, &mut had_output, &urgent_sender) => session_end?,
        never = write(writer, input, urgent) => match never {},
        never = follow_size(session_streams.tty, &sizes) => match never {},
        why = wait_for_signal() => SessionEnd::Failed(why?),
    };
    drop(output);
    // If standard output is closed the writing thread ends early, and there is nothing to wait for.
    let written = all_written.await.is_ok();
    drop(raw);
    let session_end = if written { session_end } else { SessionEnd::OutputClosed };
    Ok(SessionResult { session_end, had_output })
}

async fn open(writer: &mut SpdyWriter, session_streams: SessionStreams) -> Result<()> {
    let streams = [
        (ERROR, "error", true),
        (STDIN, "stdin", session_streams.stdin),
        (STDOUT, "stdout", session_streams.stdout),
        (STDERR, "stderr", session_streams.stderr),
        (RESIZE, "resize", session_streams.tty),
    ];
    for (stream, kind, _) in streams.into_iter().filter(|(_, _, wanted)| *wanted) {
        writer.open(stream, &[("streamtype", kind)]).await?;
    }
    Ok(())
}

/// Passes output on until the status comes.
async fn read(
    mut reader: SpdyReader,
    output: &mpsc::Sender<(OutputStream, Vec<u8>)>,
    had_output: &mut bool,
    urgent: &mpsc::Sender<SpdyFrame>,
) -> Result<SessionEnd> {
    let mut status = Vec::new();
    let mut has_ended = false;
    loop {
        let frame = if has_ended {
            let last = tokio::time::timeout(DRAIN_TIMEOUT, reader.next()).await;
            last.unwrap_or(Ok(None))?
        } else {
            reader.next().await?
        };
        match frame {
            Some(SpdyFrame::Data { stream: ERROR, bytes, end }) => {
                let room = MAX_STATUS_BYTES - status.len();
                status.extend_from_slice(&bytes[..bytes.len().min(room)]);
                has_ended |= end;
            }
            Some(SpdyFrame::Data { stream, bytes, .. }) if !bytes.is_empty() => {
                let channel =
                    if stream == STDERR { OutputStream::Errors } else { OutputStream::Output };
                *had_output = true;
                if output.send((channel, bytes)).await.is_err() {
                    return Ok(SessionEnd::OutputClosed);
                }
            }
            Some(SpdyFrame::Reset { stream: ERROR, .. }) => has_ended = true,
            Some(SpdyFrame::Ping { id }) => {
                let _ = urgent.send(SpdyFrame::Ping { id }).await;
            }
            None | Some(SpdyFrame::GoAway { .. }) if has_ended || !status.is_empty() => {
                return Ok(SessionEnd::of_status(&status));
            }
            None => {
                let why = "the runtime closed the stream before the command's end was known";
                return Ok(SessionEnd::Failed(why.to_owned()));
            }
            Some(_) => {}
        }
    }
}

/// Passes input on; the reading side detects the end.
async fn write(
    mut writer: SpdyWriter,
    mut input: mpsc::Receiver<SessionInput>,
    mut urgent: mpsc::Receiver<SpdyFrame>,
) -> std::convert::Infallible {
    loop {
        let frame = tokio::select! {
            Some(frame) = urgent.recv() => frame,
            Some(input) = input.recv() => match input {
                SessionInput::Bytes(bytes) => SpdyFrame::Data { stream: STDIN, bytes, end: false },
                SessionInput::End => SpdyFrame::Data { stream: STDIN, bytes: Vec::new(), end: true },
                SessionInput::Size(columns, rows) => {
                    let text = format!("{{\"Width\":{columns},\"Height\":{rows}}}\n");
                    SpdyFrame::Data { stream: RESIZE, bytes: text.into_bytes(), end: false }
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
async fn follow_size(
    has_terminal: bool,
    sizes: &mpsc::Sender<SessionInput>,
) -> std::convert::Infallible {
    let changes = has_terminal.then(|| signal(SignalKind::window_change()));
    let Some(Ok(mut changes)) = changes else { return std::future::pending().await };
    loop {
        if let Some((columns, rows)) = raw_terminal::size() {
            let _ = sizes.send(SessionInput::Size(columns, rows)).await;
        }
        changes.recv().await;
    }
}

/// A signal that would end this program must not leave a raw terminal behind.
async fn wait_for_signal() -> Result<String> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok("ended by a signal".to_owned())
}
