//! A watch of one object: read it, then follow its changes.
//!
//! Rules: cheap, since a node has one for each ConfigMap and Secret that its pods use: no task, no
//! queue and no timer but the stream's end; streams share connections within the server's limit.
//! No bookmarks are requested: a version that has expired costs one read. What `next` has begun
//! stays in the value, so that it may be dropped and called again.

use std::time::Duration;

use http_body_util::BodyExt as _;
use ports::cluster_api::{ObjectPath, ObjectWatch, StoredObject};
use ports::{ClusterApiError, PortFuture};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::back_off::WatchBackOff;
use crate::client::{ApiClient, StreamingResponse};
use crate::connections::causes;
use crate::event_splitter::EventSplitter;
use crate::request::ApiRequest;
use crate::request_error::ApiStatus;

/// How many times longer than a list's watch a stream lasts: as it has no bookmarks, each new one
/// may cost a read.
const LIFETIME_FACTOR: u32 = 6;
/// How much longer than its timeout a stream may last.
const MARGIN: Duration = Duration::from_secs(30);
/// A stream that ends sooner than this is not reopened at once.
const MIN_STREAM_LIFETIME: Duration = Duration::from_secs(1);
/// The node authorizer learns of a new pod a little later than the node: the first pauses after a
/// 403 are short.
const FIRST_FORBIDDEN_PAUSE: Duration = Duration::from_millis(100);
const SHORT_FORBIDDEN_PAUSES: u32 = 6;

pub(crate) struct SingleObjectWatch {
    client: ApiClient,
    object: ObjectPath,
    position: WatchPosition,
    stream: Option<Box<OpenStream>>,
    back_off: WatchBackOff,
    pause_until: Option<Instant>,
    forbidden: u32,
    reported: Option<ReportedState>,
}

enum WatchPosition {
    Read,
    /// After this version; empty for the current state, where there was no object.
    After(String),
}

#[derive(PartialEq, Eq)]
enum ReportedState {
    Absent,
    Present { uid: String, version: String },
}

struct OpenStream {
    response: StreamingResponse,
    events: EventSplitter,
    generations: tokio::sync::watch::Receiver<u64>,
    began: Instant,
    until: Instant,
}

/// One event of the stream.
enum ObjectEvent {
    Present(StoredObject),
    Deleted { version: String },
    Bookmark { version: String },
    Failed(ClusterApiError),
}

/// Why no event came.
enum StreamEnd {
    /// Normally, or to move to another connection.
    Ended,
    Failed(ClusterApiError),
}

type State = Result<StoredObject, ClusterApiError>;

impl SingleObjectWatch {
    pub(crate) fn new(client: &ApiClient, object: &ObjectPath) -> Self {
        Self {
            client: client.clone(),
            object: object.clone(),
            position: WatchPosition::Read,
            stream: None,
            back_off: WatchBackOff::new(),
            pause_until: None,
            forbidden: 0,
            reported: None,
        }
    }

    async fn next_state(&mut self) -> State {
        loop {
            if let Some(at) = self.pause_until {
                sleep_until(at).await;
                self.pause_until = None;
            }
            let state = match &self.position {
                WatchPosition::Read => self.read().await,
                WatchPosition::After(version) if self.stream.is_none() => {
                    let version = version.clone();
                    self.open(&version).await
                }
                WatchPosition::After(_) => self.follow().await,
            };
            if let Some(state) = state {
                return state;
            }
        }
    }

