//! List, then watch, for ever: a feed of the objects of one kind.
//!
//! Rule: resumes where it was, and lists again only when the API server no longer has that
//! resourceVersion. At most a few events wait for a slow reader, which then holds up the stream. A
//! stream that is silent for too long, or lasts longer than was asked for, is dropped. What to
//! request next is decided by `watch_progress`.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use ports::cluster_api::Selection;
use ports::{ClusterApiError, FeedEvent, ObjectFeed, PortFuture};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::back_off::BackOff;
use crate::client::{Answer, ApiClient};
use crate::connections::causes;
use crate::lines::Lines;
use crate::protobuf::WatchedObject;
use crate::request::ApiRequest;
use crate::watch_line::{UnreadableObject, WatchLine, read_frame, read_line, read_page};
use crate::watch_progress::{Progress, Question};

/// How many events may wait for the reader.
const WAITING: usize = 64;
/// How much longer than its timeout a stream may last.
const MARGIN: Duration = Duration::from_secs(30);
/// A stream that ends sooner than this is not reopened at once.
const SHORT: Duration = Duration::from_secs(1);
/// How often a watch checks for new certificates.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How many frames are taken in a row before the stream's end and its connection are checked.
const MOST_IN_A_ROW: u32 = 256;

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
    selection: Selection,
    /// When to restart after the task has panicked; kept here, since `next` may be cancelled and
    /// called again and again.
    begins_at: Option<Instant>,
}

