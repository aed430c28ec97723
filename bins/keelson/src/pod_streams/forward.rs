//! `port-forward`: local connections into a pod's network.
//!
//! Rule: each connection has its own stream, so that a slow or broken one affects no other and an
//! agent that was restarted is found again. Either side may close its direction and continue with
//! the other.

use super::port_pair::PortPair;
use super::spdy_link::{self, FORWARD_PROTOCOL};
use crate::node_pods::AgentClient;
use crate::terminal;
use anyhow::{Context, Result, bail};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use stream_frames::spdy::SpdyFrame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const ERROR: u32 = 1;
const DATA: u32 = 3;
const PART: usize = 32 * 1024;
const MAX_ERROR_BYTES: usize = 16 * 1024;
const MOST_CONNECTIONS: usize = 512;
/// After a failed `accept` (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Listens and carries connections until this program ends.
pub(super) async fn serve(
    agent: &AgentClient,
    pod: &str,
    addresses: &[IpAddr],
    pairs: &[PortPair],
) -> Result<()> {
    let mut listening = JoinSet::new();
    for pair in pairs {
        let mut bound = 0;
        let mut refused = None;
        let mut local = pair.local;
        for address in addresses {
            match TcpListener::bind(SocketAddr::new(*address, local)).await {
                Ok(listener) => {
                    let at = listener.local_addr().context("the local port")?;
                    // The second address gets the port that the first one found.
                    local = at.port();
                    terminal::print(&format!("Forwarding from {at} -> {}\n", pair.remote));
                    let (agent, pod) = (agent.clone(), pod.to_owned());
                    listening.spawn(accept(listener, agent, pod, pair.remote));
                    bound += 1;
                }
                Err(error) => {
                    refused.get_or_insert((*address, error));
                }
            }
        }
        // One of the two loopbacks is enough; a machine may have no IPv6.
        if let (0, Some((address, error))) = (bound, refused) {
            bail!("cannot listen on {}: {error}", SocketAddr::new(address, local));
        }
    }
    while listening.join_next().await.is_some() {}
    Ok(())
}

async fn accept(listener: TcpListener, agent: AgentClient, pod: String, port: u16) {
    let mut connections: JoinSet<()> = JoinSet::new();
    loop {
        while connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    let (agent, pod) = (agent.clone(), pod.clone());
                    connections.spawn(async move {
                        if let Err(error) = carry(&agent, &pod, port, socket).await {
                            terminal::print_error(&format!("port {port}: {error:#}"));
                        }
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(agent: &AgentClient, pod: &str, port: u16, socket: TcpStream) -> Result<()> {
    let stream = agent.forward(pod).await?;
    let (mut reader, mut writer) = spdy_link::connect(stream, FORWARD_PROTOCOL).await?;
    let port = port.to_string();
    for (stream, kind) in [(ERROR, "error"), (DATA, "data")] {
        let headers = [("streamtype", kind), ("port", port.as_str()), ("requestid", "0")];
        writer.open(stream, &headers).await?;
    }
    let (mut from_here, mut to_here) = socket.into_split();
    let sending = async {
        let mut part = vec![0; PART];
        loop {
            let read = from_here.read(&mut part).await.unwrap_or(0);
            let bytes = part[..read].to_vec();
            writer.send(&SpdyFrame::Data { stream: DATA, bytes, end: read == 0 }).await?;
            if read == 0 {
                return std::future::pending::<Result<()>>().await;
            }
        }
    };
    let receiving = async {
        let mut error_message = Vec::new();
        let (mut data_ended, mut error_ended) = (false, false);
        while !(data_ended && error_ended) {
            match reader.next().await? {
                Some(SpdyFrame::Data { stream: DATA, bytes, end }) => {
                    if to_here.write_all(&bytes).await.is_err() {
                        return Ok(());
                    }
                    if end {
                        let _ = to_here.shutdown().await;
                        data_ended = true;
                    }
                }
                Some(SpdyFrame::Data { stream: ERROR, bytes, end }) => {
                    let room = MAX_ERROR_BYTES - error_message.len();
                    error_message.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    error_ended |= end;
                }
                Some(SpdyFrame::Reset { stream: DATA, .. }) => data_ended = true,
                Some(SpdyFrame::Reset { stream: ERROR, .. }) => error_ended = true,
                None | Some(SpdyFrame::GoAway { .. }) => break,
                Some(_) => {}
            }
            if !error_message.is_empty() && error_ended {
                break;
            }
        }
        if !error_message.is_empty() {
            bail!("{}", String::from_utf8_lossy(&error_message).trim());
        }
        Ok(())
    };
    tokio::select! {
        received = receiving => received,
        sent = sending => sent,
    }
}
