//! A remote command over WebSocket: channels by their first byte.
//!
//! Rule: a client is read only as fast as its command reads its input. Meanwhile its disconnect is
//! still detected. After the command's end the client's data is read and dropped.

use stream_frames::channels::{self, Coding, Protocol};
use stream_frames::websocket::{self, Decoder, Message, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::connection::{Reading, Writing};
use super::session::{Channel, Has, Inbox, Input, Output, QUEUE, Session, Tasks, hung_up};
use super::upgrade::Socket;

#[cfg(test)]
mod tests;

/// A control message that is sent between two outputs.
enum Urgent {
    Pong(Vec<u8>),
    Close(u16),
}

pub(super) fn begin(socket: Socket, protocol: Protocol, has: Has) -> Session {
    let (reader, writer) = socket.stream.into_split();
    let (inbox, input, gone) = Inbox::new();
    let (output, output_receiver) = mpsc::channel(QUEUE);
    let (urgent_sender, urgent) = mpsc::channel(QUEUE);
    let mut decoder = Decoder::default();
    decoder.push(&socket.early);
    let reading = tokio::spawn(async move {
        read(reader, decoder, (protocol, has), (inbox, urgent_sender)).await;
    });
    let writing = tokio::spawn(write(writer, protocol, has, (output_receiver, urgent)));
    Session { input, output, gone, tasks: Tasks { reading, writing } }
}

async fn read(
    mut reader: Reading,
    mut decoder: Decoder,
    (protocol, has): (Protocol, Has),
    (inbox, urgent): (Inbox, mpsc::Sender<Urgent>),
) {
    let mut part = vec![0; 32 * 1024];
    'wanted: loop {
        loop {
            match decoder.next_message() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let taken = tokio::select! {
                        biased;
                        taken = take(message, protocol, has, (&inbox, &urgent)) => taken,
                        () = hung_up(&reader) => Taken::Left,
                    };
                    match taken {
                        Taken::Yes => {}
                        Taken::Left => return,
                        Taken::Over => break 'wanted,
                    }
                }
                Err(error) => {
                    let _ = urgent.send(Urgent::Close(error.close_code())).await;
                    return;
                }
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

/// Reads and drops data until the client closes or is cut off.
pub(super) async fn discard(mut reader: Reading, mut part: Vec<u8>) {
    while reader.read(&mut part).await.is_ok_and(|read| read > 0) {}
}

/// The outcome of a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// The client is done.
    Left,
    /// The command is over.
    Over,
}

impl Taken {
    pub(super) fn by_command(taken: bool) -> Self {
        if taken { Self::Yes } else { Self::Over }
    }
}

async fn take(
    message: Message,
    protocol: Protocol,
    has: Has,
    (inbox, urgent): (&Inbox, &mpsc::Sender<Urgent>),
) -> Taken {
    let bytes = match message {
        Message::Binary(bytes) | Message::Text(bytes) => bytes,
        Message::Ping(bytes) => {
            return Taken::by_command(urgent.send(Urgent::Pong(bytes)).await.is_ok());
        }
        Message::Pong => return Taken::Yes,
        Message::Close(_) => {
            let _ = urgent.send(Urgent::Close(1000)).await;
            return Taken::Left;
        }
    };
    let Some((channel, content)) = channels::read(protocol, &bytes) else { return Taken::Yes };
    drop(bytes);
    let taken = match channel {
        // An empty message does not close the channel.
        channels::STDIN if has.stdin => inbox.stdin(&content).await,
        channels::RESIZE if has.tty => inbox.resize(&content).await,
        channels::CLOSE if protocol.closes && content == [channels::STDIN] => {
            inbox.send(Input::StdinEnd).await
        }
        _ => true,
    };
    Taken::by_command(taken)
}

async fn write(
    mut writer: Writing,
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
    // Clients wait for the first message to know that the channels exist.
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
