//! List, then watch, for ever: a feed of the objects of one kind.
//!
//! Rule: resumes where it was, and lists again only when the API server no longer has that
//! resourceVersion, or has not reached it: its data is older than what was seen. At most a few events wait for a slow reader, which then holds up the stream. A
//! stream that is silent for too long, or lasts longer than was asked for, is dropped. What to
//! request next is decided by `watch_progress`.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use ports::cluster_api::ObjectSelector;
use ports::{ClusterApiError, FeedEvent, ObjectFeed, PortFuture};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::back_off::WatchBackOff;
use crate::client::{ApiClient, StreamingResponse};
use crate::connections::causes;
use crate::event_splitter::EventSplitter;
use crate::protobuf::WatchedObject;
use crate::request::ApiRequest;
use crate::watch_line::{UnreadableObject, WatchLine, read_frame, read_line, read_page};
use crate::watch_progress::{WatchProgress, WatchRequest};

/// How many events may wait for the reader.
const EVENT_QUEUE_LENGTH: usize = 64;
/// How much longer than its timeout a stream may last.
const MARGIN: Duration = Duration::from_secs(30);
/// A stream that ends sooner than this is not reopened at once.
const MIN_STREAM_LIFETIME: Duration = Duration::from_secs(1);
/// How often a watch checks for new certificates.
const CREDENTIALS_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// How many frames are taken in a row before the stream's end and its connection are checked.
const MAX_FRAMES_IN_A_ROW: u32 = 256;

/// The stream's next item: a frame, an error, or its end.
type BodyFrame = Option<Result<Frame<Bytes>, hyper::Error>>;

/// A feed of objects. Stops when dropped.
#[derive(Debug)]
pub struct Watch<T> {
    events: mpsc::Receiver<FeedEvent<T>>,
    task: JoinSet<()>,
    client: ApiClient,
    /// The client that changes are read with.
    stream: ApiClient,
    selection: ObjectSelector,
    /// When to restart after the task has panicked; kept here, since `next` may be cancelled and
    /// called again and again.
    begins_at: Option<Instant>,
}

impl<T: WatchedObject> Watch<T> {
    /// Starts listing. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(client: &ApiClient, selection: ObjectSelector) -> Self {
        Self::start_over(client, client.clone(), selection)
    }

    /// The same for changes that come all the time and need no quick reaction: they are read in
    /// batches.
    #[must_use]
    pub fn start_batched(client: &ApiClient, selection: ObjectSelector) -> Self {
        Self::start_over(client, client.batched(), selection)
    }

    fn start_over(client: &ApiClient, stream: ApiClient, selection: ObjectSelector) -> Self {
        // Replaced at once; a closed channel is a watch that has to be started.
        let (_, events) = mpsc::channel(1);
        let client = client.clone();
        let task = JoinSet::new();
        let mut watch = Self { events, task, client, stream, selection, begins_at: None };
        watch.begin();
        watch
    }

    fn begin(&mut self) {
        let (out, events) = mpsc::channel(EVENT_QUEUE_LENGTH);
        let follower = WatchTask {
            progress: WatchProgress::new(self.client.options().page_size),
            client: self.client.clone(),
            stream: self.stream.clone(),
            selection: self.selection.clone(),
            back_off: WatchBackOff::new(),
            out,
            interrupted: false,
            page_buffer: BytesMut::new(),
        };
        self.events = events;
        self.task.abort_all();
        self.task.spawn(follower.run_until_closed());
    }
}

impl<T: WatchedObject> ObjectFeed<T> for Watch<T> {
    fn next(&mut self) -> PortFuture<'_, FeedEvent<T>> {
        Box::pin(async move {
            loop {
                if let Some(event) = self.events.recv().await {
                    return event;
                }
                // Only a panic ends the task; its state is lost, so it lists again.
                let at =
                    *self.begins_at.get_or_insert_with(|| Instant::now() + MIN_STREAM_LIFETIME);
                sleep_until(at).await;
                tracing::error!(kind = T::RESOURCE.plural, "a watch panicked; it is restarted");
                self.begins_at = None;
                self.begin();
            }
        })
    }

    fn ready(&mut self) -> Option<FeedEvent<T>> {
        self.events.try_recv().ok()
    }
}

