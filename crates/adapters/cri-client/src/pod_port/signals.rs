//! Changes in the runtime as one endless stream, across restarts of the runtime.
//!
//! Rule: `Connected` is told when the runtime answers after the stream was asked for, so that one
//! look at everything after it misses nothing; `Lost` is told once for each time that the stream
//! ends; in between there is silence and another try after a back-off. Where the runtime answers and
//! gives no stream twice in a row, `Refused` is told once: a runtime that is just starting may answer
//! right after it has refused, and need not be looked at twice for that. Every part of a wait is kept
//! in the value, so that a wait that is dropped loses nothing. Does not look at pods.

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

/// A stream that lived this long was a good one: the next wait is the first again.
const GOOD_LIFE: Duration = Duration::from_secs(5);

/// Refusals in a row until they are told.
const TOLD_REFUSAL: u32 = 2;

/// A runtime without the stream is asked for it again after this long, or when whoever listens asks
/// for signals anew.
const ASK_FOR_STREAM: Duration = Duration::from_secs(300);

type Answer = Pin<Box<dyn Future<Output = Result<(), ContainerRuntimeError>> + Send>>;

enum State {
    /// Nothing is open; try at that time.
    Apart {
        again: Instant,
    },
    /// The stream was asked for; a small call behind it tells whether anybody answers.
    Opening {
        events: ContainerEvents,
        answer: Answer,
    },
    /// The stream was refused; whether anybody answers at all is awaited.
    Refused {
        answer: Answer,
        why: String,
    },
    Open {
        events: ContainerEvents,
        since: Instant,
    },
    /// The runtime has no such stream. It is asked again now and then: one that has it may have
    /// taken its place.
    Unsupported {
        again: Instant,
    },
}

pub(super) struct Signals {
    client: CriClient,
    state: State,
    wait: Duration,
    /// Whether the caller knows that nothing is heard.
    told_lost: bool,
    /// Whether the caller knows that there is no stream.
    told_unsupported: bool,
    /// How often in a row the runtime answered and gave no stream.
    refusals: u32,
    /// An event that came before `Connected` was told.
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

    /// One wait, at most; what it changes is changed after it.
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

    /// No stream came; tells at once that nothing is heard.
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

    /// The stream is gone: tells it once and plans another try.
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
        // Who lists instead of listening has nothing to lose.
        let news = !std::mem::replace(&mut self.told_lost, true) && !self.told_unsupported;
        news.then_some(RuntimeSignal::Lost(why))
    }
}

fn is_unsupported(error: &ContainerRuntimeError) -> bool {
    matches!(error, ContainerRuntimeError::Unimplemented { call: EVENTS, .. })
}

const EVENTS: &str = "GetContainerEvents";
const ENDED: &str = "GetContainerEvents: the runtime ended the stream";

/// The smallest call there is. It leaves after the stream was asked for, on the same connection.
fn answer(client: CriClient) -> Answer {
    Box::pin(
        async move { CriClient::version(&client, v1::VersionRequest::default()).await.map(drop) },
    )
}
