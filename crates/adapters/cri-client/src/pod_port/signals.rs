//! Changes in the runtime as one endless stream, across restarts of the runtime.
//!
//! Rule: `Connected` is emitted when the runtime answers after the stream was requested, so that
//! one observation of everything after it misses nothing; `Lost` is emitted once each time the
//! stream ends; then the stream is retried silently, with back-off. If the runtime answers but
//! rejects the stream twice in a row, `Refused` is emitted once: a runtime that is just starting
//! may accept right after it has rejected, and need not be observed twice for that. All state of a
//! wait is kept in the value, so that `next` is cancel-safe. Does not observe pods.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use cri_wire::v1;
use ports::PortFuture;
use ports::container_runtime::ContainerRuntimeError;
use ports::pod_runtime::RuntimeSignals;
use ports::runtime_objects::{RuntimeEvent, RuntimeSignal};
use tokio::time::Instant;

use super::records;
use crate::client::CriClient;
use crate::streams::ContainerEvents;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A stream that lived this long resets the back-off.
const GOOD_LIFE: Duration = Duration::from_secs(5);

/// Rejections in a row until they are reported.
const TOLD_REFUSAL: u32 = 2;

/// A runtime without the stream is asked for it again after this long, or when the caller asks for
/// signals again.
const ASK_FOR_STREAM: Duration = Duration::from_secs(300);

type Answer = Pin<Box<dyn Future<Output = Result<(), ContainerRuntimeError>> + Send>>;

enum State {
    /// No stream is open; retry at that time.
    Apart {
        again: Instant,
    },
    /// The stream was requested; a small call behind it shows whether the runtime answers.
    Opening {
        events: ContainerEvents,
        answer: Answer,
    },
    /// The stream was rejected; waits for whether the runtime answers at all.
    Refused {
        answer: Answer,
        why: String,
    },
    Open {
        events: ContainerEvents,
        since: Instant,
    },
    /// The runtime has no event stream. It is asked again now and then: it may have been replaced
    /// by one that has it.
    Unsupported {
        again: Instant,
    },
}

pub(super) struct Signals {
    client: CriClient,
    state: State,
    wait: Duration,
    /// Whether `Lost` was emitted and no `Connected` since.
    told_lost: bool,
    /// Whether the caller knows that there is no stream.
    told_unsupported: bool,
    /// How often in a row the runtime answered but rejected the stream.
    refusals: u32,
    /// An event that arrived before `Connected` was emitted.
    held: Option<RuntimeEvent>,
}

impl RuntimeSignals for Signals {
    fn next(&mut self) -> PortFuture<'_, RuntimeSignal> {
        Box::pin(async move {
            loop {
                if let Some(signal) = self.step().await {
                    return signal;
                }
            }
        })
    }
}

impl Signals {
    pub(super) fn new(client: CriClient) -> Self {
        let state = State::Apart { again: Instant::now() };
        Self {
            client,
            state,
            wait: FIRST_WAIT,
            told_lost: false,
            told_unsupported: false,
            refusals: 0,
            held: None,
        }
    }

    /// At most one wait; state changes only after it.
    async fn step(&mut self) -> Option<RuntimeSignal> {
        match &mut self.state {
            State::Apart { again } => {
                tokio::time::sleep_until(*again).await;
                let events = self.client.container_events();
                self.state = State::Opening { events, answer: answer(self.client.clone()) };
                None
            }
            State::Opening { events, answer } => {
                let first = tokio::select! {
                    biased;
                    event = events.next() => Err(event),
                    answered = answer => Ok(answered),
                };
                match first {
                    Ok(Ok(())) | Err(Ok(Some(_))) => {
                        self.held = first.err().and_then(Result::ok).flatten().map(records::event);
                        self.opened();
                        Some(RuntimeSignal::Connected)
                    }
                    Ok(Err(error)) => {
                        self.refusals = 0;
                        self.failed(&error)
                    }
                    Err(Err(error)) if is_unsupported(&error) => self.failed(&error),
                    Err(Err(error)) => self.refused(error.to_string()),
                    Err(Ok(None)) => self.refused(ENDED.to_owned()),
                }
            }
            State::Refused { answer, .. } => {
                let answered = answer.await.is_ok();
                self.after_refusal(answered)
            }
            State::Open { events, .. } => {
                if let Some(event) = self.held.take() {
                    return Some(RuntimeSignal::Event(event));
                }
                match events.next().await {
                    Ok(Some(event)) => Some(RuntimeSignal::Event(records::event(event))),
                    Ok(None) => self.apart(ENDED.to_owned()),
                    Err(error) => self.failed(&error),
                }
            }
            State::Unsupported { again } => {
                if !std::mem::replace(&mut self.told_unsupported, true) {
                    return Some(RuntimeSignal::Unsupported);
                }
                self.state = State::Apart { again: *again };
                None
            }
        }
    }

    fn opened(&mut self) {
        let old = std::mem::replace(&mut self.state, State::Apart { again: Instant::now() });
        if let State::Opening { events, .. } = old {
            self.state = State::Open { events, since: Instant::now() };
        }
        self.told_lost = false;
        self.told_unsupported = false;
        self.refusals = 0;
    }

    /// The stream was rejected; reports at once that no events arrive.
    fn refused(&mut self, why: String) -> Option<RuntimeSignal> {
        let old = std::mem::replace(&mut self.state, State::Apart { again: Instant::now() });
        if let State::Opening { answer, .. } = old {
            self.state = State::Refused { answer, why: why.clone() };
        }
        self.lost(why)
    }

    fn after_refusal(&mut self, answered: bool) -> Option<RuntimeSignal> {
        let old = std::mem::replace(&mut self.state, State::Apart { again: Instant::now() });
        self.pause();
        let State::Refused { why, .. } = old else { return None };
        self.refusals = if answered { self.refusals.saturating_add(1) } else { 0 };
        let news = self.refusals == TOLD_REFUSAL && !self.told_unsupported;
        news.then_some(RuntimeSignal::Refused(why))
    }

    fn failed(&mut self, error: &ContainerRuntimeError) -> Option<RuntimeSignal> {
        if is_unsupported(error) {
            self.state = State::Unsupported { again: Instant::now() + ASK_FOR_STREAM };
            return None;
        }
        self.apart(error.to_string())
    }

    /// The stream ended: reports it once and schedules a retry.
    fn apart(&mut self, why: String) -> Option<RuntimeSignal> {
        if let State::Open { since, .. } = &self.state
            && since.elapsed() >= GOOD_LIFE
        {
            self.wait = FIRST_WAIT;
        }
        self.pause();
        self.lost(why)
    }

    fn pause(&mut self) {
        self.state = State::Apart { again: Instant::now() + self.wait };
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }

    fn lost(&mut self, why: String) -> Option<RuntimeSignal> {
        // A caller that polls instead of listening loses nothing.
        let news = !std::mem::replace(&mut self.told_lost, true) && !self.told_unsupported;
        news.then_some(RuntimeSignal::Lost(why))
    }
}

fn is_unsupported(error: &ContainerRuntimeError) -> bool {
    matches!(error, ContainerRuntimeError::Unimplemented { call: EVENTS, .. })
}

const EVENTS: &str = "GetContainerEvents";
const ENDED: &str = "GetContainerEvents: the runtime ended the stream";

/// The smallest call there is. It is sent after the stream's request, on the same connection.
fn answer(client: CriClient) -> Answer {
    Box::pin(
        async move { CriClient::version(&client, v1::VersionRequest::default()).await.map(drop) },
    )
}
