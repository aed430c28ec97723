//! Connections to a pod's ports, made inside its network namespace.
//!
//! Rule: only the sockets are created in the pod's namespace, on a thread of the blocking pool,
//! which takes no time; connecting is asynchronous. A pod that does not answer delays only clients
//! that connect to it.
//!
//! upstream: containerd internal/cri/server/sandbox_portforward_linux.go

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::net::{TcpSocket, TcpStream};

use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::runtime::Runtime;

#[cfg(test)]
mod tests;

/// For both addresses together.
const CONNECT: Duration = Duration::from_secs(15);

/// A pod, and its network namespace.
#[derive(Debug, Clone)]
pub(in crate::streams) struct PodDialer {
    pub(in crate::streams) sandbox: String,
    /// None: the host's.
    pub(in crate::streams) namespace: Option<String>,
}

impl Runtime {
    pub(in crate::streams) fn dialer(&self, sandbox: &str) -> Result<PodDialer> {
        let found = self.record_store.sandbox(sandbox)?;
        let namespace = found.record().network.map(|network| network.namespace);
        Ok(PodDialer { sandbox: sandbox.to_owned(), namespace })
    }
}

/// An unconnected socket, or the error.
type UnconnectedSocket = std::io::Result<OwnedFd>;

fn make(family: AddressFamily) -> UnconnectedSocket {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

fn both() -> [UnconnectedSocket; 2] {
    [make(AddressFamily::INET), make(AddressFamily::INET6)]
}

impl PodDialer {
    /// A connection to a port of the pod, from inside its network namespace.
    pub(in crate::streams) async fn connect(&self, port: u16) -> Result<TcpStream> {
        let sockets = self.sockets().await?;
        let connected = tokio::time::timeout(CONNECT, first_of(sockets, port)).await;
        let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        connected.map_err(|error| {
            let place = self.namespace.as_deref().unwrap_or("the host's network");
            CriError::plain(format!(
                "failed to connect to localhost:{port} inside namespace {place:?}: {error}"
            ))
        })
    }

    async fn sockets(&self) -> Result<[UnconnectedSocket; 2]> {
        let Some(path) = self.namespace.clone() else { return Ok(both()) };
        blocking(move || {
            let file = std::fs::File::open(&path).doing(format!("opening {path}"))?;
            Ok(netlink::in_namespace(file.as_fd(), || Ok(both()))?)
        })
        .await
    }
}

/// The first that connects; otherwise the first error.
async fn first_of([four, six]: [UnconnectedSocket; 2], port: u16) -> std::io::Result<TcpStream> {
    match connect(four, (Ipv4Addr::LOCALHOST, port).into()).await {
        Ok(stream) => Ok(stream),
        Err(error) => connect(six, (Ipv6Addr::LOCALHOST, port).into()).await.map_err(|_| error),
    }
}

async fn connect(socket: UnconnectedSocket, address: SocketAddr) -> std::io::Result<TcpStream> {
    TcpSocket::from_std_stream(std::net::TcpStream::from(socket?)).connect(address).await
}