    async fn read(&mut self) -> Option<State> {
        let request = match ApiRequest::read(&self.object) {
            Ok(request) => request,
            Err(error) => return Some(Err(self.failed(error))),
        };
        match self.client.request_stored(request).await {
            Ok(stored) => {
                self.position = WatchPosition::After(stored.resource_version.clone());
                self.forbidden = 0;
                self.present(stored)
            }
            Err(error @ ClusterApiError::NotFound { .. }) => {
                self.position = WatchPosition::After(String::new());
                self.forbidden = 0;
                self.absent(error)
            }
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    /// Opens the stream; its events follow.
    async fn open(&mut self, version: &str) -> Option<State> {
        let options = self.client.options();
        let jitter = options.jitter.next().clamp(0.0, 1.0);
        let lasts = (options.watch_lasts * LIFETIME_FACTOR).mul_f64(1.0 + jitter);
        let limit = options.line_limit;
        let seconds = lasts.as_secs().max(1);
        let request = ApiRequest::watch_object(&self.object, version, seconds);
        let began = Instant::now();
        match self.client.open(&request, began + options.deadline).await {
            Ok(response) => {
                self.stream = Some(Box::new(OpenStream {
                    generations: self.client.generations(),
                    response,
                    events: EventSplitter::new(limit),
                    began,
                    until: Instant::now() + Duration::from_secs(seconds) + MARGIN,
                }));
                None
            }
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    async fn follow(&mut self) -> Option<State> {
        let stream = self.stream.as_mut()?;
        let event = match stream.next(&self.object).await {
            Ok(event) => event,
            Err(end) => {
                let lasted = stream.began.elapsed();
                self.back_off.record_lifetime(lasted);
                self.stream = None;
                return match end {
                    StreamEnd::Failed(error) => Some(Err(self.failed(error))),
                    StreamEnd::Ended => {
                        if lasted < MIN_STREAM_LIFETIME {
                            self.pause(None);
                        }
                        None
                    }
                };
            }
        };
        match event {
            ObjectEvent::Present(stored) => {
                self.position = WatchPosition::After(stored.resource_version.clone());
                self.present(stored)
            }
            ObjectEvent::Deleted { version } => {
                self.position = WatchPosition::After(version);
                self.absent(ClusterApiError::NotFound { request: self.described() })
            }
            ObjectEvent::Bookmark { version } => {
                self.position = WatchPosition::After(version);
                None
            }
            ObjectEvent::Failed(error) => {
                self.stream = None;
                // An expired version is read again; that is no outage.
                let expired = matches!(error, ClusterApiError::Expired { .. });
                let error = self.failed(error);
                if expired {
                    self.pause_until = None;
                    return None;
                }
                Some(Err(error))
            }
        }
    }

    /// The next attempt reads the object, after a pause.
    fn failed(&mut self, error: ClusterApiError) -> ClusterApiError {
        self.position = WatchPosition::Read;
        match &error {
            ClusterApiError::Throttled { retry_after: pause, .. }
            | ClusterApiError::RateLimited { rate_limit_delay: pause, .. } => {
                self.pause(Some(*pause));
            }
            ClusterApiError::Refused { status: 403, .. }
                if self.forbidden < SHORT_FORBIDDEN_PAUSES =>
            {
                let pause = FIRST_FORBIDDEN_PAUSE * 2_u32.pow(self.forbidden);
                self.forbidden += 1;
                self.pause_until = Some(Instant::now() + pause);
            }
            _ => self.pause(None),
        }
        error
    }

    fn pause(&mut self, server_pause: Option<Duration>) {
        let pause = self.back_off.pause(self.client.options().jitter.next(), server_pause);
        self.pause_until = Some(Instant::now() + pause);
    }

    fn present(&mut self, stored: StoredObject) -> Option<State> {
        let state = ReportedState::Present {
            uid: stored.uid.clone(),
            version: stored.resource_version.clone(),
        };
        self.is_change(state).then_some(Ok(stored))
    }

    fn absent(&mut self, error: ClusterApiError) -> Option<State> {
        self.is_change(ReportedState::Absent).then_some(Err(error))
    }

    fn is_change(&mut self, state: ReportedState) -> bool {
        let state = Some(state);
        let is_change = self.reported != state;
        self.reported = state;
        is_change
    }

    fn described(&self) -> String {
        describe(&self.object)
    }
}

fn describe(object: &ObjectPath) -> String {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    format!("WATCH {}/{namespace}/{}", object.resource.plural, object.name)
}

impl ObjectWatch for SingleObjectWatch {
    fn next(&mut self) -> PortFuture<'_, State> {
        Box::pin(self.next_state())
    }
}

impl OpenStream {
    async fn next(&mut self, object: &ObjectPath) -> Result<ObjectEvent, StreamEnd> {
        loop {
            let line = self.events.next().map_err(|_| {
                StreamEnd::Failed(ClusterApiError::TooLarge { request: describe(object), limit: 0 })
            })?;
            if let Some(line) = line {
                return parse(&line, object).map_err(|cause| {
                    StreamEnd::Failed(ClusterApiError::Unreadable {
                        request: describe(object),
                        cause,
                    })
                });
            }
            let generation = self.response.generation;
            let frame = tokio::select! {
                frame = timeout_at(self.until, self.response.body.frame()) => frame,
                // Newer credentials: another connection.
                Ok(_) = self.generations.wait_for(|now| *now != generation) => {
                    return Err(StreamEnd::Ended);
                }
            };
            match frame {
                Err(_) | Ok(None) => return Err(StreamEnd::Ended),
                Ok(Some(Err(error))) => {
                    return Err(StreamEnd::Failed(ClusterApiError::NoResponse {
                        request: describe(object),
                        cause: causes(&error),
                    }));
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.events.add(data);
                    }
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct EventLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WatchedEventObject {
    metadata: EventMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EventMeta {
    name: String,
    uid: String,
    resource_version: String,
}

fn parse(line: &[u8], object: &ObjectPath) -> Result<ObjectEvent, String> {
    let event: EventLine<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let json = event.object.get().as_bytes();
    if event.kind == "ERROR" {
        let status = ApiStatus::parse(json);
        let code = if status.code == 0 { 500 } else { status.code };
        return Ok(ObjectEvent::Failed(status.into_error(&describe(object), code, None)));
    }
    let read: WatchedEventObject =
        serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let EventMeta { name, uid, resource_version } = read.metadata;
    if event.kind == "BOOKMARK" {
        return Ok(ObjectEvent::Bookmark { version: resource_version });
    }
    if name != object.name {
        return Err(format!("an event about {name:?}, which was not asked for"));
    }
    match event.kind {
        "ADDED" | "MODIFIED" => {
            Ok(ObjectEvent::Present(StoredObject { uid, resource_version, json: json.to_vec() }))
        }
        "DELETED" => Ok(ObjectEvent::Deleted { version: resource_version }),
        other => Err(format!("an event of type {other:?}")),
    }
}
