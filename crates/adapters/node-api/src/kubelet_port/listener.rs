//! TLS connections of the kubelet's port.
//!
//! Rule: accepting never waits for a handshake; a new certificate applies from the next connection
//! on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_server::ConnectionListener;
use rustix::net::sockopt;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::info;

use super::credentials::PortCredentials;

/// Closes a stream whose client is gone. upstream: Go's default
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) struct TlsListener {
    pub(super) listener: TcpListener,
    pub(super) credentials: Arc<PortCredentials>,
}

/// The client's credentials in the handshake.
pub(super) struct Peer {
    /// The client has its key; the issuer is not verified yet.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl ConnectionListener for TlsListener {
    type Accepted = TcpStream;
    type Stream = TlsStream<TcpStream>;
    type Peer = Peer;

    async fn accept(&self) -> io::Result<TcpStream> {
        Ok(self.listener.accept().await?.0)
    }

    async fn open(&self, accepted: TcpStream) -> Option<(Self::Stream, Peer)> {
        // Socket options; a connection works without any of them.
        let _ = accepted.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&accepted, true)
            .and_then(|()| sockopt::set_tcp_keepidle(&accepted, KEEP_ALIVE))
            .and_then(|()| sockopt::set_tcp_keepintvl(&accepted, KEEP_ALIVE));
        let Some(config) = self.credentials.current().server.clone() else {
            info!(v = 2, "No serving certificate available for the kubelet");
            return None;
        };
        let stream = TlsAcceptor::from(config).accept(accepted).await.ok()?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        Some((stream, Peer { certificates }))
    }
}
