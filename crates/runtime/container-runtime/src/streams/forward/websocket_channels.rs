//! The older port-forward over WebSocket: two channels for each port, which first send the port.
//!
//! upstream: k8s.io/streaming portforward (websocket.go)

use stream_frames::channels::{self, ChannelProtocol, Coding};
use stream_frames::websocket::{self, ClientMessage, ServerMessage, WebSocketDecoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{PodDialer, forward_error_message};
use crate::streams::connection::{SocketReader, SocketWriter};
use crate::streams::session::{
    BufferedInput, InputBudget, MAX_BUFFERED_INPUT, PART, QUEUE, closed_and_idle,
};
use crate::streams::upgrade::UpgradedSocket;

/// A message to the client.
enum ChannelOutput {
    Channel(u8, Vec<u8>),
    Pong(Vec<u8>),
    Close(u16),
}

pub(in crate::streams) async fn over_websocket(
    dialer: PodDialer,
    ports: &[i32],
    protocol: ChannelProtocol,
    socket: UpgradedSocket,
) {
    let (reader, writer) = socket.stream.into_split();
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut inputs = Vec::new();
    // Dropped at the end, which ends them.
    let mut forwards = JoinSet::new();
    for (at, port) in ports.iter().enumerate() {
        let (Ok(port), Ok(channel)) = (u16::try_from(*port), u8::try_from(at * 2)) else { return };
        let (input, bytes) = mpsc::channel(QUEUE);
        inputs.push(input);
        let (dialer, sender) = (dialer.clone(), sender.clone());
        forwards.spawn(async move {
            for channel in [channel, channel + 1] {
                let message = ChannelOutput::Channel(channel, port.to_le_bytes().to_vec());
                let _ = sender.send(message).await;
            }
            channel_to_port(&dialer, port, channel, (bytes, sender)).await;
        });
    }
    let mut decoder = WebSocketDecoder::default();
    decoder.push(&socket.early);
    // The connection ends with its last port: weak senders for answers to the client do not keep it
    // open.
    let outputs = sender.downgrade();
    drop(sender);
    tokio::select! {
        () = write(writer, protocol, receiver) => {}
        () = read(reader, decoder, protocol, (inputs, outputs)) => {}
    }
}

async fn write(
    mut writer: SocketWriter,
    protocol: ChannelProtocol,
    mut said: mpsc::Receiver<ChannelOutput>,
) {
    let mut over = false;
    while !over {
        let mut bytes = Vec::new();
        match said.recv().await.unwrap_or(ChannelOutput::Close(1000)) {
            ChannelOutput::Channel(channel, content) => {
                let message = channels::write(protocol, channel, &content);
                let reply = match protocol.coding {
                    Coding::Binary => ServerMessage::Binary(&message),
                    Coding::Base64 => ServerMessage::Text(&message),
                };
                websocket::write(&reply, &mut bytes);
            }
            ChannelOutput::Pong(content) => {
                websocket::write(&ServerMessage::Pong(&content), &mut bytes);
            }
            ChannelOutput::Close(code) => {
                websocket::write(&ServerMessage::Close(code), &mut bytes);
                over = true;
            }
        }
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

async fn read(
    mut reader: SocketReader,
    mut decoder: WebSocketDecoder,
    protocol: ChannelProtocol,
    (inputs, outputs): (Vec<mpsc::Sender<BufferedInput>>, mpsc::WeakSender<ChannelOutput>),
) {
    let room = InputBudget::of(MAX_BUFFERED_INPUT);
    let mut part = vec![0; 32 * 1024];
    loop {
        loop {
            let message = match decoder.next_message() {
                Ok(None) => break,
                Ok(Some(message)) => message,
                Err(error) => {
                    return send_output(&outputs, ChannelOutput::Close(error.close_code())).await;
                }
            };
            let taking = async {
                match message {
                    ClientMessage::Binary(bytes) | ClientMessage::Text(bytes) => {
                        forward_input(protocol, &bytes, &inputs, &room).await;
                    }
                    ClientMessage::Ping(bytes) => {
                        send_output(&outputs, ChannelOutput::Pong(bytes)).await;
                    }
                    ClientMessage::Pong => {}
                    ClientMessage::Close(_) => return false,
                }
                true
            };
            let goes_on = tokio::select! {
                biased;
                goes_on = taking => goes_on,
                () = closed_and_idle(&reader) => false,
            };
            if !goes_on {
                return;
            }
        }
        match reader.read(&mut part).await {
            Ok(0) | Err(_) => return,
            Ok(read) => decoder.push(&part[..read]),
        }
    }
}

async fn send_output(outputs: &mpsc::WeakSender<ChannelOutput>, message: ChannelOutput) {
    if let Some(sender) = outputs.upgrade() {
        let _ = sender.send(message).await;
    }
}

/// A slow pod slows its client.
async fn forward_input(
    protocol: ChannelProtocol,
    message: &[u8],
    inputs: &[mpsc::Sender<BufferedInput>],
    room: &InputBudget,
) {
    let Some((channel, content)) = channels::read(protocol, message) else { return };
    let input = inputs.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0);
    let Some(input) = input else { return };
    for part in content.chunks(PART) {
        let Some(held) = room.reserve(part).await else { return };
        if input.send(held).await.is_err() {
            return;
        }
    }
}

async fn channel_to_port(
    dialer: &PodDialer,
    port: u16,
    channel: u8,
    (mut input, output): (mpsc::Receiver<BufferedInput>, mpsc::Sender<ChannelOutput>),
) {
    let stream = match dialer.connect(port).await {
        Ok(stream) => stream,
        Err(failure) => {
            let words = forward_error_message(dialer, port, &failure).into_bytes();
            let _ = output.send(ChannelOutput::Channel(channel + 1, words)).await;
            return;
        }
    };
    let (mut reader, mut sender) = stream.into_split();
    let feeding = async {
        while let Some(held) = input.recv().await {
            if sender.write_all(&held.bytes).await.is_err() {
                return;
            }
        }
    };
    let draining = async {
        let mut part = vec![0; PART];
        while let Ok(read) = reader.read(&mut part).await {
            let message = ChannelOutput::Channel(channel, part[..read].to_vec());
            if read == 0 || output.send(message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = feeding => {}
        () = draining => {}
    }
}
