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
use crate::streams::ContainerEventStream;

const INITIAL_BACK_OFF: Duration = Duration::from_millis(50);
const MAX_BACK_OFF: Duration = Duration::from_secs(2);

/// A stream that lived this long resets the back-off.
const MIN_GOOD_LIFETIME: Duration = Duration::from_secs(5);

/// Rejections in a row until they are reported.
const REJECTIONS_BEFORE_REPORT: u32 = 2;

/// A runtime without the stream is asked for it again after this long, or when the caller asks for
/// signals again.
const STREAM_RETRY_INTERVAL: Duration = Duration::from_secs(300);

type VersionProbe = Pin<Box<dyn Future<Output = Result<(), ContainerRuntimeError>> + Send>>;

enum EventStreamState {
    /// No stream is open; retry at that time.
    Disconnected {
        retry_at: Instant,
    },
    /// The stream was requested; a small call behind it shows whether the runtime answers.
    Opening {
        events: ContainerEventStream,
        version_probe: VersionProbe,
    },
    /// The stream was rejected; waits for whether the runtime answers at all.
    Refused {
        version_probe: VersionProbe,
        why: String,
    },
    Open {
        events: ContainerEventStream,
        since: Instant,
    },
    /// The runtime has no event stream. It is asked again now and then: it may have been replaced
    /// by one that has it.
    Unsupported {
        retry_at: Instant,
    },
}

pub(super) struct ContainerEventSignals {
    client: CriClient,
    state: EventStreamState,
    back_off: Duration,
    /// Whether `Lost` was emitted and no `Connected` since.
    reported_lost: bool,
    /// Whether the caller knows that there is no stream.
    reported_unsupported: bool,
    /// How often in a row the runtime answered but rejected the stream.
    refused_in_a_row: u32,
    /// An event that arrived before `Connected` was emitted.
    pending_event: Option<RuntimeEvent>,
}

impl RuntimeSignals for ContainerEventSignals {
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

impl ContainerEventSignals {
    pub(super) fn new(client: CriClient) -> Self {
        let state = EventStreamState::Disconnected { retry_at: Instant::now() };
        Self {
            client,
            state,
            back_off: INITIAL_BACK_OFF,
            reported_lost: false,
            reported_unsupported: false,
            refused_in_a_row: 0,
            pending_event: None,
        }
    }

    /// At most one wait; state changes only after it.
    async fn step(&mut self) -> Option<RuntimeSignal> {
        match &mut self.state {
            EventStreamState::Disconnected { retry_at } => {
                tokio::time::sleep_until(*retry_at).await;
                let events = self.client.container_events();
                self.state = EventStreamState::Opening {
                    events,
                    version_probe: version_probe(self.client.clone()),
                };
                None
            }
            EventStreamState::Opening { events, version_probe } => {
                let first = tokio::select! {
                    biased;
                    event = events.next() => Err(event),
                    answered = version_probe => Ok(answered),
                };
                match first {
                    Ok(Ok(())) | Err(Ok(Some(_))) => {
                        self.pending_event =
                            first.err().and_then(Result::ok).flatten().map(records::event);
                        self.opened();
                        Some(RuntimeSignal::Connected)
                    }
                    Ok(Err(error)) => {
                        self.refused_in_a_row = 0;
                        self.failed(&error)
                    }
                    Err(Err(error)) if is_unsupported(&error) => self.failed(&error),
                    Err(Err(error)) => self.refused(error.to_string()),
                    Err(Ok(None)) => self.refused(ENDED.to_owned()),
                }
            }
            EventStreamState::Refused { version_probe, .. } => {
                let answered = version_probe.await.is_ok();
                self.after_refused_stream(answered)
            }
            EventStreamState::Open { events, .. } => {
                if let Some(event) = self.pending_event.take() {
                    return Some(RuntimeSignal::Event(event));
                }
                match events.next().await {
                    Ok(Some(event)) => Some(RuntimeSignal::Event(records::event(event))),
                    Ok(None) => self.disconnected(ENDED.to_owned()),
                    Err(error) => self.failed(&error),
                }
            }
            EventStreamState::Unsupported { retry_at } => {
                if !std::mem::replace(&mut self.reported_unsupported, true) {
                    return Some(RuntimeSignal::Unsupported);
                }
                self.state = EventStreamState::Disconnected { retry_at: *retry_at };
                None
            }
        }
    }

    fn opened(&mut self) {
        let old = std::mem::replace(
            &mut self.state,
            EventStreamState::Disconnected { retry_at: Instant::now() },
        );
        if let EventStreamState::Opening { events, .. } = old {
            self.state = EventStreamState::Open { events, since: Instant::now() };
        }
        self.reported_lost = false;
        self.reported_unsupported = false;
        self.refused_in_a_row = 0;
    }

    /// The stream was rejected; reports at once that no events arrive.
    fn refused(&mut self, why: String) -> Option<RuntimeSignal> {
        let old = std::mem::replace(
            &mut self.state,
            EventStreamState::Disconnected { retry_at: Instant::now() },
        );
        if let EventStreamState::Opening { version_probe, .. } = old {
            self.state = EventStreamState::Refused { version_probe, why: why.clone() };
        }
        self.report_lost(why)
    }

    fn after_refused_stream(&mut self, answered: bool) -> Option<RuntimeSignal> {
        let old = std::mem::replace(
            &mut self.state,
            EventStreamState::Disconnected { retry_at: Instant::now() },
        );
        self.schedule_retry();
        let EventStreamState::Refused { why, .. } = old else { return None };
        self.refused_in_a_row = if answered { self.refused_in_a_row.saturating_add(1) } else { 0 };
        let should_report =
            self.refused_in_a_row == REJECTIONS_BEFORE_REPORT && !self.reported_unsupported;
        should_report.then_some(RuntimeSignal::Refused(why))
    }

    fn failed(&mut self, error: &ContainerRuntimeError) -> Option<RuntimeSignal> {
        if is_unsupported(error) {
            self.state =
                EventStreamState::Unsupported { retry_at: Instant::now() + STREAM_RETRY_INTERVAL };
            return None;
        }
        self.disconnected(error.to_string())
    }

    /// The stream ended: reports it once and schedules a retry.
    fn disconnected(&mut self, why: String) -> Option<RuntimeSignal> {
        if let EventStreamState::Open { since, .. } = &self.state
            && since.elapsed() >= MIN_GOOD_LIFETIME
        {
            self.back_off = INITIAL_BACK_OFF;
        }
        self.schedule_retry();
        self.report_lost(why)
    }

    fn schedule_retry(&mut self) {
        self.state = EventStreamState::Disconnected { retry_at: Instant::now() + self.back_off };
        self.back_off = (self.back_off * 2).min(MAX_BACK_OFF);
    }

    fn report_lost(&mut self, why: String) -> Option<RuntimeSignal> {
        // A caller that polls instead of listening loses nothing.
        let should_report =
            !std::mem::replace(&mut self.reported_lost, true) && !self.reported_unsupported;
        should_report.then_some(RuntimeSignal::Lost(why))
    }
}

fn is_unsupported(error: &ContainerRuntimeError) -> bool {
    matches!(error, ContainerRuntimeError::Unimplemented { call: EVENTS, .. })
}

const EVENTS: &str = "GetContainerEvents";
const ENDED: &str = "GetContainerEvents: the runtime ended the stream";

/// The smallest call there is. It is sent after the stream's request, on the same connection.
fn version_probe(client: CriClient) -> VersionProbe {
    Box::pin(
        async move { CriClient::version(&client, v1::VersionRequest::default()).await.map(drop) },
    )
}
