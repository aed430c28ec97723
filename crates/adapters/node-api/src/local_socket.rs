//! A unix socket that serves pages to its owner and to root.
//!
//! Rule: the caller is identified by the kernel's peer credentials; other users get no page,
//! whatever the socket's permissions have become. The socket is created for its owner only, and one
//! that a dead process left is replaced, while one that answers is not.

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
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// For a request made through the socket.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_BYTES: u64 = 16 * 1024 * 1024;

/// Why a socket was not created.
#[derive(Debug, thiserror::Error)]
pub enum PageSocketError {
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: std::io::Error },
    #[error("{}: it is no socket, and in the way", path.display())]
    NoSocket { path: PathBuf },
    #[error("{}: another process answers there", path.display())]
    InUse { path: PathBuf },
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageRequestError {
    #[error("{path:?} cannot be asked for")]
    InvalidPath { path: String },
    #[error("{}: {cause}", socket.display())]
    Io { socket: PathBuf, cause: std::io::Error },
    #[error("{}: no answer within {ANSWER_TIMEOUT:?}", socket.display())]
    Timeout { socket: PathBuf },
    #[error("{}: the answer is cut, or the caller may not ask", socket.display())]
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
    /// If it cannot be created, or another process answers on it: a message with the path.
    pub async fn listen(path: &Path) -> Result<Self, PageSocketError> {
        let failed = |cause| PageSocketError::Io { path: path.to_owned(), cause };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(PageSocketError::NoSocket { path: path.to_owned() });
            }
            Ok(_) if UnixStream::connect(path).await.is_ok() => {
                return Err(PageSocketError::InUse { path: path.to_owned() });
            }
            Ok(_) => std::fs::remove_file(path).map_err(failed)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, owner_only).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves for ever.
    pub async fn serve(self, pages: Arc<dyn Pages>) {
        let mut connections = JoinSet::new();
        loop {
            let full = connections.len() >= MAX_CONNECTIONS;
            tokio::select! {
                accepted = self.listener.accept(), if !full => match accepted {
                    Ok((stream, _)) if is_allowed_peer(&stream) => {
                        connections.spawn(serve_connection(stream, pages.clone()));
                    }
                    Ok(_) => {}
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
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

async fn serve_connection(stream: UnixStream, pages: Arc<dyn Pages>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let pages = pages.clone();
        async move {
            let uri = request.uri();
            let query = uri.query().unwrap_or_default().to_owned();
            let wanted = PageRequest { path: uri.path().to_owned(), query };
            let page: Page = pages.answer(&wanted).await;
            Ok::<Response<String>, Infallible>(page.into_response())
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
}

/// Requests a page from a process of this machine. The path must need no escaping.
///
/// # Errors
/// If there is no response in time, or it is no page: a sentence with the path.
pub async fn request_page(socket: &Path, path: &str) -> Result<(u16, String), PageRequestError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte);
    if !path.bytes().all(plain) {
        return Err(PageRequestError::InvalidPath { path: path.to_owned() });
    }
    let at = || socket.to_owned();
    let work = async {
        let mut stream = UnixStream::connect(socket).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = match timeout(ANSWER_TIMEOUT, work).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(cause)) => return Err(PageRequestError::Io { socket: at(), cause }),
        Err(_) => return Err(PageRequestError::Timeout { socket: at() }),
    };
    let text = String::from_utf8_lossy(&answer);
    // Pages have a Content-Length, so there is no chunked encoding.
    let page = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        Some((status, body.to_owned()))
    });
    page.ok_or_else(|| PageRequestError::InvalidResponse { socket: at() })
}

#[cfg(test)]
mod tests;
