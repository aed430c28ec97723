//! Connections that are passed on, byte for byte.
//!
//! Rule: a connection whose other side cannot be reached is closed; the listeners go on. Each
//! direction ends by itself, as TCP has it.

use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// From a port of this machine to a socket.
pub(super) async fn tcp_to_unix(listener: TcpListener, socket: PathBuf) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let socket = socket.clone();
        tokio::spawn(async move {
            if let Ok(server) = UnixStream::connect(&socket).await {
                pass_on(client, server).await;
            }
        });
    }
}

/// From a socket, which is made, to an address.
pub(super) async fn unix_to_tcp(socket: PathBuf, address: String) {
    let Some(listener) = listen(&socket) else { return };
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let address = address.clone();
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(&address).await {
                pass_on(client, server).await;
            }
        });
    }
}

/// From a socket, which is made, to another.
pub(super) async fn unix_to_unix(socket: PathBuf, target: PathBuf) {
    let Some(listener) = listen(&socket) else { return };
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let target = target.clone();
        tokio::spawn(async move {
            if let Ok(server) = UnixStream::connect(&target).await {
                pass_on(client, server).await;
            }
        });
    }
}

fn listen(socket: &PathBuf) -> Option<UnixListener> {
    match UnixListener::bind(socket) {
        Ok(listener) => Some(listener),
        Err(error) => {
            eprintln!("cluster: {}: {error}", socket.display());
            None
        }
    }
}

async fn pass_on(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
) {
    // The side that closed it knows why.
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
