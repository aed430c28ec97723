//! Port-forward: connections into a pod's network, one for each pair of streams.
//!
//! upstream: k8s.io/streaming portforward (httpstream.go, websocket.go); containerd
//! internal/cri/server/sandbox_portforward_linux.go

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use cri_wire::v1;
use stream_frames::channels::{self, Coding, Protocol};
use stream_frames::spdy::{Decoder, Encoder, Frame, Headers};
use stream_frames::websocket::{self, Message, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};

use super::session::{PART, QUEUE};
use super::upgrade::Socket;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::runtime::Runtime;

const CONNECT: Duration = Duration::from_secs(15);
/// Streams of one client at once.
const MOST_STREAMS: usize = 1024;
const REFUSED: u32 = 3;

impl Runtime {
    /// A connection to a port of a pod, from inside its network.
    pub async fn connect_to_pod(&self, sandbox: &str, port: u16) -> Result<TcpStream> {
        let sandbox = self.book.sandbox(sandbox)?;
        let namespace = sandbox.record().network.map(|network| network.namespace);
        let stream = blocking(move || {
            let connect = || {
                let addresses: [SocketAddr; 2] =
                    [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
                let mut first = None;
                for address in addresses {
                    match StdStream::connect_timeout(&address, CONNECT) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => {
                            first.get_or_insert(error);
                        }
                    }
                }
                Err(first.unwrap_or_else(|| std::io::Error::other("no address")))
            };
            let connected = match &namespace {
                None => connect(),
                Some(path) => {
                    let file = std::fs::File::open(path).doing(format!("opening {path}"))?;
                    netlink::in_namespace(file.as_fd(), || Ok(connect()))?
                }
            };
            let stream = connected.map_err(|error| {
                let place = namespace.as_deref().unwrap_or("the host's network");
                Failure::plain(format!(
                    "failed to connect to localhost:{port} inside namespace {place:?}: {error}"
                ))
            })?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        })
        .await?;
        TcpStream::from_std(stream).doing("taking up a connection")
    }
}

struct Writer {
    socket: WriteHalf<Socket>,
    encoder: Encoder,
}

impl Writer {
    async fn send(&mut self, frame: &Frame) -> bool {
        let mut bytes = Vec::new();
        self.encoder.write(frame, &mut bytes).is_ok() && self.socket.write_all(&bytes).await.is_ok()
    }
}

/// Streams come in pairs: one for data, one for what went wrong.
#[derive(Default)]
struct Pair {
    data: Option<u32>,
    error: Option<u32>,
    port: u16,
}

pub(super) async fn over_spdy(runtime: &Runtime, request: &v1::PortForwardRequest, socket: Socket) {
    let (mut reader, socket) = tokio::io::split(socket);
    let writer = Arc::new(Mutex::new(Writer { socket, encoder: Encoder::default() }));
    let mut decoder = Decoder::default();
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    let mut inputs: HashMap<u32, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut part = vec![0; 32 * 1024];
    loop {
        loop {
            let frame = match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => frame,
                Err(error) => {
                    tracing::debug!(%error, "a port-forward client");
                    return;
                }
            };
            match frame {
                Frame::Open { stream, headers, .. } => {
                    let known = inputs.len() + pairs.len() < MOST_STREAMS;
                    let ready = known.then(|| place(&mut pairs, stream, &headers)).flatten();
                    let Some(ready) = ready else {
                        let reset = Frame::Reset { stream, status: REFUSED };
                        if !writer.lock().await.send(&reset).await {
                            return;
                        }
                        continue;
                    };
                    let accept = Frame::Accept { stream, headers: Headers::default(), end: false };
                    if !writer.lock().await.send(&accept).await {
                        return;
                    }
                    if let Some((data, error, port)) = ready {
                        let (sender, receiver) = mpsc::channel(QUEUE);
                        inputs.insert(data, sender);
                        let (runtime, sandbox) = (runtime.clone(), request.pod_sandbox_id.clone());
                        let writer = Arc::clone(&writer);
                        tokio::spawn(async move {
                            let streams = (data, error);
                            forward(&runtime, (&sandbox, port), streams, (receiver, writer)).await;
                        });
                    }
                }
                Frame::Data { stream, bytes, end } => {
                    if let Some(sender) = inputs.get(&stream)
                        && !bytes.is_empty()
                    {
                        // A slow pod slows its client.
                        let _ = sender.send(bytes).await;
                    }
                    if end {
                        inputs.remove(&stream);
                    }
                }
                Frame::Reset { stream, .. } => {
                    inputs.remove(&stream);
                }
                Frame::Ping { id } => {
                    let answered = writer.lock().await.send(&Frame::Ping { id }).await;
                    if !answered {
                        return;
                    }
                }
                Frame::GoAway { .. } => return,
                _ => {}
            }
        }
        match reader.read(&mut part).await {
            Ok(0) | Err(_) => return,
            Ok(read) => decoder.push(&part[..read]),
        }
    }
}