impl<T: WatchedObject> Watch<T> {
    /// Starts listing. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(client: &ApiClient, selection: Selection) -> Self {
        Self::start_over(client, client.clone(), selection)
    }

    /// The same for changes that come all the time and need no quick reaction: they are read in
    /// batches.
    #[must_use]
    pub fn start_in_strides(client: &ApiClient, selection: Selection) -> Self {
        Self::start_over(client, client.in_strides(), selection)
    }

    fn start_over(client: &ApiClient, stream: ApiClient, selection: Selection) -> Self {
        // Replaced at once; a closed channel is a watch that has to be started.
        let (_, events) = mpsc::channel(1);
        let client = client.clone();
        let task = JoinSet::new();
        let mut watch = Self { events, task, client, stream, selection, begins_at: None };
        watch.begin();
        watch
    }

    fn begin(&mut self) {
        let (out, events) = mpsc::channel(WAITING);
        let follower = Follower {
            progress: Progress::new(self.client.options().page_size),
            client: self.client.clone(),
            stream: self.stream.clone(),
            selection: self.selection.clone(),
            back_off: BackOff::new(),
            out,
            interrupted: false,
            page_buffer: BytesMut::new(),
        };
        self.events = events;
        self.task.abort_all();
        self.task.spawn(follower.follow_for_ever());
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
                let at = *self.begins_at.get_or_insert_with(|| Instant::now() + SHORT);
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
async fn replaced(generations: &mut tokio::sync::watch::Receiver<u64>, generation: u64) {
    if generations.wait_for(|now| *now != generation).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The reader was dropped.
struct NobodyListens;

enum Stop {
    NobodyListens,
    Failed(ClusterApiError),
}

impl From<NobodyListens> for Stop {
    fn from(_: NobodyListens) -> Self {
        Self::NobodyListens
    }
}

impl From<ClusterApiError> for Stop {
    fn from(error: ClusterApiError) -> Self {
        Self::Failed(error)
    }
}

struct Follower<T> {
    client: ApiClient,
    stream: ApiClient,
    selection: Selection,
    progress: Progress,
    back_off: BackOff,
    out: mpsc::Sender<FeedEvent<T>>,
    interrupted: bool,
    /// Buffer for the next page of a list.
    page_buffer: BytesMut,
}

impl<T: WatchedObject> Follower<T> {
    async fn follow_for_ever(mut self) {
        loop {
            let outcome = match self.progress.question() {
                Question::List { token, limit } => self.list(token, limit).await,
                Question::Watch { version } => self.watch(&version).await,
            };
            match outcome {
                Ok(()) => {}
                Err(Stop::NobodyListens) => return,
                Err(Stop::Failed(error)) => {
                    if self.failed(error).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn tell(&self, event: FeedEvent<T>) -> Result<(), NobodyListens> {
        self.out.send(event).await.map_err(|_| NobodyListens)
    }

    async fn failed(&mut self, error: ClusterApiError) -> Result<(), NobodyListens> {
        self.progress.failed(&error);
        let asked_for = match &error {
            ClusterApiError::Throttled { retry_after: pause, .. }
            | ClusterApiError::OutOfTurn { turn_in: pause, .. } => Some(*pause),
            _ => None,
        };
        // An expired version is listed again; that is no outage.
        if !matches!(error, ClusterApiError::Expired { .. }) {
            self.interrupted = true;
            self.tell(FeedEvent::Interrupted(error)).await?;
        }
        self.pause(asked_for).await
    }

    async fn pause(&mut self, asked_for: Option<Duration>) -> Result<(), NobodyListens> {
        let pause = self.back_off.pause(self.client.options().spread.next(), asked_for);
        tokio::select! {
            () = sleep(pause) => Ok(()),
            () = self.out.closed() => Err(NobodyListens),
        }
    }

    async fn list(&mut self, token: Option<String>, limit: u32) -> Result<(), Stop> {
        let options = self.client.options();
        let request = ApiRequest::list(T::RESOURCE, &self.selection, limit, token.as_deref())
            .in_protobuf(T::IN_PROTOBUF);
        let (deadline, limit) = (options.page_deadline, options.page_limit);
        let buffer = std::mem::take(&mut self.page_buffer);
        let body = self.client.ask_within(&request, deadline, limit, buffer).await?;
        let room = body.clone();
        let page = read_page(body).map_err(|cause| ClusterApiError::Unreadable {
            request: request.named.clone(),
            cause,
        })?;
        // The page's content was copied out of it; the next page is about as long.
        if let (Ok(mut room), false) = (room.try_into_mut(), page.token.is_empty()) {
            room.clear();
            self.page_buffer = room;
        }
        if token.is_none() {
            self.tell(FeedEvent::ListBegan).await?;
        }
        self.tell(FeedEvent::Listed(page.objects)).await?;
        for UnreadableObject { object, cause } in page.unreadable {
            self.tell(FeedEvent::Unreadable { object, deleted: false, cause }).await?;
        }
        if self.progress.page_came(&page.version, &page.token) {
            self.tell(FeedEvent::ListEnded).await?;
        }
        Ok(())
    }

    async fn watch(&mut self, version: &str) -> Result<(), Stop> {
        let options = self.client.options();
        let lasts = options.watch_lasts.mul_f64(1.0 + options.spread.next().clamp(0.0, 1.0));
        let seconds = lasts.as_secs().max(1);
        let request = ApiRequest::watch(T::RESOURCE, &self.selection, version, seconds)
            .in_protobuf(T::IN_PROTOBUF);
        let began = Instant::now();
        let answer = self.stream.open(&request, began + options.deadline).await?;
        if std::mem::take(&mut self.interrupted) {
            self.tell(FeedEvent::Resumed).await?;
        }
        let until = Instant::now() + Duration::from_secs(seconds) + MARGIN;
        let outcome = self.read_stream(&request, answer, until).await;
        self.back_off.held(began.elapsed());
        if outcome.is_ok() && began.elapsed() < SHORT {
            self.pause(None).await?;
        }
        outcome
    }

    /// Reads until the stream ends normally, or moves to another connection.
    async fn read_stream(
        &mut self,
        request: &ApiRequest,
        mut answer: Answer,
        until: Instant,
    ) -> Result<(), Stop> {
        let client = self.stream.clone();
        let mut generations = client.generations();
        let limit = client.options().line_limit;
        let mut lines = if answer.protobuf { Lines::framed(limit) } else { Lines::new(limit) };
        let mut look = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        let mut silent_until = Instant::now() + client.options().watch_silence;
        let (mut heard, mut in_a_row) = (false, 0);
        loop {
            loop {
                let line = lines.next().map_err(|_| ClusterApiError::TooLarge {
                    request: request.named.clone(),
                    limit,
                })?;
                let Some(line) = line else { break };
                let read = if answer.protobuf { read_frame(line) } else { read_line(&line) };
                self.heard(request, read).await?;
            }
            let frame = match Self::frame_at_hand(&mut answer, &mut in_a_row).await {
                Some(frame) => frame,
                None => tokio::select! {
                    frame = timeout_at(until.min(silent_until), answer.body.frame()) => {
                        if let Ok(frame) = frame {
                            frame
                        } else {
                            // The API server should have ended the stream, or sent something.
                            client.retire(&answer.place);
                            if !heard {
                                self.progress.heard_nothing();
                            }
                            return Ok(());
                        }
                    }
                    () = replaced(&mut generations, answer.generation) => return Ok(()),
                    _ = look.tick() => {
                        // A plugin may be slow; the stream must be read meanwhile.
                        drop(timeout(SHORT, client.refresh_credentials()).await);
                        continue;
                    }
                    () = self.out.closed() => return Err(Stop::NobodyListens),
                },
            };
            let frame = match frame {
                None => return Ok(()),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(Stop::Failed(ClusterApiError::Unanswered {
                        request: request.named.clone(),
                        cause: causes(&error),
                    }));
                }
            };
            if let Ok(data) = frame.into_data() {
                silent_until = Instant::now() + client.options().watch_silence;
                heard = true;
                lines.add(data);
            }
        }
    }

    /// Heartbeats arrive many together; all but the last are taken without a full wait on all
    /// branches. Not too many in a row: the other branches must get their turn.
    async fn frame_at_hand(answer: &mut Answer, in_a_row: &mut u32) -> Option<BodyFrame> {
        *in_a_row += 1;
        if *in_a_row > MOST_IN_A_ROW {
            *in_a_row = 0;
            return None;
        }
        tokio::select! {
            biased;
            frame = answer.body.frame() => Some(frame),
            () = std::future::ready(()) => {
                *in_a_row = 0;
                None
            }
        }
    }

    async fn heard(
        &mut self,
        request: &ApiRequest,
        read: Result<WatchLine<T>, String>,
    ) -> Result<(), Stop> {
        let read = read.map_err(|cause| ClusterApiError::Unreadable {
            request: request.named.clone(),
            cause,
        })?;
        match read {
            WatchLine::Bookmark { version } => self.progress.reached(&version),
            WatchLine::Applied(object) => {
                self.progress.reached(object.identity().resource_version);
                self.tell(FeedEvent::Applied(object)).await?;
            }
            WatchLine::Deleted(object) => {
                self.progress.reached(object.identity().resource_version);
                self.tell(FeedEvent::Deleted(object)).await?;
            }
            WatchLine::Unreadable { object, version, deleted, cause } => {
                self.progress.reached(&version);
                self.tell(FeedEvent::Unreadable { object, deleted, cause }).await?;
            }
            WatchLine::Failed(status) => {
                let code = if status.code == 0 { 500 } else { status.code };
                return Err(Stop::Failed(status.into_error(&request.named, code, None)));
            }
        }
        Ok(())
    }
}
