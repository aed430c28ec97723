//! A remote command over SPDY: one stream for each channel, identified by a header.
//!
//! Rule: the command starts when every stream that it needs is open; a client that opens them too
//! slowly, or sends too much before, is disconnected. From then on a client is read only as fast as
//! its command reads its input.

use std::collections::HashMap;
use std::time::Duration;

use stream_frames::spdy::{Headers, SpdyDecoder, SpdyEncoder, SpdyFrame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::connection::{SocketReader, SocketWriter};
use super::session::{
    ClientInput, CommandSession, CommandStreams, Inbox, MAX_BUFFERED_INPUT, Output, OutputChannel,
    QUEUE, SessionInbox, SessionOutbox, SessionTasks, closed_and_idle,
};
use super::upgrade::UpgradedSocket;
use super::websocket_transport::{InputOutcome, discard};

#[cfg(test)]
mod tests;

/// upstream: kubelet's stream creation timeout.
const OPENING: Duration = Duration::from_secs(30);
const REFUSED: u32 = 3;
/// The cost of a queued frame beside its bytes.
const FRAME: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ChannelRole {
    Stdin,
    Stdout,
    Stderr,
    Error,
    Resize,
}

fn role(headers: &Headers) -> Option<ChannelRole> {
    Some(match headers.get("streamtype")? {
        "stdin" => ChannelRole::Stdin,
        "stdout" => ChannelRole::Stdout,
        "stderr" => ChannelRole::Stderr,
        "error" => ChannelRole::Error,
        "resize" => ChannelRole::Resize,
        _ => return None,
    })
}

/// Messages from the reading to the writing side.
enum UrgentFrame {
    Frame(SpdyFrame),
}

struct Opened {
    reader: SocketReader,
    writer: SocketWriter,
    decoder: SpdyDecoder,
    encoder: SpdyEncoder,
    roles: HashMap<ChannelRole, u32>,
    /// Frames that came before everything was open.
    early: Vec<SpdyFrame>,
}

/// The streams that the client opened, and its frames that came before everything was open.
struct AcceptedStreams {
    roles: HashMap<ChannelRole, u32>,
    early_frames: Vec<SpdyFrame>,
}

/// The streams to write to, in this version of the protocol.
struct SpdySession {
    roles: HashMap<ChannelRole, u32>,
    version: u8,
}

/// Waits for the streams of the command.
pub(super) async fn begin(
    socket: UpgradedSocket,
    protocol: &str,
    has: CommandStreams,
) -> Result<CommandSession, String> {
    let version = match protocol {
        "v4.channel.k8s.io" => 4,
        "v3.channel.k8s.io" => 3,
        "v2.channel.k8s.io" => 2,
        _ => 1,
    };
    let opening = open(socket, has, version);
    let opened = tokio::time::timeout(OPENING, opening)
        .await
        .map_err(|_| "timed out waiting for client to create streams".to_owned())??;
    let (inbox, input, gone) = Inbox::new();
    let (output, output_receiver) = mpsc::channel(QUEUE);
    let (urgent_sender, urgent) = mpsc::channel(QUEUE);
    let Opened { reader, writer, decoder, encoder, roles, early } = opened;
    let streams = AcceptedStreams { roles: roles.clone(), early_frames: early };
    let inbox = SessionInbox { inbox, urgent: urgent_sender };
    let outbox = SessionOutbox { output: output_receiver, urgent };
    let reading = tokio::spawn(read(reader, decoder, streams, inbox));
    let writing = tokio::spawn(write(writer, encoder, SpdySession { roles, version }, outbox));
    Ok(CommandSession { input, output, gone, tasks: SessionTasks { reading, writing } })
}

async fn open(socket: UpgradedSocket, has: CommandStreams, version: u8) -> Result<Opened, String> {
    let mut expected = 1 + [has.stdin, has.stdout, has.stderr].iter().filter(|has| **has).count();
    if has.tty && version >= 3 {
        expected += 1;
    }
    let (mut reader, mut writer) = socket.stream.into_split();
    let (mut decoder, mut encoder) = (SpdyDecoder::default(), SpdyEncoder::default());
    let (mut roles, mut early, mut waiting) = (HashMap::new(), Vec::new(), 0);
    let mut part = vec![0; 16 * 1024];
    decoder.push(&socket.early);
    loop {
        let mut answer = Vec::new();
        while let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
            let reply = match frame {
                SpdyFrame::Open { stream, headers, .. } => match role(&headers) {
                    Some(role) if !roles.contains_key(&role) => {
                        roles.insert(role, stream);
                        SpdyFrame::Accept { stream, headers: Headers::default(), end: false }
                    }
                    _ => SpdyFrame::Reset { stream, status: REFUSED },
                },
                SpdyFrame::Ping { id } => SpdyFrame::Ping { id },
                SpdyFrame::GoAway { .. } => return Err("the client went away".to_owned()),
                SpdyFrame::Data { ref bytes, .. } => {
                    waiting += FRAME + bytes.len();
                    early.push(frame);
                    continue;
                }
                SpdyFrame::Reset { .. } => {
                    waiting += FRAME;
                    early.push(frame);
                    continue;
                }
                _ => continue,
            };
            encoder.write(&reply, &mut answer).map_err(|error| error.to_string())?;
        }
        if waiting > MAX_BUFFERED_INPUT {
            return Err(format!(
                "more than {MAX_BUFFERED_INPUT} bytes came before all streams were open"
            ));
        }
        writer.write_all(&answer).await.map_err(|error| error.to_string())?;
        if roles.len() >= expected {
            return Ok(Opened { reader, writer, decoder, encoder, roles, early });
        }
        let read = reader.read(&mut part).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the client went away".to_owned());
        }
        decoder.push(&part[..read]);
    }
}

