//! The older port-forward over WebSocket: two channels for each port, which first send the port.
//!
//! upstream: k8s.io/streaming portforward (websocket.go)

use stream_frames::channels::{self, Coding, Protocol};
use stream_frames::websocket::{self, Decoder, Message, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Door, trouble_with};
use crate::streams::connection::{Reading, Writing};
use crate::streams::session::{HELD, Held, PART, QUEUE, Room, hung_up};
use crate::streams::upgrade::Socket;

/// A message to the client.
enum Said {
    Channel(u8, Vec<u8>),
    Pong(Vec<u8>),
    Close(u16),
}

pub(in crate::streams) async fn over_websocket(
    door: Door,
    ports: &[i32],
    protocol: Protocol,
    socket: Socket,
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
        let (door, sender) = (door.clone(), sender.clone());
        forwards.spawn(async move {
            for channel in [channel, channel + 1] {
                let said = Said::Channel(channel, port.to_le_bytes().to_vec());
                let _ = sender.send(said).await;
            }
            channel_to_port(&door, port, channel, (bytes, sender)).await;
        });
    }
    let mut decoder = Decoder::default();
    decoder.push(&socket.early);
    // The connection ends with its last port: weak senders for answers to the client do not keep it
    // open.
    let answers = sender.downgrade();
    drop(sender);
    tokio::select! {
        () = write(writer, protocol, receiver) => {}
        () = read(reader, decoder, protocol, (inputs, answers)) => {}
    }
}

async fn write(mut writer: Writing, protocol: Protocol, mut said: mpsc::Receiver<Said>) {
    let mut over = false;
    while !over {
        let mut bytes = Vec::new();
        match said.recv().await.unwrap_or(Said::Close(1000)) {
            Said::Channel(channel, content) => {
                let message = channels::write(protocol, channel, &content);
                let reply = match protocol.coding {
                    Coding::Binary => Reply::Binary(&message),
                    Coding::Base64 => Reply::Text(&message),
                };
                websocket::write(&reply, &mut bytes);
            }
            Said::Pong(content) => websocket::write(&Reply::Pong(&content), &mut bytes),
            Said::Close(code) => {
                websocket::write(&Reply::Close(code), &mut bytes);
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
    mut reader: Reading,
    mut decoder: Decoder,
    protocol: Protocol,
    (inputs, answers): (Vec<mpsc::Sender<Held>>, mpsc::WeakSender<Said>),
) {
    let room = Room::of(HELD);
    let mut part = vec![0; 32 * 1024];
    loop {
        loop {
            let message = match decoder.next_message() {
                Ok(None) => break,
                Ok(Some(message)) => message,
                Err(error) => return answer(&answers, Said::Close(error.close_code())).await,
            };
            let taking = async {
                match message {
                    Message::Binary(bytes) | Message::Text(bytes) => {
                        hand_on(protocol, &bytes, &inputs, &room).await;
                    }
                    Message::Ping(bytes) => answer(&answers, Said::Pong(bytes)).await,
                    Message::Pong => {}
                    Message::Close(_) => return false,
                }
                true
            };
            let goes_on = tokio::select! {
                biased;
                goes_on = taking => goes_on,
                () = hung_up(&reader) => false,
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

async fn answer(answers: &mpsc::WeakSender<Said>, said: Said) {
    if let Some(sender) = answers.upgrade() {
        let _ = sender.send(said).await;
    }
}

/// A slow pod slows its client.
async fn hand_on(protocol: Protocol, message: &[u8], inputs: &[mpsc::Sender<Held>], room: &Room) {
    let Some((channel, content)) = channels::read(protocol, message) else { return };
    let input = inputs.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0);
    let Some(input) = input else { return };
    for part in content.chunks(PART) {
        let Some(held) = room.hold(part).await else { return };
        if input.send(held).await.is_err() {
            return;
        }
    }
}

async fn channel_to_port(
    door: &Door,
    port: u16,
    channel: u8,
    (mut input, output): (mpsc::Receiver<Held>, mpsc::Sender<Said>),
) {
    let stream = match door.connect(port).await {
        Ok(stream) => stream,
        Err(failure) => {
            let words = trouble_with(door, port, &failure).into_bytes();
            let _ = output.send(Said::Channel(channel + 1, words)).await;
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
            let said = Said::Channel(channel, part[..read].to_vec());
            if read == 0 || output.send(said).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = feeding => {}
        () = draining => {}
    }
}
