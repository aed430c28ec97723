//! Sends requests and reads responses.
//!
//! Rule: the deadline covers all of a request: rate limiting, credentials, connection, pauses that
//! the server asked for, and the response. A request is sent again only when that is safe: it was
//! not sent, it only reads, or the server asked for a retry.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use ports::ClusterApiError;
use tokio::time::{Instant, timeout_at};

use crate::access::ClusterAccess;
pub use crate::connections::Pings;
use crate::connections::{Body, ConnectionPool, RequestSlot, SendError, causes};
use crate::credentials::{Credentials, CredentialsSnapshot};
use crate::request::{ApiRequest, PROTOBUF, percent_encode};
use crate::request_error::{ApiStatus, MAX_PAUSE, retry_after};
use crate::request_metrics::RequestMetrics;
use crate::token_bucket::{RateLimit, RequestTokenBucket};

/// How often a request is retried because the server asked for it, and because its connection
/// ended.
const MAX_SERVER_RETRIES: u32 = 10;
const MAX_RESENDS: u32 = 2;
/// How much of an error response's body is read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Settings of a client; the defaults are client-go's, where it has any.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    pub user_agent: String,
    /// The field manager under which the API server records our changes.
    pub field_manager: String,
    /// `None`: no rate limit. Watches are not counted.
    pub rate: Option<RateLimit>,
    pub deadline: Duration,
    /// For one page of a list.
    pub page_deadline: Duration,
    pub page_size: u32,
    /// The longest object, page and watch event that is accepted, in bytes.
    pub object_limit: usize,
    pub page_limit: usize,
    pub line_limit: usize,
    /// The shortest timeout that a watch asks for; the longest is twice as long.
    pub watch_lasts: Duration,
    /// How long a watch may be silent. Bookmarks come every minute.
    pub watch_silence: Duration,
    pub pings: Pings,
    /// Changes of nodes and their leases that arrive within this time are read together.
    pub heartbeat_batch_interval: Duration,
    pub jitter: JitterSource,
    /// Where requests are counted; clients may share it.
    pub metrics: Arc<RequestMetrics>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("keelson/", env!("CARGO_PKG_VERSION")).to_owned(),
            field_manager: "keelson".to_owned(),
            rate: Some(RateLimit::USUAL),
            deadline: Duration::from_secs(15),
            page_deadline: Duration::from_secs(60),
            page_size: 500,
            object_limit: 4 * 1024 * 1024,
            page_limit: 32 * 1024 * 1024,
            line_limit: 4 * 1024 * 1024,
            watch_lasts: Duration::from_secs(300),
            watch_silence: Duration::from_secs(150),
            pings: Pings {
                every: Duration::from_secs(30),
                answered_within: Duration::from_secs(15),
            },
            heartbeat_batch_interval: Duration::ZERO,
            jitter: JitterSource::random(),
            metrics: Arc::default(),
        }
    }
}

/// A value of the options or of the access that cannot be written into a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{header}: cannot be written into a header")]
pub struct InvalidHeaderError {
    pub header: String,
}

/// Why there are no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CredentialsError {
    /// Names the file or the plugin.
    pub reason: String,
}

/// Source of the jitter: numbers between zero and one.
#[derive(Clone)]
pub struct JitterSource(Arc<dyn Fn() -> f64 + Send + Sync>);

impl JitterSource {
    pub fn new(numbers: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(numbers))
    }

    /// Random numbers from the kernel.
    pub fn random() -> Self {
        Self::new(|| {
            let mut bytes = [0_u8; 4];
            // Without randomness there is no jitter, which is harmless.
            let _ = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK);
            f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
        })
    }

    pub(crate) fn next(&self) -> f64 {
        (self.0)()
    }
}

impl fmt::Debug for JitterSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Spread")
    }
}

/// A client of one API server. Clones share connections, credentials and rate.
#[derive(Debug, Clone)]
pub struct ApiClient {
    shared: Arc<SharedClient>,
    bucket: Option<Arc<Mutex<RequestTokenBucket>>>,
    deadline: Duration,
    /// Uses the connections that are read in batches.
    batched: bool,
}

#[derive(Debug)]
struct SharedClient {
    access: ClusterAccess,
    headers: Vec<(HeaderName, HeaderValue)>,
    options: ClientOptions,
    credentials: Credentials,
    connections: ConnectionPool,
    /// Separate, so that no other request waits for their batching.
    heartbeats: ConnectionPool,
    began: Instant,
}

/// A response whose body has not been read. Keeps its slot on the connection.
#[derive(Debug)]
pub(crate) struct StreamingResponse {
    pub(crate) body: Incoming,
    pub(crate) generation: u64,
    pub(crate) slot: RequestSlot,
    /// A watch whose events are protobuf frames.
    pub(crate) protobuf: bool,
}

