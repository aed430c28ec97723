//! A remote command over SPDY: one stream for each channel, identified by a header.
//!
//! Rule: the command starts when every stream that it needs is open; a client that opens them too
//! slowly, or sends too much before, is disconnected. From then on a client is read only as fast as
//! its command reads its input.

use std::collections::HashMap;
use std::time::Duration;

use stream_frames::spdy::{Decoder, Encoder, Frame, Headers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::connection::{Reading, Writing};
use super::session::{Channel, HELD, Has, Inbox, Input, Output, QUEUE, Session, Tasks, hung_up};
use super::upgrade::Socket;
use super::websocket_transport::{Taken, discard};

#[cfg(test)]
mod tests;

/// upstream: kubelet's stream creation timeout.
const OPENING: Duration = Duration::from_secs(30);
const REFUSED: u32 = 3;
/// The cost of a queued frame beside its bytes.
const FRAME: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Stdin,
    Stdout,
    Stderr,
    Error,
    Resize,
}

fn role(headers: &Headers) -> Option<Role> {
    Some(match headers.get("streamtype")? {
        "stdin" => Role::Stdin,
        "stdout" => Role::Stdout,
        "stderr" => Role::Stderr,
        "error" => Role::Error,
        "resize" => Role::Resize,
        _ => return None,
    })
}

/// Messages from the reading to the writing side.
enum Urgent {
    Frame(Frame),
}

struct Opened {
    reader: Reading,
    writer: Writing,
    decoder: Decoder,
    encoder: Encoder,
    roles: HashMap<Role, u32>,
    /// Frames that came before everything was open.
    early: Vec<Frame>,
}

/// Waits for the streams of the command.
pub(super) async fn begin(socket: Socket, protocol: &str, has: Has) -> Result<Session, String> {
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
    let streams = roles.clone();
    let reading = tokio::spawn(read(reader, decoder, (streams, early), (inbox, urgent_sender)));
    let writing = tokio::spawn(write(writer, encoder, (roles, version), (output_receiver, urgent)));
    Ok(Session { input, output, gone, tasks: Tasks { reading, writing } })
}

async fn open(socket: Socket, has: Has, version: u8) -> Result<Opened, String> {
    let mut expected = 1 + [has.stdin, has.stdout, has.stderr].iter().filter(|has| **has).count();
    if has.tty && version >= 3 {
        expected += 1;
    }
    let (mut reader, mut writer) = socket.stream.into_split();
    let (mut decoder, mut encoder) = (Decoder::default(), Encoder::default());
    let (mut roles, mut early, mut waiting) = (HashMap::new(), Vec::new(), 0);
    let mut part = vec![0; 16 * 1024];
    decoder.push(&socket.early);
    loop {
        let mut answer = Vec::new();
        while let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
            let reply = match frame {
                Frame::Open { stream, headers, .. } => match role(&headers) {
                    Some(role) if !roles.contains_key(&role) => {
                        roles.insert(role, stream);
                        Frame::Accept { stream, headers: Headers::default(), end: false }
                    }
                    _ => Frame::Reset { stream, status: REFUSED },
                },
                Frame::Ping { id } => Frame::Ping { id },
                Frame::GoAway { .. } => return Err("the client went away".to_owned()),
                Frame::Data { ref bytes, .. } => {
                    waiting += FRAME + bytes.len();
                    early.push(frame);
                    continue;
                }
                Frame::Reset { .. } => {
                    waiting += FRAME;
                    early.push(frame);
                    continue;
                }
                _ => continue,
            };
            encoder.write(&reply, &mut answer).map_err(|error| error.to_string())?;
        }
        if waiting > HELD {
            return Err(format!("more than {HELD} bytes came before all streams were open"));
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
    mut reader: Reading,
    mut decoder: Decoder,
    (roles, early): (HashMap<Role, u32>, Vec<Frame>),
    (inbox, urgent): (Inbox, mpsc::Sender<Urgent>),
) {
    let by_stream: HashMap<u32, Role> = roles.into_iter().map(|(role, id)| (id, role)).collect();
    let mut part = vec![0; 32 * 1024];
    let mut early = early.into_iter();
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
                taken = take(frame, &by_stream, (&inbox, &urgent)) => taken,
                () = hung_up(&reader) => Taken::Left,
            };
            match taken {
                Taken::Yes => {}
                Taken::Left => return,
                Taken::Over => break 'wanted,
            }
        }
        let read = tokio::select! {
            read = reader.read(&mut part) => read,
            () = inbox.closed() => break 'wanted,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => decoder.push(&part[..read]),
        }
    }
    drop(inbox);
    discard(reader, part).await;
}

async fn take(
    frame: Frame,
    roles: &HashMap<u32, Role>,
    (inbox, urgent): (&Inbox, &mpsc::Sender<Urgent>),
) -> Taken {
    let taken = match frame {
        Frame::Data { stream, bytes, end } => match roles.get(&stream) {
            Some(Role::Stdin) => {
                inbox.stdin(&bytes).await && (!end || inbox.send(Input::StdinEnd).await)
            }
            Some(Role::Resize) => inbox.resize(&bytes).await,
            _ => true,
        },
        Frame::Ping { id } => urgent.send(Urgent::Frame(Frame::Ping { id })).await.is_ok(),
        Frame::Open { stream, .. } => {
            let reset = Frame::Reset { stream, status: REFUSED };
            urgent.send(Urgent::Frame(reset)).await.is_ok()
        }
        Frame::Reset { stream, .. } if roles.get(&stream) == Some(&Role::Stdin) => {
            inbox.send(Input::StdinEnd).await
        }
        Frame::GoAway { .. } => return Taken::Left,
        _ => true,
    };
    Taken::by_command(taken)
}

async fn write(
    mut writer: Writing,
    mut encoder: Encoder,
    (roles, version): (HashMap<Role, u32>, u8),
    (mut output, mut urgent): (mpsc::Receiver<Output>, mpsc::Receiver<Urgent>),
) {
    loop {
        let mut frames = Vec::new();
        let over = tokio::select! {
            said = output.recv() => match said {
                Some(Output::Data(channel, bytes)) => {
                    let role = match channel {
                        Channel::Stdout => Role::Stdout,
                        Channel::Stderr => Role::Stderr,
                    };
                    if let Some(stream) = roles.get(&role) {
                        frames.push(Frame::Data { stream: *stream, bytes: bytes.to_vec(), end: false });
                    }
                    false
                }
                Some(Output::Status(ending)) => {
                    let text = if version >= 4 {
                        Some(ending.status_object())
                    } else {
                        ending.plain()
                    };
                    for role in [Role::Stdout, Role::Stderr] {
                        if let Some(stream) = roles.get(&role) {
                            frames.push(Frame::Data { stream: *stream, bytes: Vec::new(), end: true });
                        }
                    }
                    if let Some(stream) = roles.get(&Role::Error) {
                        let bytes = text.unwrap_or_default().into_bytes();
                        frames.push(Frame::Data { stream: *stream, bytes, end: true });
                    }
                    frames.push(Frame::GoAway { last: 0, status: 0 });
                    true
                }
                None => true,
            },
            Some(Urgent::Frame(frame)) = urgent.recv() => {
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