/// Waits until there are credentials of a newer generation.
async fn wait_for_newer(generations: &mut tokio::sync::watch::Receiver<u64>, generation: u64) {
    if generations.wait_for(|now| *now != generation).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The reader was dropped.
struct ReceiverDropped;

enum WatchStop {
    ReceiverDropped,
    Failed(ClusterApiError),
}

impl From<ReceiverDropped> for WatchStop {
    fn from(_: ReceiverDropped) -> Self {
        Self::ReceiverDropped
    }
}

impl From<ClusterApiError> for WatchStop {
    fn from(error: ClusterApiError) -> Self {
        Self::Failed(error)
    }
}

struct WatchTask<T> {
    client: ApiClient,
    stream: ApiClient,
    selection: ObjectSelector,
    progress: WatchProgress,
    back_off: WatchBackOff,
    out: mpsc::Sender<FeedEvent<T>>,
    interrupted: bool,
    /// Buffer for the next page of a list.
    page_buffer: BytesMut,
}

impl<T: WatchedObject> WatchTask<T> {
    async fn run_until_closed(mut self) {
        loop {
            let outcome = match self.progress.next_request() {
                WatchRequest::List { token, limit } => self.list(token, limit).await,
                WatchRequest::Watch { version } => self.watch(&version).await,
                WatchRequest::CurrentVersion => self.check_version().await,
            };
            match outcome {
                Ok(()) => {}
                Err(WatchStop::ReceiverDropped) => return,
                Err(WatchStop::Failed(error)) => {
                    if self.failed(error).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn send_event(&self, event: FeedEvent<T>) -> Result<(), ReceiverDropped> {
        self.out.send(event).await.map_err(|_| ReceiverDropped)
    }

    async fn failed(&mut self, error: ClusterApiError) -> Result<(), ReceiverDropped> {
        self.progress.failed(&error);
        let server_pause = match &error {
            ClusterApiError::Throttled { retry_after: pause, .. }
            | ClusterApiError::RateLimited { rate_limit_delay: pause, .. } => Some(*pause),
            _ => None,
        };
        // An expired version is listed again; that is no outage.
        if !matches!(error, ClusterApiError::Expired { .. }) {
            self.interrupted = true;
            self.send_event(FeedEvent::Interrupted(error)).await?;
        }
        self.pause(server_pause).await
    }

    async fn pause(&mut self, server_pause: Option<Duration>) -> Result<(), ReceiverDropped> {
        let pause = self.back_off.pause(self.client.options().jitter.next(), server_pause);
        tokio::select! {
            () = sleep(pause) => Ok(()),
            () = self.out.closed() => Err(ReceiverDropped),
        }
    }

    async fn list(&mut self, token: Option<String>, limit: u32) -> Result<(), WatchStop> {
        let options = self.client.options();
        let request = ApiRequest::list(T::RESOURCE, &self.selection, limit, token.as_deref())
            .in_protobuf(T::IN_PROTOBUF);
        let (deadline, limit) = (options.page_deadline, options.page_limit);
        let buffer = std::mem::take(&mut self.page_buffer);
        let body = self.client.request_within(&request, deadline, limit, buffer).await?;
        let room = body.clone();
        let page = read_page(body).map_err(|cause| ClusterApiError::Unreadable {
            request: request.description.clone(),
            cause,
        })?;
        // The page's content was copied out of it; the next page is about as long.
        if let (Ok(mut room), false) = (room.try_into_mut(), page.token.is_empty()) {
            room.clear();
            self.page_buffer = room;
        }
        if token.is_none() {
            self.send_event(FeedEvent::ListBegun).await?;
        }
        self.send_event(FeedEvent::Listed(page.objects)).await?;
        for UnreadableObject { object, cause } in page.unreadable {
            self.send_event(FeedEvent::Unreadable { object, deleted: false, cause }).await?;
        }
        if self.progress.record_page(&page.version, &page.token) {
            self.send_event(FeedEvent::ListEnded).await?;
        }
        Ok(())
    }

    async fn check_version(&mut self) -> Result<(), WatchStop> {
        let options = self.client.options();
        let request =
            ApiRequest::list(T::RESOURCE, &self.selection, 1, None).in_protobuf(T::IN_PROTOBUF);
        let (deadline, limit) = (options.page_deadline, options.page_limit);
        let body = self.client.request_within(&request, deadline, limit, BytesMut::new()).await?;
        let page = read_page::<T>(body).map_err(|cause| ClusterApiError::Unreadable {
            request: request.description.clone(),
            cause,
        })?;
        self.progress.record_current_version(&page.version);
        Ok(())
    }

    async fn watch(&mut self, version: &str) -> Result<(), WatchStop> {
        let options = self.client.options();
        let lasts = options.watch_lasts.mul_f64(1.0 + options.jitter.next().clamp(0.0, 1.0));
        let seconds = lasts.as_secs().max(1);
        let request = ApiRequest::watch(T::RESOURCE, &self.selection, version, seconds)
            .in_protobuf(T::IN_PROTOBUF);
        let began = Instant::now();
        let answer = self.stream.open(&request, began + options.deadline).await?;
        if std::mem::take(&mut self.interrupted) {
            self.send_event(FeedEvent::Resumed).await?;
        }
        let until = Instant::now() + Duration::from_secs(seconds) + MARGIN;
        let outcome = self.read_stream(&request, answer, until).await;
        self.back_off.record_lifetime(began.elapsed());
        if outcome.is_ok() && began.elapsed() < MIN_STREAM_LIFETIME {
            self.pause(None).await?;
        }
        outcome
    }

    /// Reads until the stream ends normally, or moves to another connection.
    async fn read_stream(
        &mut self,
        request: &ApiRequest,
        mut answer: StreamingResponse,
        until: Instant,
    ) -> Result<(), WatchStop> {
        let client = self.stream.clone();
        let mut generations = client.generations();
        let limit = client.options().line_limit;
        let mut event_splitter = if answer.protobuf {
            EventSplitter::length_prefixed(limit)
        } else {
            EventSplitter::new(limit)
        };
        let mut credentials_check = tokio::time::interval_at(
            Instant::now() + CREDENTIALS_CHECK_INTERVAL,
            CREDENTIALS_CHECK_INTERVAL,
        );
        let mut silent_until = Instant::now() + client.options().watch_silence;
        let (mut received, mut frames_in_a_row) = (false, 0);
        loop {
            loop {
                let line = event_splitter.next().map_err(|_| ClusterApiError::TooLarge {
                    request: request.description.clone(),
                    limit,
                })?;
                let Some(line) = line else { break };
                let read = if answer.protobuf { read_frame(line) } else { read_line(&line) };
                self.received(request, read).await?;
            }
            let frame = match Self::next_ready_frame(&mut answer, &mut frames_in_a_row).await {
                Some(frame) => frame,
                None => tokio::select! {
                    frame = timeout_at(until.min(silent_until), answer.body.frame()) => {
                        if let Ok(frame) = frame {
                            frame
                        } else {
                            // The API server should have ended the stream, or sent something.
                            client.retire(&answer.slot);
                            if !received {
                                self.progress.record_silent_stream();
                            }
                            return Ok(());
                        }
                    }
                    () = wait_for_newer(&mut generations, answer.generation) => return Ok(()),
                    _ = credentials_check.tick() => {
                        // A plugin may be slow; the stream must be read meanwhile.
                        drop(timeout(MIN_STREAM_LIFETIME, client.refresh_credentials()).await);
                        continue;
                    }
                    () = self.out.closed() => return Err(WatchStop::ReceiverDropped),
                },
            };
            let frame = match frame {
                None => return Ok(()),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(WatchStop::Failed(ClusterApiError::NoResponse {
                        request: request.description.clone(),
                        cause: causes(&error),
                    }));
                }
            };
            if let Ok(data) = frame.into_data() {
                silent_until = Instant::now() + client.options().watch_silence;
                received = true;
                event_splitter.add(data);
            }
        }
    }

    /// Heartbeats arrive many together; all but the last are taken without a full wait on all
    /// branches. Not too many in a row: the other branches must get their turn.
    async fn next_ready_frame(
        answer: &mut StreamingResponse,
        frames_in_a_row: &mut u32,
    ) -> Option<BodyFrame> {
        *frames_in_a_row += 1;
        if *frames_in_a_row > MAX_FRAMES_IN_A_ROW {
            *frames_in_a_row = 0;
            return None;
        }
        tokio::select! {
            biased;
            frame = answer.body.frame() => Some(frame),
            () = std::future::ready(()) => {
                *frames_in_a_row = 0;
                None
            }
        }
    }

    async fn received(
        &mut self,
        request: &ApiRequest,
        read: Result<WatchLine<T>, String>,
    ) -> Result<(), WatchStop> {
        let read = read.map_err(|cause| ClusterApiError::Unreadable {
            request: request.description.clone(),
            cause,
        })?;
        match read {
            WatchLine::Bookmark { version } => self.progress.record_version(&version),
            WatchLine::Applied(object) => {
                self.progress.record_version(object.identity().resource_version);
                self.send_event(FeedEvent::Applied(object)).await?;
            }
            WatchLine::Deleted(object) => {
                self.progress.record_version(object.identity().resource_version);
                self.send_event(FeedEvent::Deleted(object)).await?;
            }
            WatchLine::Unreadable { object, version, deleted, cause } => {
                self.progress.record_version(&version);
                self.send_event(FeedEvent::Unreadable { object, deleted, cause }).await?;
            }
            WatchLine::Failed(status) => {
                let code = if status.code == 0 { 500 } else { status.code };
                return Err(WatchStop::Failed(status.into_error(&request.description, code, None)));
            }
        }
        Ok(())
    }
}