/// What to do after an attempt that failed.
enum RetryDecision {
    Retry,
    Fail(ClusterApiError),
}

impl ApiClient {
    /// Creates a client; nothing is read and no connection is opened yet. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the user agent or the user to impersonate is not a valid header value.
    pub fn new(access: ClusterAccess, options: ClientOptions) -> Result<Self, InvalidHeaderError> {
        let headers = fixed_headers(&access, &options)?;
        let connections =
            |batch_interval| ConnectionPool::new(&access, options.pings, batch_interval);
        Ok(Self {
            batched: false,
            deadline: options.deadline,
            bucket: new_bucket(options.rate),
            shared: Arc::new(SharedClient {
                headers,
                credentials: Credentials::new(access.clone()),
                connections: connections(Duration::ZERO),
                heartbeats: connections(options.heartbeat_batch_interval),
                began: Instant::now(),
                access,
                options,
            }),
        })
    }

    /// The same client with another deadline for single objects, such as a lease's.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same client for a caller that waits at most this long for a response about one object.
    /// The client's own deadline is a little shorter: a request that is dropped from outside
    /// records nothing about its connection, and the next one would use the same dead connection.
    #[must_use]
    pub fn with_caller_timeout(&self, timeout: Duration) -> Self {
        self.with_deadline(timeout * 9 / 10)
    }

    /// The same client with a rate limiter of its own, with the same rate: its requests never queue
    /// behind the other's, while connections and credentials are shared. For requests that must not
    /// be late, such as the renewal of a leader's lease.
    #[must_use]
    pub fn with_own_rate_limit(&self) -> Self {
        Self { bucket: new_bucket(self.options().rate), ..self.clone() }
    }

    /// The same client over the connections that are read in batches.
    pub(crate) fn batched(&self) -> Self {
        Self { batched: !self.options().heartbeat_batch_interval.is_zero(), ..self.clone() }
    }

    fn connections(&self) -> &ConnectionPool {
        if self.batched { &self.shared.heartbeats } else { &self.shared.connections }
    }