/// None: the stream is refused. Inside: the pair that is now whole.
fn place(
    pairs: &mut HashMap<String, Pair>,
    stream: u32,
    headers: &Headers,
) -> Option<Option<(u32, u32, u16)>> {
    let port: u16 = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
    // Older clients give no id; their pairs come one after another.
    let id = headers.get("requestid").map_or_else(|| format!("port {port}"), str::to_owned);
    let pair = pairs.entry(id.clone()).or_default();
    let place = match headers.get("streamtype")? {
        "data" => &mut pair.data,
        "error" => &mut pair.error,
        _ => return None,
    };
    if place.is_some() {
        return None;
    }
    *place = Some(stream);
    pair.port = port;
    let whole = match (pair.data, pair.error) {
        (Some(data), Some(error)) => Some((data, error, pair.port)),
        _ => None,
    };
    if whole.is_some() {
        pairs.remove(&id);
    }
    Some(whole)
}

async fn forward(
    runtime: &Runtime,
    (sandbox, port): (&str, u16),
    (data, error): (u32, u32),
    (mut input, writer): (mpsc::Receiver<Vec<u8>>, Arc<Mutex<Writer>>),
) {
    let trouble = match runtime.connect_to_pod(sandbox, port).await {
        Ok(stream) => {
            let (mut reader, mut sender) = stream.into_split();
            let feeding = async {
                while let Some(bytes) = input.recv().await {
                    if sender.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                let _ = sender.shutdown().await;
            };
            let draining = async {
                let mut part = vec![0; PART];
                while let Ok(read) = reader.read(&mut part).await {
                    let bytes = part[..read].to_vec();
                    let end = bytes.is_empty();
                    let frame = Frame::Data { stream: data, bytes, end };
                    if !writer.lock().await.send(&frame).await || end {
                        return;
                    }
                }
            };
            tokio::join!(feeding, draining);
            None
        }
        Err(failure) => {
            Some(format!("error forwarding port {port} to pod {sandbox}, uid : {failure}"))
        }
    };
    let mut writer = writer.lock().await;
    if trouble.is_some() {
        let end = Frame::Data { stream: data, bytes: Vec::new(), end: true };
        writer.send(&end).await;
    }
    let bytes = trouble.unwrap_or_default().into_bytes();
    writer.send(&Frame::Data { stream: error, bytes, end: true }).await;
}

/// The older way over WebSocket: two channels for each port, which first say the port.
pub(super) async fn over_websocket(
    runtime: &Runtime,
    request: &v1::PortForwardRequest,
    protocol: Protocol,
    socket: Socket,
) {
    let (mut reader, mut writer) = tokio::io::split(socket);
    let (sender, mut receiver) = mpsc::channel::<(u8, Vec<u8>)>(QUEUE);
    let mut inputs = Vec::new();
    for (at, port) in request.port.iter().enumerate() {
        let (Ok(port), Ok(channel)) = (u16::try_from(*port), u8::try_from(at * 2)) else { return };
        let (input, bytes) = mpsc::channel(QUEUE);
        inputs.push(input);
        let (runtime, sandbox) = (runtime.clone(), request.pod_sandbox_id.clone());
        let sender = sender.clone();
        tokio::spawn(async move {
            for channel in [channel, channel + 1] {
                let _ = sender.send((channel, port.to_le_bytes().to_vec())).await;
            }
            channel_to_port(&runtime, (&sandbox, port), channel, (bytes, sender)).await;
        });
    }
    drop(sender);
    let writing = async move {
        while let Some((channel, content)) = receiver.recv().await {
            let message = channels::write(protocol, channel, &content);
            let reply = match protocol.coding {
                Coding::Binary => Reply::Binary(&message),
                Coding::Base64 => Reply::Text(&message),
            };
            let mut bytes = Vec::new();
            websocket::write(&reply, &mut bytes);
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let mut bytes = Vec::new();
        websocket::write(&Reply::Close(1000), &mut bytes);
        let _ = writer.write_all(&bytes).await;
        let _ = writer.shutdown().await;
    };
    let reading = async move {
        let mut decoder = websocket::Decoder::default();
        let mut part = vec![0; 32 * 1024];
        loop {
            while let Ok(Some(message)) = decoder.next_message() {
                let (Message::Binary(bytes) | Message::Text(bytes)) = message else {
                    if matches!(message, Message::Close(_)) {
                        return;
                    }
                    continue;
                };
                if let Some((channel, content)) = channels::read(protocol, &bytes)
                    && channel % 2 == 0
                    && let Some(input) = inputs.get(usize::from(channel / 2))
                {
                    let _ = input.send(content).await;
                }
            }
            match reader.read(&mut part).await {
                Ok(0) | Err(_) => return,
                Ok(read) => decoder.push(&part[..read]),
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
}

/// What comes for a port, and where its channel's messages go.
type Ends = (mpsc::Receiver<Vec<u8>>, mpsc::Sender<(u8, Vec<u8>)>);

async fn channel_to_port(
    runtime: &Runtime,
    (sandbox, port): (&str, u16),
    channel: u8,
    (mut input, output): Ends,
) {
    let stream = match runtime.connect_to_pod(sandbox, port).await {
        Ok(stream) => stream,
        Err(failure) => {
            let _ = output.send((channel + 1, failure.text.into_bytes())).await;
            return;
        }
    };
    let (mut reader, mut sender) = stream.into_split();
    let feeding = async {
        while let Some(bytes) = input.recv().await {
            if sender.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let draining = async {
        let mut part = vec![0; PART];
        while let Ok(read) = reader.read(&mut part).await {
            if read == 0 || output.send((channel, part[..read].to_vec())).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = feeding => {}
        () = draining => {}
    }
}
