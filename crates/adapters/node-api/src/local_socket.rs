//! A unix socket that serves pages over HTTP to its owner and to root.
//!
//! Rule: the client is identified by the kernel's peer credentials; the connection of any other
//! user is closed, even if the socket's mode was changed. The socket is created with mode 0600. A
//! socket that nothing listens on is replaced; one that accepts connections is an error.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::page::{Page, PageRequest, Pages};

const MAX_CONNECTIONS: usize = 16;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// For a request that this process sends.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_BYTES: u64 = 16 * 1024 * 1024;

/// Why a socket was not created.
#[derive(Debug, thiserror::Error)]
pub enum PageSocketError {
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: std::io::Error },
    #[error("{}: a file that is not a socket is in the way", path.display())]
    NoSocket { path: PathBuf },
    #[error("{}: another process listens there", path.display())]
    InUse { path: PathBuf },
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageRequestError {
    #[error("{path:?} contains characters that a page's path cannot have")]
    InvalidPath { path: String },
    #[error("{}: {cause}", socket.display())]
    Io { socket: PathBuf, cause: std::io::Error },
    #[error("{}: no answer within {RESPONSE_TIMEOUT:?}", socket.display())]
    Timeout { socket: PathBuf },
    #[error("{}: the response is truncated, or this user is not allowed to ask", socket.display())]
    InvalidResponse { socket: PathBuf },
}

/// A listening socket; its file is removed when it is dropped.
pub struct PageSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl PageSocket {
    /// Creates the socket, and its directory if needed.
    ///
    /// # Errors
    /// If the socket cannot be created or another process listens on it.
    pub async fn listen(path: &Path) -> Result<Self, PageSocketError> {
        let with_path = |cause| PageSocketError::Io { path: path.to_owned(), cause };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(with_path)?;
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(PageSocketError::NoSocket { path: path.to_owned() });
            }
            Ok(_) if UnixStream::connect(path).await.is_ok() => {
                return Err(PageSocketError::InUse { path: path.to_owned() });
            }
            Ok(_) => std::fs::remove_file(path).map_err(with_path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(with_path(error)),
        }
        let listener = UnixListener::bind(path).map_err(with_path)?;
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, owner_only).map_err(with_path)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves connections until the task is cancelled.
    pub async fn serve(self, pages: Arc<dyn Pages>) {
        let mut connections = JoinSet::new();
        loop {
            let full = connections.len() >= MAX_CONNECTIONS;
            tokio::select! {
                accepted = self.listener.accept(), if !full => match accepted {
                    Ok((stream, _)) if is_allowed_peer(&stream) => {
                        connections.spawn(serve_connection(stream, pages.clone()));
                    }
                    Ok((_other_user, _)) => {}
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

impl Drop for PageSocket {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the peer is root or the user of this process.
fn is_allowed_peer(stream: &UnixStream) -> bool {
    let own_uid = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own_uid)
}

async fn serve_connection(stream: UnixStream, pages: Arc<dyn Pages>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let pages = pages.clone();
        async move {
            let uri = request.uri();
            let query = uri.query().unwrap_or_default().to_owned();
            let page_request = PageRequest { path: uri.path().to_owned(), query };
            let page: Page = pages.answer(&page_request).await;
            Ok::<Response<String>, Infallible>(page.into_response())
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
}

/// Requests a page from the process that listens on `socket`; returns status and body. The path
/// must need no escaping.
///
/// # Errors
/// If there is no valid response in time: a message with the path.
pub async fn request_page(socket: &Path, path: &str) -> Result<(u16, String), PageRequestError> {
    let needs_no_escaping = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte);
    if !path.bytes().all(needs_no_escaping) {
        return Err(PageRequestError::InvalidPath { path: path.to_owned() });
    }
    let at = || socket.to_owned();
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    let response = match timeout(RESPONSE_TIMEOUT, exchange).await {
        Ok(Ok(response)) => response,
        Ok(Err(cause)) => return Err(PageRequestError::Io { socket: at(), cause }),
        Err(_) => return Err(PageRequestError::Timeout { socket: at() }),
    };
    let text = String::from_utf8_lossy(&response);
    // Pages have a Content-Length, so there is no chunked encoding.
    let page = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        Some((status, body.to_owned()))
    });
    page.ok_or_else(|| PageRequestError::InvalidResponse { socket: at() })
}

#[cfg(test)]
mod tests;