    /// The namespace of the kubeconfig's context.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.access.namespace
    }

    /// Reads files and plugins now; what has changed is used from here on, and watches move to a
    /// new connection. Requests check every few seconds anyway.
    ///
    /// # Errors
    /// If there are no credentials at all.
    pub async fn refresh_credentials(&self) -> Result<(), CredentialsError> {
        let read = self.shared.credentials.current(true).await;
        read.map(drop).map_err(|reason| CredentialsError { reason })
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    pub(crate) fn generations(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.credentials.generations()
    }

    pub(crate) fn retire(&self, slot: &RequestSlot) {
        self.connections().retire(slot);
    }

    /// Sends a request about one object and reads the whole response.
    pub(crate) async fn request_object(
        &self,
        request: &ApiRequest,
    ) -> Result<Bytes, ClusterApiError> {
        let limit = self.shared.options.object_limit;
        self.request_within(request, self.deadline, limit, BytesMut::new()).await
    }

    /// Sends a request with a deadline and a limit on the response's size. It is read into one
    /// buffer, so that a series of long responses needs no allocation for each.
    pub(crate) async fn request_within(
        &self,
        request: &ApiRequest,
        deadline: Duration,
        limit: usize,
        buffer: BytesMut,
    ) -> Result<Bytes, ClusterApiError> {
        let until = Instant::now() + deadline;
        self.wait_for_rate_limit(request, until).await?;
        let mut answer = self.open(request, until).await?;
        match collect(&mut answer.body, limit, buffer, until).await {
            Ok(bytes) => Ok(bytes),
            Err(ReadBodyFailure::TooLarge) => {
                Err(ClusterApiError::TooLarge { request: request.description.clone(), limit })
            }
            Err(ReadBodyFailure::Cut(cause)) => {
                self.retire(&answer.slot);
                Err(ClusterApiError::NoResponse { request: request.description.clone(), cause })
            }
        }
    }

    /// Sends a request until it succeeds or no retry is left.
    pub(crate) async fn open(
        &self,
        request: &ApiRequest,
        until: Instant,
    ) -> Result<StreamingResponse, ClusterApiError> {
        let (mut server_retries, mut sent) = (0, 0);
        loop {
            let (snapshot, slot) = self.prepare(request, until).await?;
            let message = self.message(request, &snapshot, &slot)?;
            let begun = Instant::now();
            let response = timeout_at(until, slot.send(message)).await;
            self.count(request, &response, begun);
            let response = match response {
                Ok(Ok(response)) => response,
                Ok(Err(request_error)) => {
                    sent += 1;
                    self.retire(&slot);
                    let can_resend = sent <= MAX_RESENDS;
                    match after_send_error(request, request_error, can_resend && !slot.fresh) {
                        RetryDecision::Retry => continue,
                        RetryDecision::Fail(error) => return Err(error),
                    }
                }
                Err(_) => {
                    // The connection may be dead; the next request finds out on a new one.
                    self.retire(&slot);
                    let cause = "no response in time".to_owned();
                    return Err(ClusterApiError::NoResponse {
                        request: request.description.clone(),
                        cause,
                    });
                }
            };
            if response.status().is_success() {
                let kind = response.headers().get(header::CONTENT_TYPE);
                let protobuf =
                    kind.is_some_and(|it| it.as_bytes().starts_with(PROTOBUF.as_bytes()));
                let (body, generation) = (response.into_body(), snapshot.generation);
                return Ok(StreamingResponse { body, generation, slot, protobuf });
            }
            server_retries += 1;
            // Boxed: rare and large, like connecting.
            let error_response =
                self.error_response(request, response, until, server_retries <= MAX_SERVER_RETRIES);
            match Box::pin(error_response).await {
                RetryDecision::Retry => {}
                RetryDecision::Fail(error) => return Err(error),
            }
        }
    }

    /// Counts an attempt.
    fn count<E>(
        &self,
        request: &ApiRequest,
        response: &Result<Result<Response<Incoming>, SendError>, E>,
        begun: Instant,
    ) {
        let code = match response {
            Ok(Ok(response)) => Some(response.status().as_u16()),
            _ => None,
        };
        let took = (!request.is_watch()).then(|| begun.elapsed());
        let host = self.shared.access.server.authority();
        self.options().metrics.attempt(&host, request.method.as_str(), code, took);
    }

    async fn wait_for_rate_limit(
        &self,
        request: &ApiRequest,
        until: Instant,
    ) -> Result<(), ClusterApiError> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let wait = lock(bucket).take(self.shared.began.elapsed());
        let host = self.shared.access.server.authority();
        self.options().metrics.waited(&host, request.method.as_str(), wait);
        if wait.is_zero() {
            return Ok(());
        }
        let reserved = ReservedToken(Some(bucket));
        if wait >= until.saturating_duration_since(Instant::now()) {
            return Err(ClusterApiError::RateLimited {
                request: request.description.clone(),
                rate_limit_delay: wait.min(MAX_PAUSE),
            });
        }
        tokio::time::sleep(wait).await;
        reserved.mark_used();
        Ok(())
    }

    /// How long a request that is made now waits for the rate limiter.
    pub(crate) fn rate_limit_wait(&self) -> Duration {
        let bucket = self.bucket.as_deref();
        bucket.map_or(Duration::ZERO, |bucket| lock(bucket).wait(self.shared.began.elapsed()))
    }

    async fn prepare(
        &self,
        request: &ApiRequest,
        until: Instant,
    ) -> Result<(Arc<CredentialsSnapshot>, RequestSlot), ClusterApiError> {
        const TIMED_OUT: &str = "not in time";
        let snapshot = timeout_at(until, self.shared.credentials.current(false))
            .await
            .unwrap_or_else(|_| Err(TIMED_OUT.to_owned()))
            .map_err(|cause| ClusterApiError::NoCredentials {
                request: request.description.clone(),
                cause,
            })?;
        let connections = self.connections();
        let slot = timeout_at(until, connections.slot(&snapshot))
            .await
            .unwrap_or_else(|_| Err(format!("{}: {TIMED_OUT}", connections.route())))
            .map_err(|cause| ClusterApiError::Unreachable {
                request: request.description.clone(),
                cause,
            })?;
        Ok((snapshot, slot))
    }

    fn message(
        &self,
        request: &ApiRequest,
        snapshot: &CredentialsSnapshot,
        slot: &RequestSlot,
    ) -> Result<Request<Body>, ClusterApiError> {
        let server = &self.shared.access.server;
        let path = format!("{}{}", server.prefix, request.target);
        let (uri, host) = if slot.needs_absolute_uri() {
            (format!("https://{}{path}", server.authority()), None)
        } else {
            (path, Some(server.authority()))
        };
        let mut builder = Request::builder().method(request.method.clone()).uri(uri);
        if let Some(host) = host {
            builder = builder.header(header::HOST, host);
        }
        builder = builder.header(header::ACCEPT, request.accept);
        for (name, value) in &self.shared.headers {
            builder = builder.header(name, value);
        }
        if let Some(authorization) = &snapshot.authorization {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        if !request.body.is_empty() {
            builder = builder.header(header::CONTENT_TYPE, request.content_type);
        }
        builder.body(Full::new(Bytes::from(request.body.clone()))).map_err(|error| {
            ClusterApiError::Refused {
                request: request.description.clone(),
                status: 0,
                reason: "NotSent".to_owned(),
                message: error.to_string(),
            }
        })
    }

    /// Reads an error response, and waits if it asks for a retry.
    async fn error_response(
        &self,
        request: &ApiRequest,
        response: Response<Incoming>,
        until: Instant,
        may_retry: bool,
    ) -> RetryDecision {
        let code = response.status().as_u16();
        let pause =
            retry_after(response.headers().get(header::RETRY_AFTER).map(HeaderValue::as_bytes));
        let mut body = response.into_body();
        let body = collect(&mut body, MAX_ERROR_BODY_BYTES, BytesMut::new(), until)
            .await
            .unwrap_or_default();
        let error = ApiStatus::parse(&body).into_error(&request.description, code, pause);
        let pause = match &error {
            ClusterApiError::Unauthenticated { .. } => {
                self.shared.credentials.rejected();
                None
            }
            ClusterApiError::Throttled { retry_after, .. } => Some(*retry_after),
            ClusterApiError::ServerError { .. } => pause,
            _ => None,
        };
        match pause {
            // Compared as durations: a header may name more seconds than an `Instant` can hold.
            Some(pause) if may_retry && pause < until.saturating_duration_since(Instant::now()) => {
                tokio::time::sleep(pause).await;
                RetryDecision::Retry
            }
            _ => RetryDecision::Fail(error),
        }
    }
}

