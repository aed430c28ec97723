//! A remote command over SPDY: one stream for each channel, told apart by a header.
//!
//! Rule: the command begins when every stream that it needs is open; a client that opens them too
//! slowly is let go.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use stream_frames::spdy::{Decoder, Encoder, Frame, Headers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::session::{Channel, Has, Input, Output, QUEUE, Session, sizes};
use super::upgrade::Socket;

/// upstream: kubelet's stream creation timeout.
const OPENING: Duration = Duration::from_secs(30);
const REFUSED: u32 = 3;

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

/// What the reading side tells the writing side.
enum Urgent {
    Frame(Frame),
}

struct Opened {
    reader: ReadHalf<Socket>,
    writer: WriteHalf<Socket>,
    decoder: Decoder,
    encoder: Encoder,
    roles: HashMap<Role, u32>,
    /// What came before everything was open.
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
    let (input_sender, input) = mpsc::channel(QUEUE);
    let (output, output_receiver) = mpsc::channel(QUEUE);
    let (urgent_sender, urgent) = mpsc::channel(QUEUE);
    let Opened { reader, writer, decoder, encoder, roles, early } = opened;
    let streams = roles.clone();
    tokio::spawn(read(reader, decoder, (streams, early), (input_sender, urgent_sender)));
    tokio::spawn(write(writer, encoder, (roles, version), (output_receiver, urgent)));
    Ok(Session { input, output })
}

async fn open(socket: Socket, has: Has, version: u8) -> Result<Opened, String> {
    let mut expected = 1 + [has.stdin, has.stdout, has.stderr].iter().filter(|has| **has).count();
    if has.tty && version >= 3 {
        expected += 1;
    }
    let (mut reader, mut writer) = tokio::io::split(socket);
    let (mut decoder, mut encoder) = (Decoder::default(), Encoder::default());
    let (mut roles, mut early) = (HashMap::new(), Vec::new());
    let mut part = vec![0; 16 * 1024];
    while roles.len() < expected {
        let read = reader.read(&mut part).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the client went away".to_owned());
        }
        decoder.push(&part[..read]);
        let mut answer = Vec::new();
        while let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
            let reply = match &frame {
                Frame::Open { stream, headers, .. } => match role(headers) {
                    Some(role) if !roles.contains_key(&role) => {
                        roles.insert(role, *stream);
                        Frame::Accept { stream: *stream, headers: Headers::default(), end: false }
                    }
                    _ => Frame::Reset { stream: *stream, status: REFUSED },
                },
                Frame::Ping { id } => Frame::Ping { id: *id },
                _ => {
                    early.push(frame);
                    continue;
                }
            };
            encoder.write(&reply, &mut answer).map_err(|error| error.to_string())?;
        }
        writer.write_all(&answer).await.map_err(|error| error.to_string())?;
    }
    Ok(Opened { reader, writer, decoder, encoder, roles, early })
}

async fn read(
    mut reader: ReadHalf<Socket>,
    mut decoder: Decoder,
    (roles, early): (HashMap<Role, u32>, Vec<Frame>),
    (input, urgent): (mpsc::Sender<Input>, mpsc::Sender<Urgent>),
) {
    let by_stream: HashMap<u32, Role> = roles.into_iter().map(|(role, id)| (id, role)).collect();
    let mut part = vec![0; 32 * 1024];
    for frame in early {
        if !take(frame, &by_stream, (&input, &urgent)).await {
            return;
        }
    }
    loop {
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if !take(frame, &by_stream, (&input, &urgent)).await {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a SPDY client");
                    return;
                }
            }
        }
        match reader.read(&mut part).await {
            Ok(0) | Err(_) => return,
            Ok(read) => decoder.push(&part[..read]),
        }
    }
}

/// `false`: the client is done.
async fn take(
    frame: Frame,
    roles: &HashMap<u32, Role>,
    (input, urgent): (&mpsc::Sender<Input>, &mpsc::Sender<Urgent>),
) -> bool {
    match frame {
        Frame::Data { stream, bytes, end } => match roles.get(&stream) {
            Some(Role::Stdin) => {
                let sent =
                    bytes.is_empty() || input.send(Input::Stdin(Bytes::from(bytes))).await.is_ok();
                sent && (!end || input.send(Input::StdinEnd).await.is_ok())
            }
            Some(Role::Resize) => {
                for size in sizes(&bytes) {
                    if input.send(Input::Resize(size)).await.is_err() {
                        return false;
                    }
                }
                true
            }
            _ => true,
        },
        Frame::Ping { id } => urgent.send(Urgent::Frame(Frame::Ping { id })).await.is_ok(),
        Frame::Open { stream, .. } => {
            let reset = Frame::Reset { stream, status: REFUSED };
            urgent.send(Urgent::Frame(reset)).await.is_ok()
        }
        Frame::Reset { stream, .. } if roles.get(&stream) == Some(&Role::Stdin) => {
            input.send(Input::StdinEnd).await.is_ok()
        }
        Frame::GoAway { .. } => false,
        _ => true,
    }
}

async fn write(
    mut writer: WriteHalf<Socket>,
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
