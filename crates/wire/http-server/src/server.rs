//! Accepts connections and answers their requests.
//!
//! Rule: connections live inside the `serve` future and end with it. At the limit, the one that has
//! been idle longest is closed; if all are busy, the next one waits in the kernel's queue.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep, timeout};

use crate::Request;
use crate::activity::{ConnectionActivity, ConnectionSignal, TrackedStream};
use crate::answer::{HandlerResponse, UpgradeTask};
use crate::body::{Body, ResponseGuard};
use crate::listener::ConnectionListener;

/// After a failed `accept` (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// hyper's minimum.
const MIN_HEAD_BYTES: usize = 8 * 1024;

/// Limits of one server.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    pub connections: usize,
    /// The bytes of a request's line and headers.
    pub head_bytes: usize,
    /// For a handshake, and for a head from its first byte.
    pub head_timeout: Duration,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// For a response that sets no other limit.
    pub response_timeout: Duration,
    /// For the responses in flight when the server stops.
    pub shutdown_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            head_bytes: 32 * 1024,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            response_timeout: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// Answers requests. The future is dropped if the client disconnects or the time limit passes.
pub trait HttpRequestHandler<P>: Send + Sync + 'static {
    fn answer(&self, peer: &P, request: Request) -> impl Future<Output = HandlerResponse> + Send;
}

/// Serves until `end`; then the responses in flight are finished.
pub async fn serve<L, H>(
    listener: L,
    handler: Arc<H>,
    limits: ServerLimits,
    end: impl Future<Output = ()>,
) where
    L: ConnectionListener,
    H: HttpRequestHandler<L::Peer>,
{
    let mut connections = OpenConnections::default();
    let idle = Arc::new(Notify::new());
    let listener = Arc::new(listener);
    let limits = Arc::new(limits);
    let mut end = pin!(end);
    let mut waiting = None;
    loop {
        if let Some(accepted) =
            waiting.take_if(|_| connections.close_idle_connections(limits.connections))
        {
            let activity = Arc::new(ConnectionActivity::new(&limits, idle.clone()));
            let server = ConnectionContext {
                handler: handler.clone(),
                limits: limits.clone(),
                activity: activity.clone(),
            };
            connections.add(activity, run(server, listener.clone(), accepted));
        }
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept(), if waiting.is_none() => match accepted {
                Ok(accepted) => waiting = Some(accepted),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(()) = connections.next_ended() => {}
            () = idle.notified(), if waiting.is_some() => {}
        }
    }
    drop(listener);
    connections.end(limits.shutdown_timeout).await;
}

#[derive(Default)]
struct OpenConnections {
    tasks: JoinSet<()>,
    open: HashMap<Id, Arc<ConnectionActivity>>,
}

impl OpenConnections {
    fn add(
        &mut self,
        activity: Arc<ConnectionActivity>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.open.insert(id, activity);
    }

    /// Closes the connections that have been idle longest. `false` if all are busy.
    fn close_idle_connections(&mut self, max_connections: usize) -> bool {
        while self.open.len() >= max_connections {
            let idle = self.open.iter().filter_map(|(id, open)| Some((open.idle_since()?, *id)));
            let Some((_, id)) = idle.min_by_key(|(since, _)| *since) else { return false };
            if self.open.get(&id).is_some_and(|open| open.close_if_idle()) {
                self.open.remove(&id);
            }
        }
        true
    }

    /// `None` if there are no connections. Cancel-safe.
    async fn next_ended(&mut self) -> Option<()> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        self.open.remove(&id);
        Some(())
    }

    async fn end(mut self, max_duration: Duration) {
        for open in self.open.values() {
            open.end();
        }
        let ended = async { while self.next_ended().await.is_some() {} };
        let _ = timeout(max_duration, ended).await;
    }
}

/// What one connection's task needs.
struct ConnectionContext<H> {
    handler: Arc<H>,
    limits: Arc<ServerLimits>,
    activity: Arc<ConnectionActivity>,
}

/// A connection that becomes a stream.
struct PendingUpgrade {
    connection: OnUpgrade,
    task: UpgradeTask,
    guard: ResponseGuard,
}

impl PendingUpgrade {
    async fn run(self) {
        // If the client has disconnected meanwhile there is nothing to do.
        if let Ok(upgraded) = self.connection.await {
            (self.task)(upgraded).await;
        }
        drop(self.guard);
    }
}

/// The connection is closed; no further request is answered.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed")]
struct ConnectionClosed;

impl<H> ConnectionContext<H> {
    async fn answer<P>(
        &self,
        peer: &P,
        mut request: Request,
        upgrade: &Mutex<Option<PendingUpgrade>>,
    ) -> Result<Response<Body>, ConnectionClosed>
    where
        H: HttpRequestHandler<P>,
    {
        if !self.activity.begin_request(self.limits.response_timeout) {
            return Err(ConnectionClosed);
        }
        let connection = hyper::upgrade::on(&mut request);
        let answer = self.handler.answer(peer, request).await;
        if let Some(max_duration) = answer.within {
            self.activity.extend_deadline(max_duration);
        }
        let guard = ResponseGuard { activity: self.activity.clone(), _held: answer.held };
        let mut response = answer.response;
        match answer.upgrade {
            None => response.body_mut().guard = Some(guard),
            Some(task) => {
                let mut upgrade = upgrade.lock().unwrap_or_else(PoisonError::into_inner);
                *upgrade = Some(PendingUpgrade { connection, task, guard });
            }
        }
        Ok(response)
    }

    fn http1(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        // Timeouts are enforced by this crate, for the whole of a connection.
        builder.header_read_timeout(None).max_buf_size(self.limits.head_bytes.max(MIN_HEAD_BYTES));
        builder
    }
}

/// One connection, from its handshake to its end.
async fn run<L, H>(server: ConnectionContext<H>, listener: Arc<L>, accepted: L::Accepted)
where
    L: ConnectionListener,
    H: HttpRequestHandler<L::Peer>,
{
    let (activity, http1) = (server.activity.clone(), server.http1());
    let opened = tokio::select! {
        opened = listener.open(accepted) => opened,
        () = activity.closed() => None,
    };
    drop(listener);
    let Some((stream, peer)) = opened else { return };
    activity.opened();
    let upgrade: Arc<Mutex<Option<PendingUpgrade>>> = Arc::default();
    let shared = Arc::new((server, peer, upgrade.clone()));
    let service = service_fn(move |request: Request| {
        let shared = shared.clone();
        async move {
            let (server, peer, upgrade) = &*shared;
            server.answer(peer, request, upgrade).await
        }
    });
    let stream = TokioIo::new(TrackedStream::new(stream, activity.clone()));
    let mut connection = pin!(http1.serve_connection(stream, service).with_upgrades());
    let mut is_closing = false;
    loop {
        tokio::select! {
            // A client's error concerns this connection only.
            _ = &mut connection => break,
            signal = activity.signal(is_closing) => match signal {
                ConnectionSignal::Close => return,
                ConnectionSignal::End => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
    let upgrade = upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(upgrade) = upgrade else { return };
    tokio::select! {
        () = upgrade.run() => {}
        () = activity.closed() => {}
    }
}

#[cfg(test)]
mod tests;
