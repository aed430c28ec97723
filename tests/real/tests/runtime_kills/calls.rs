//! Calls to a server that may die in the middle of them.
//!
//! Rule: a call ends with a response, with an error from a server that lived, or as interrupted:
//! then it returns when the next server answers. The calls in flight at any instant are known, so
//! that a kill can report what it hit.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use cri_wire::v1;
use cri_wire::v1::image_service_client::ImageServiceClient;
use cri_wire::v1::runtime_service_client::RuntimeServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// No call takes this long, however busy the machine.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) enum CallOutcome<T> {
    Answer(T),
    Refused(Status),
    Interrupted,
}

#[derive(Debug, Clone)]
pub(crate) struct RetryingClient {
    channel: Channel,
    shared: Arc<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    /// Number of the server; incremented when one has died or is about to.
    life: AtomicU64,
    up: watch::Sender<bool>,
    busy: Mutex<BTreeMap<&'static str, usize>>,
}

/// A call in flight.
struct InFlightCall<'a>(&'a ConnectionState, &'static str);

impl<'a> InFlightCall<'a> {
    fn new(shared: &'a ConnectionState, what: &'static str) -> Self {
        *shared.locked().entry(what).or_default() += 1;
        Self(shared, what)
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0.locked().get_mut(self.1) {
            *count -= 1;
        }
    }
}

impl ConnectionState {
    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RetryingClient {
    pub(crate) fn new(socket: &Path) -> Self {
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel =
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        let shared = ConnectionState {
            life: AtomicU64::new(0),
            up: watch::Sender::new(false),
            busy: Mutex::default(),
        };
        Self { channel, shared: Arc::new(shared) }
    }

    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(cri_wire::MESSAGE_SIZE_LIMIT)
    }

    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone())
    }

    /// Call this before a server is killed, or when it was found dead.
    pub(crate) fn mark_down(&self) {
        self.shared.up.send_replace(false);
        self.shared.life.fetch_add(1, Ordering::SeqCst);
        // Wakes tasks that wait for the next server.
        self.shared.up.send_replace(false);
    }

    pub(crate) fn mark_up(&self) {
        self.shared.up.send_replace(true);
    }

    /// The number of this server.
    pub(crate) fn life(&self) -> u64 {
        self.shared.life.load(Ordering::SeqCst)
    }

    /// The calls in flight, without read-only ones.
    pub(crate) fn in_flight(&self) -> Vec<String> {
        let busy = self.shared.locked();
        let some = busy.iter().filter(|(_, count)| **count > 0);
        some.map(|(what, count)| format!("{count} {what}")).collect()
    }

    pub(crate) async fn wait_until_up(&self) {
        let _ = self.shared.up.subscribe().wait_for(|up| *up).await;
    }

    /// Makes a mutating call; see the rule above.
    pub(crate) async fn change<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<CallOutcome<T>> {
        self.wait_until_up().await;
        let _busy = InFlightCall::new(&self.shared, what);
        self.await_outcome(what, call).await
    }

    /// Makes a read-only call; retries it if it was interrupted.
    pub(crate) async fn look<T, F: Future<Output = Result<tonic::Response<T>, Status>>>(
        &self,
        what: &'static str,
        mut call: impl FnMut(RuntimeServiceClient<Channel>) -> F,
    ) -> Result<Result<T, Status>> {
        loop {
            self.wait_until_up().await;
            match self.await_outcome(what, call(self.runtime())).await? {
                CallOutcome::Answer(answer) => return Ok(Ok(answer)),
                CallOutcome::Refused(status) => return Ok(Err(status)),
                CallOutcome::Interrupted => {}
            }
        }
    }

    async fn await_outcome<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<CallOutcome<T>> {
        let life = self.life();
        let status = match tokio::time::timeout(LIMIT, call).await {
            Err(_) => bail!("{what}: no answer within {LIMIT:?}"),
            Ok(Ok(answer)) => return Ok(CallOutcome::Answer(answer.into_inner())),
            Ok(Err(status)) => status,
        };
        // What a server says has no cause on this side; the end of a connection has.
        if status.source().is_none() && self.life() == life {
            return Ok(CallOutcome::Refused(status));
        }
        if self.wait_for_new_server(life).await {
            return Ok(CallOutcome::Interrupted);
        }
        bail!("{what}: the connection ended, and nobody killed the server: {status}")
    }

    /// Waits for the server after this one; false if this one seems to live.
    pub(crate) async fn wait_for_new_server(&self, life: u64) -> bool {
        let mut up = self.shared.up.subscribe();
        let another = async {
            while self.life() == life {
                let _ = up.changed().await;
            }
            let _ = up.wait_for(|up| *up).await;
        };
        tokio::time::timeout(LIMIT, another).await.is_ok()
    }

    /// Whether a server answers now.
    pub(crate) async fn is_answering(&self) -> bool {
        let asking = self.runtime().version(v1::VersionRequest::default()).await;
        asking.is_ok()
    }
}
