//! Client of the agent's local socket.
//!
//! Rule: one request per connection, with a deadline and a cap on the response. If the agent is not
//! running or refuses the caller, the error is one line with the next step.

use crate::pod_streams::PodStream;
use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::http::request::Builder;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use ports::local_api::{
    LocalAcceptedPods, LocalApiError, LocalManifests, LocalPodDetail, LocalPods, LocalStateVersion,
    LocalStopAccepted,
};
use ports::local_plugins::LocalPlugins;
use ports::local_runtime::{
    LocalCommand, LocalImageName, LocalImages, LocalProcess, LocalUsages, STREAM_UPGRADE,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

const DEADLINE: Duration = Duration::from_secs(10);
/// For requests that the agent passes on to its runtime.
const RUNTIME_DEADLINE: Duration = Duration::from_secs(60);
/// A thousand pods of 30 KB each.
const MOST_BYTES: usize = 32 << 20;

/// No agent listens at the socket, as opposed to an agent that refuses.
#[derive(Debug, thiserror::Error)]
#[error("no agent answers at {}; is `keelson kubelet` or `keelson run` running? (--socket names another)", .0.display())]
pub(crate) struct NoAgentError(PathBuf);

#[derive(Debug, Clone)]
pub(crate) struct AgentClient {
    socket: PathBuf,
}

impl AgentClient {
    pub(crate) fn at(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf() }
    }

    pub(crate) async fn pods(&self) -> Result<LocalPods> {
        self.get("/v1/pods").await
    }

    pub(crate) async fn pod(&self, uid: &str) -> Result<LocalPodDetail> {
        self.get(&format!("/v1/pods/{uid}")).await
    }

    /// Waits for a version newer than `since`.
    pub(crate) async fn changed(&self, since: u64) -> Result<u64> {
        let path = format!("/v1/changes/{since}");
        let answer: LocalStateVersion = self.exchange(Method::GET, &path, Bytes::new()).await?;
        Ok(answer.version)
    }

    pub(crate) async fn stop(&self, uid: &str) -> Result<LocalStopAccepted> {
        self.post(&format!("/v1/pods/{uid}/stop"), &(), DEADLINE).await
    }

    pub(crate) async fn take(&self, manifests: &LocalManifests) -> Result<LocalAcceptedPods> {
        self.post("/v1/pods", manifests, DEADLINE).await
    }

    pub(crate) async fn exec(&self, container: &str, command: &LocalCommand) -> Result<PodStream> {
        self.stream(&format!("/v1/containers/{container}/exec"), command).await
    }

    pub(crate) async fn attach(
        &self,
        container: &str,
        command: &LocalCommand,
    ) -> Result<PodStream> {
        self.stream(&format!("/v1/containers/{container}/attach"), command).await
    }

    pub(crate) async fn forward(&self, uid: &str) -> Result<PodStream> {
        self.stream(&format!("/v1/pods/{uid}/forward"), &()).await
    }

    pub(crate) async fn process(&self, container: &str) -> Result<LocalProcess> {
        self.get(&format!("/v1/containers/{container}/process")).await
    }

    pub(crate) async fn plugins(&self) -> Result<LocalPlugins> {
        self.get("/v1/plugins").await
    }

    pub(crate) async fn usage(&self) -> Result<LocalUsages> {
        self.get("/v1/usage").await
    }

    pub(crate) async fn images(&self) -> Result<LocalImages> {
        self.get("/v1/images").await
    }

    pub(crate) async fn remove_image(&self, name: &str) -> Result<LocalImageName> {
        let name = LocalImageName { name: name.to_owned() };
        self.post("/v1/images/remove", &name, RUNTIME_DEADLINE).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.within(DEADLINE, self.exchange(Method::GET, path, Bytes::new())).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        self.within(limit, self.exchange(Method::POST, path, body)).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        asked: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::time::timeout(limit, asked).await.map_err(|_| {
            anyhow!("the agent at {} did not answer within {limit:?}", self.socket.display())
        })?
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T> {
        let request = Request::builder().method(method).uri(path);
        match self.ask(request, body).await? {
            AgentResponse::Body(status, content) => decode_answer(path, status, &content),
            AgentResponse::Upgraded(_) => {
                bail!("the agent upgraded the connection for {path} without a request")
            }
        }
    }

    /// Offers this connection for the stream; an agent that declines returns an address.
    async fn stream(&self, path: &str, body: &impl Serialize) -> Result<PodStream> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        let request =
            Request::post(path).header("connection", "Upgrade").header("upgrade", STREAM_UPGRADE);
        match self.within(RUNTIME_DEADLINE, self.ask(request, body)).await? {
            AgentResponse::Body(status, content) => {
                decode_answer(path, status, &content).map(PodStream::Address)
            }
            AgentResponse::Upgraded(upgraded) => {
                Ok(PodStream::Open(Box::new(TokioIo::new(upgraded))))
            }
        }
    }

    async fn ask(&self, request: Builder, body: Bytes) -> Result<AgentResponse> {
        let place = self.socket.display();
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    NoAgentError(self.socket.clone()).into()
                }
                ErrorKind::PermissionDenied => anyhow!("may not open {place}; ask as root"),
                _ => anyhow!("cannot connect to {place}: {error}"),
            })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = request.header("host", "keelson").body(Full::new(body))?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(AgentResponse::Upgraded(hyper::upgrade::on(answer).await?));
            }
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            let body = body.map_err(|error| anyhow!("the agent's answer: {error}"))?.to_bytes();
            drop(sender);
            anyhow::Ok(AgentResponse::Body(status, body))
        };
        let (exchanged, _) = tokio::join!(exchange, connection.with_upgrades());
        exchanged.with_context(|| format!("ask the agent at {place}"))
    }
}

/// The result of a request.
enum AgentResponse {
    Body(StatusCode, Bytes),
    /// The connection no longer speaks HTTP.
    Upgraded(Upgraded),
}

fn decode_answer<T: DeserializeOwned>(path: &str, status: StatusCode, content: &[u8]) -> Result<T> {
    if status.is_success() {
        return serde_json::from_slice(content).context("the agent's answer cannot be read");
    }
    match serde_json::from_slice::<LocalApiError>(content) {
        Ok(refusal) => bail!("{refusal}"),
        Err(_) => bail!("the agent refused {path}: {status}"),
    }
}
