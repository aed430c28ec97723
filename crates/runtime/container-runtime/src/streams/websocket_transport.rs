//! A remote command over WebSocket: the first byte of a message is its channel.
//!
//! Rule: the client is read only as fast as the command reads its input; a disconnect is detected
//! even while the client is not read. After the command has exited, client
//! data is read and dropped.

use stream_frames::channels::{self, ChannelProtocol, Coding};
use stream_frames::websocket::{self, ClientMessage, ServerMessage, WebSocketDecoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::connection::{SocketReader, SocketWriter};
use super::session::{
    ClientInput, CommandSession, CommandStreams, Inbox, Output, OutputChannel, QUEUE, SessionInbox,
    SessionOutbox, SessionTasks, closed_and_idle,
};
use super::upgrade::UpgradedSocket;

#[cfg(test)]
mod tests;

/// A WebSocket control message: sent before the queued output.
enum UrgentMessage {
    Pong(Vec<u8>),
    Close(u16),
}

/// The protocol and the streams that were agreed on.
#[derive(Clone, Copy)]
struct WebSocketSession {
    protocol: ChannelProtocol,
    streams: CommandStreams,
}

pub(super) fn begin(
    socket: UpgradedSocket,
    protocol: ChannelProtocol,
    streams: CommandStreams,
) -> CommandSession {
    let (reader, writer) = socket.stream.into_split();
    let (inbox, input, gone) = Inbox::new();
    let (output, output_receiver) = mpsc::channel(QUEUE);
    let (urgent_sender, urgent) = mpsc::channel(QUEUE);
    let mut decoder = WebSocketDecoder::default();
    decoder.push(&socket.early);
    let session = WebSocketSession { protocol, streams };
    let inbox = SessionInbox { inbox, urgent: urgent_sender };
    let outbox = SessionOutbox { output: output_receiver, urgent };
    let reading = tokio::spawn(read(reader, decoder, session, inbox));
    let writing = tokio::spawn(write(writer, session, outbox));
    CommandSession { input, output, gone, tasks: SessionTasks { reading, writing } }
}

async fn read(
    mut reader: SocketReader,
    mut decoder: WebSocketDecoder,
    session: WebSocketSession,
    queues: SessionInbox<UrgentMessage>,
) {
    let mut buffer = vec![0; 32 * 1024];
    'connection: loop {
        loop {
            match decoder.next_message() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let outcome = tokio::select! {
                        biased;
                        outcome = handle_message(message, session, &queues) => outcome,
                        () = closed_and_idle(&reader) => InputOutcome::ClientLeft,
                    };
                    match outcome {
                        InputOutcome::Accepted => {}
                        InputOutcome::ClientLeft => return,
                        InputOutcome::CommandOver => break 'connection,
                    }
                }
                Err(error) => {
                    let _ = queues.urgent.send(UrgentMessage::Close(error.close_code())).await;
                    return;
                }
            }
        }
        let read = tokio::select! {
            read = reader.read(&mut buffer) => read,
            () = queues.inbox.closed() => break 'connection,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => decoder.push(&buffer[..read]),
        }
    }
    drop(queues.inbox);
    discard(reader, buffer).await;
}

/// Reads and drops data until the client closes the connection.
pub(super) async fn discard(mut reader: SocketReader, mut buffer: Vec<u8>) {
    while reader.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// What became of a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputOutcome {
    Accepted,
    /// The client has closed the session.
    ClientLeft,
    /// The command no longer reads its input.
    CommandOver,
}

impl InputOutcome {
    pub(super) fn from_command(accepted: bool) -> Self {
        if accepted { Self::Accepted } else { Self::CommandOver }
    }
}

async fn handle_message(
    message: ClientMessage,
    WebSocketSession { protocol, streams }: WebSocketSession,
    SessionInbox { inbox, urgent }: &SessionInbox<UrgentMessage>,
) -> InputOutcome {
    let bytes = match message {
        ClientMessage::Binary(bytes) | ClientMessage::Text(bytes) => bytes,
        ClientMessage::Ping(bytes) => {
            return InputOutcome::from_command(
                urgent.send(UrgentMessage::Pong(bytes)).await.is_ok(),
            );
        }
        ClientMessage::Pong => return InputOutcome::Accepted,
        ClientMessage::Close(_) => {
            let _ = urgent.send(UrgentMessage::Close(1000)).await;
            return InputOutcome::ClientLeft;
        }
    };
    let Some((channel, content)) = channels::read(protocol, &bytes) else {
        return InputOutcome::Accepted;
    };
    drop(bytes);
    let accepted = match channel {
        // An empty message does not close the channel.
        channels::STDIN if streams.stdin => inbox.stdin(&content).await,
        channels::RESIZE if streams.tty => inbox.resize(&content).await,
        channels::CLOSE if protocol.closes && content == [channels::STDIN] => {
            inbox.send(ClientInput::StdinEnd).await
        }
        _ => true,
    };
    InputOutcome::from_command(accepted)
}

async fn write(
    mut writer: SocketWriter,
    WebSocketSession { protocol, streams }: WebSocketSession,
    SessionOutbox { mut output, mut urgent }: SessionOutbox<UrgentMessage>,
) {
    let mut bytes = Vec::new();
    let send = |channel: u8, content: &[u8], bytes: &mut Vec<u8>| {
        let message = channels::write(protocol, channel, content);
        let reply = match protocol.coding {
            Coding::Binary => ServerMessage::Binary(&message),
            Coding::Base64 => ServerMessage::Text(&message),
        };
        websocket::write(&reply, bytes);
    };
    // Clients take an empty first message as the sign that the channel exists.
    for (channel, exists) in
        [(channels::STDOUT, streams.stdout), (channels::STDERR, streams.stderr)]
    {
        if exists {
            send(channel, &[], &mut bytes);
        }
    }
    loop {
        if !bytes.is_empty() && writer.write_all(&bytes).await.is_err() {
            return;
        }
        bytes.clear();
        let is_last = tokio::select! {
            next_output = output.recv() => match next_output {
                Some(Output::Data(channel, content)) => {
                    let channel = match channel {
                        OutputChannel::Stdout => channels::STDOUT,
                        OutputChannel::Stderr => channels::STDERR,
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
                    websocket::write(&ServerMessage::Close(1000), &mut bytes);
                    true
                }
                None => true,
            },
            Some(urgent) = urgent.recv() => match urgent {
                UrgentMessage::Pong(content) => {
                    websocket::write(&ServerMessage::Pong(&content), &mut bytes);
                    false
                }
                UrgentMessage::Close(code) => {
                    websocket::write(&ServerMessage::Close(code), &mut bytes);
                    true
                }
            },
        };
        if is_last {
            let _ = writer.write_all(&bytes).await;
            let _ = writer.shutdown().await;
            return;
        }
    }
}
