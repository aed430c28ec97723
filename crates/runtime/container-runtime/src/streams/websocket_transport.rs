//! A remote command over WebSocket: channels by their first byte.

use bytes::Bytes;
use stream_frames::channels::{self, Coding, Protocol};
use stream_frames::websocket::{self, Decoder, Message, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::session::{Channel, Has, Input, Output, QUEUE, Session, sizes};
use super::upgrade::Socket;

/// Something that must be said between two outputs.
enum Urgent {
    Pong(Vec<u8>),
    Close(u16),
}

pub(super) fn begin(socket: Socket, protocol: Protocol, has: Has) -> Session {
    let (reader, writer) = tokio::io::split(socket);
    let (input_sender, input) = mpsc::channel(QUEUE);
    let (output, output_receiver) = mpsc::channel(QUEUE);
    let (urgent_sender, urgent) = mpsc::channel(QUEUE);
    tokio::spawn(read(reader, protocol, has, (input_sender, urgent_sender)));
    tokio::spawn(write(writer, protocol, has, (output_receiver, urgent)));
    Session { input, output }
}

async fn read(
    mut reader: ReadHalf<Socket>,
    protocol: Protocol,
    has: Has,
    (input, urgent): (mpsc::Sender<Input>, mpsc::Sender<Urgent>),
) {
    let mut decoder = Decoder::default();
    let mut part = vec![0; 32 * 1024];
    loop {
        loop {
            match decoder.next_message() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    if !take(message, protocol, has, (&input, &urgent)).await {
                        return;
                    }
                }
                Err(error) => {
                    let _ = urgent.send(Urgent::Close(error.close_code())).await;
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
    message: Message,
    protocol: Protocol,
    has: Has,
    (input, urgent): (&mpsc::Sender<Input>, &mpsc::Sender<Urgent>),
) -> bool {
    let bytes = match message {
        Message::Binary(bytes) | Message::Text(bytes) => bytes,
        Message::Ping(bytes) => return urgent.send(Urgent::Pong(bytes)).await.is_ok(),
        Message::Pong => return true,
        Message::Close(_) => {
            let _ = urgent.send(Urgent::Close(1000)).await;
            return false;
        }
    };
    let Some((channel, content)) = channels::read(protocol, &bytes) else { return true };
    let event = match channel {
        // An empty message on the channel is not its end.
        channels::STDIN if has.stdin && !content.is_empty() => Input::Stdin(Bytes::from(content)),
        channels::RESIZE if has.tty => {
            for size in sizes(&content) {
                if input.send(Input::Resize(size)).await.is_err() {
                    return false;
                }
            }
            return true;
        }
        channels::CLOSE if protocol.closes && content == [channels::STDIN] => Input::StdinEnd,
        _ => return true,
    };
    input.send(event).await.is_ok()
}

async fn write(
    mut writer: WriteHalf<Socket>,
    protocol: Protocol,
    has: Has,
    (mut output, mut urgent): (mpsc::Receiver<Output>, mpsc::Receiver<Urgent>),
) {
    let mut bytes = Vec::new();
    let send = |channel: u8, content: &[u8], bytes: &mut Vec<u8>| {
        let message = channels::write(protocol, channel, content);
        let reply = match protocol.coding {
            Coding::Binary => Reply::Binary(&message),
            Coding::Base64 => Reply::Text(&message),
        };
        websocket::write(&reply, bytes);
    };
    // Clients wait for the first message to know that the channels are there.
    for (channel, there) in [(channels::STDOUT, has.stdout), (channels::STDERR, has.stderr)] {
        if there {
            send(channel, &[], &mut bytes);
        }
    }
    loop {
        if !bytes.is_empty() && writer.write_all(&bytes).await.is_err() {
            return;
        }
        bytes.clear();
        let over = tokio::select! {
            said = output.recv() => match said {
                Some(Output::Data(channel, content)) => {
                    let channel = match channel {
                        Channel::Stdout => channels::STDOUT,
                        Channel::Stderr => channels::STDERR,
                    };
                    send(channel, &content, &mut bytes);
                    false
                }
                Some(Output::Status(ending)) => {
                    if protocol.status_objects {
                        send(channels::ERROR, ending.status_object().as_bytes(), &mut bytes);
                    } else if let Some(text) = ending.plain() {
                        send(channels::ERROR, text.as_bytes(), &mut bytes);
                    }
                    websocket::write(&Reply::Close(1000), &mut bytes);
                    true
                }
                None => true,
            },
            Some(urgent) = urgent.recv() => match urgent {
                Urgent::Pong(content) => {
                    websocket::write(&Reply::Pong(&content), &mut bytes);
                    false
                }
                Urgent::Close(code) => {
                    websocket::write(&Reply::Close(code), &mut bytes);
                    true
                }
            },
        };
        if over {
            let _ = writer.write_all(&bytes).await;
            let _ = writer.shutdown().await;
            return;
        }
    }
}
