//! Asks the agent over its local socket.
//!
//! Rule: one request per connection, a deadline on all of it and a cap on the answer. An agent that
//! is not there, or may not be asked, is said in one line with the next step.

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use ports::local_api::{LocalPodDetail, LocalPods, LocalRefusal, LocalStopped, LocalVersion};
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

const DEADLINE: Duration = Duration::from_secs(10);
/// A thousand pods of 30 KB each.
const MOST_BYTES: usize = 32 << 20;

pub(super) struct Agent {
    socket: PathBuf,
}

impl Agent {
    pub(super) fn at(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf() }
    }

    pub(super) async fn pods(&self) -> Result<LocalPods> {
        self.ask(Method::GET, "/v1/pods").await
    }

    pub(super) async fn pod(&self, uid: &str) -> Result<LocalPodDetail> {
        self.ask(Method::GET, &format!("/v1/pods/{uid}")).await
    }

    /// Waits until something is newer than that version.
    pub(super) async fn changed(&self, since: u64) -> Result<u64> {
        let path = format!("/v1/changes/{since}");
        let answer: LocalVersion = self.exchange(Method::GET, &path).await?;
        Ok(answer.version)
    }

    pub(super) async fn stop(&self, uid: &str) -> Result<LocalStopped> {
        self.ask(Method::POST, &format!("/v1/pods/{uid}/stop")).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T> {
        tokio::time::timeout(DEADLINE, self.exchange(method, path)).await.map_err(|_| {
            anyhow!("the agent at {} did not answer within 10 s", self.socket.display())
        })?
    }

    async fn exchange<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T> {
        let place = self.socket.display();
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
                "no agent answers at {place}; is `keelson kubelet` running? (--socket names another)"
            ),
            ErrorKind::PermissionDenied => anyhow!("may not open {place}; ask as root"),
            _ => anyhow!("cannot connect to {place}: {error}"),
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "keelson")
            .body(Empty::<Bytes>::new())?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            let body = body.map_err(|error| anyhow!("the agent's answer: {error}"))?.to_bytes();
            drop(sender);
            anyhow::Ok((status, body))
        };
        let (exchanged, _) = tokio::join!(exchange, connection);
        let (status, body) = exchanged.with_context(|| format!("ask the agent at {place}"))?;
        if status.is_success() {
            return serde_json::from_slice(&body).context("the agent's answer cannot be read");
        }
        match serde_json::from_slice::<LocalRefusal>(&body) {
            Ok(refusal) => bail!("{refusal}"),
            Err(_) => bail!("the agent refused {path}: {status}"),
        }
    }
}