fn new_bucket(rate: Option<RateLimit>) -> Option<Arc<Mutex<RequestTokenBucket>>> {
    rate.map(|rate| Arc::new(Mutex::new(RequestTokenBucket::new(rate))))
}

fn lock(bucket: &Mutex<RequestTokenBucket>) -> MutexGuard<'_, RequestTokenBucket> {
    bucket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A token of the rate limiter that a request is waiting for; it is returned if the request is
/// dropped first.
struct ReservedToken<'a>(Option<&'a Mutex<RequestTokenBucket>>);

impl ReservedToken<'_> {
    fn mark_used(mut self) {
        self.0 = None;
    }
}

impl Drop for ReservedToken<'_> {
    fn drop(&mut self) {
        if let Some(bucket) = self.0 {
            lock(bucket).give_back();
        }
    }
}

/// A retry is safe if nothing was sent, or if the request changes nothing.
fn after_send_error(
    request: &ApiRequest,
    request_error: SendError,
    may_resend: bool,
) -> RetryDecision {
    let SendError { cause, unsent } = request_error;
    if may_resend && (unsent || request.method == Method::GET) {
        return RetryDecision::Retry;
    }
    let request = request.description.clone();
    RetryDecision::Fail(if unsent {
        ClusterApiError::Unreachable { request, cause }
    } else {
        ClusterApiError::NoResponse { request, cause }
    })
}

enum ReadBodyFailure {
    TooLarge,
    Cut(String),
}

async fn collect(
    body: &mut Incoming,
    limit: usize,
    mut whole: BytesMut,
    until: Instant,
) -> Result<Bytes, ReadBodyFailure> {
    loop {
        match timeout_at(until, body.frame()).await {
            Err(_) => {
                return Err(ReadBodyFailure::Cut("the answer did not end in time".to_owned()));
            }
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(error))) => return Err(ReadBodyFailure::Cut(causes(&error))),
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                if whole.len() + data.len() > limit {
                    return Err(ReadBodyFailure::TooLarge);
                }
                whole.extend_from_slice(&data);
            }
        }
    }
}

fn fixed_headers(
    access: &ClusterAccess,
    options: &ClientOptions,
) -> Result<Vec<(HeaderName, HeaderValue)>, InvalidHeaderError> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: &str| -> Result<(), InvalidHeaderError> {
        let invalid_header = || InvalidHeaderError { header: name.to_owned() };
        headers.push((
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid_header())?,
            HeaderValue::from_str(value).map_err(|_| invalid_header())?,
        ));
        Ok(())
    };
    add("user-agent", &options.user_agent)?;
    let impersonation = &access.impersonation;
    if !impersonation.user.is_empty() {
        add("impersonate-user", &impersonation.user)?;
    }
    if !impersonation.uid.is_empty() {
        add("impersonate-uid", &impersonation.uid)?;
    }
    for group in &impersonation.groups {
        add("impersonate-group", group)?;
    }
    for (key, value) in &impersonation.extra {
        let mut name = String::from("impersonate-extra-");
        percent_encode(&key.to_lowercase(), &mut name);
        add(&name, value)?;
    }
    Ok(headers)
}