async fn read(
    mut reader: SocketReader,
    mut decoder: SpdyDecoder,
    AcceptedStreams { roles, early_frames }: AcceptedStreams,
    queues: SessionInbox<UrgentFrame>,
) {
    let by_stream: HashMap<u32, ChannelRole> =
        roles.into_iter().map(|(role, id)| (id, role)).collect();
    let mut part = vec![0; 32 * 1024];
    let mut early = early_frames.into_iter();
    'wanted: loop {
        loop {
            let frame = match early.next().map_or_else(|| decoder.next_frame(), |one| Ok(Some(one)))
            {
                Ok(None) => break,
                Ok(Some(frame)) => frame,
                Err(error) => {
                    tracing::debug!(%error, "a SPDY client");
                    return;
                }
            };
            let taken = tokio::select! {
                biased;
                taken = take(frame, &by_stream, &queues) => taken,
                () = closed_and_idle(&reader) => InputOutcome::ClientLeft,
            };
            match taken {
                InputOutcome::Accepted => {}
                InputOutcome::ClientLeft => return,
                InputOutcome::CommandOver => break 'wanted,
            }
        }
        let read = tokio::select! {
            read = reader.read(&mut part) => read,
            () = queues.inbox.closed() => break 'wanted,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => decoder.push(&part[..read]),
        }
    }
    drop(queues.inbox);
    discard(reader, part).await;
}

async fn take(
    frame: SpdyFrame,
    roles: &HashMap<u32, ChannelRole>,
    SessionInbox { inbox, urgent }: &SessionInbox<UrgentFrame>,
) -> InputOutcome {
    let taken = match frame {
        SpdyFrame::Data { stream, bytes, end } => match roles.get(&stream) {
            Some(ChannelRole::Stdin) => {
                inbox.stdin(&bytes).await && (!end || inbox.send(ClientInput::StdinEnd).await)
            }
            Some(ChannelRole::Resize) => inbox.resize(&bytes).await,
            _ => true,
        },
        SpdyFrame::Ping { id } => {
            urgent.send(UrgentFrame::Frame(SpdyFrame::Ping { id })).await.is_ok()
        }
        SpdyFrame::Open { stream, .. } => {
            let reset = SpdyFrame::Reset { stream, status: REFUSED };
            urgent.send(UrgentFrame::Frame(reset)).await.is_ok()
        }
        SpdyFrame::Reset { stream, .. } if roles.get(&stream) == Some(&ChannelRole::Stdin) => {
            inbox.send(ClientInput::StdinEnd).await
        }
        SpdyFrame::GoAway { .. } => return InputOutcome::ClientLeft,
        _ => true,
    };
    InputOutcome::from_command(taken)
}

async fn write(
    mut writer: SocketWriter,
    mut encoder: SpdyEncoder,
    SpdySession { roles, version }: SpdySession,
    SessionOutbox { mut output, mut urgent }: SessionOutbox<UrgentFrame>,
) {
    loop {
        let mut frames = Vec::new();
        let over = tokio::select! {
            next_output = output.recv() => match next_output {
                Some(Output::Data(channel, bytes)) => {
                    let role = match channel {
                        OutputChannel::Stdout => ChannelRole::Stdout,
                        OutputChannel::Stderr => ChannelRole::Stderr,
                    };
                    if let Some(stream) = roles.get(&role) {
                        frames.push(SpdyFrame::Data { stream: *stream, bytes: bytes.to_vec(), end: false });
                    }
                    false
                }
                Some(Output::Status(ending)) => {
                    let text = if version >= 4 {
                        Some(ending.status_object())
                    } else {
                        ending.plain()
                    };
                    for role in [ChannelRole::Stdout, ChannelRole::Stderr] {
                        if let Some(stream) = roles.get(&role) {
                            frames.push(SpdyFrame::Data { stream: *stream, bytes: Vec::new(), end: true });
                        }
                    }
                    if let Some(stream) = roles.get(&ChannelRole::Error) {
                        let bytes = text.unwrap_or_default().into_bytes();
                        frames.push(SpdyFrame::Data { stream: *stream, bytes, end: true });
                    }
                    frames.push(SpdyFrame::GoAway { last: 0, status: 0 });
                    true
                }
                None => true,
            },
            Some(UrgentFrame::Frame(frame)) = urgent.recv() => {
                frames.push(frame);
                false
            }
        };
        let mut bytes = Vec::new();
        let written = frames.iter().try_for_each(|frame| encoder.write(frame, &mut bytes));
        if written.is_err() || writer.write_all(&bytes).await.is_err() {
            return;
        }
        if over {
            let _ = writer.shutdown().await;
            return;
        }
    }
}
