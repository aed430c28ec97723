//! The runtime's event stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ports::PortFuture;
use ports::pod_runtime::RuntimeSignals;
use ports::runtime_objects::{ContainerRecord, RuntimeEvent, RuntimeEventKind, RuntimeSignal};

use tokio::time::Instant;

use crate::runtime::FakeRuntimeShared;

/// Faults of event delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EventFaults {
    pub(crate) drops_events: bool,
    pub(crate) duplicates_events: bool,
    pub(crate) lacks_event_stream: bool,
    pub(crate) omits_exit: bool,
}

#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    pub(crate) queue: VecDeque<RuntimeSignal>,
    pub(crate) event_faults: EventFaults,
    /// How late an event is delivered.
    pub(crate) delay: Duration,
    waiting: VecDeque<(Instant, RuntimeEvent)>,
    /// How far the runtime's clock lags.
    pub(crate) clock_lag: Duration,
    /// The clock's value at the last call.
    pub(crate) now: i64,
}

impl EventQueue {
    pub(crate) fn push(&mut self, kind: RuntimeEventKind, id: &str, uid: &str) {
        let (id, pod_uid) = (id.to_owned(), uid.to_owned());
        self.enqueue(&RuntimeEvent { kind, id, pod_uid, created_at: self.now, ended: None });
    }

    /// Records that a container has terminated in a ready sandbox.
    pub(crate) fn push_exit(&mut self, record: &ContainerRecord, uid: &str) {
        let exited = ContainerRecord { sandbox_id: String::new(), ..record.clone() };
        let ended = (!self.event_faults.omits_exit).then(|| Box::new(exited));
        let (id, pod_uid) = (record.id.clone(), uid.to_owned());
        let kind = RuntimeEventKind::Stopped;
        self.enqueue(&RuntimeEvent { kind, id, pod_uid, created_at: self.now, ended });
    }

    fn enqueue(&mut self, event: &RuntimeEvent) {
        if self.event_faults.drops_events || self.event_faults.lacks_event_stream {
            return;
        }
        for _ in 0..=usize::from(self.event_faults.duplicates_events) {
            self.waiting.push_back((Instant::now() + self.delay, event.clone()));
        }
        self.advance_to_now();
    }

    /// Delivers the events whose delay has passed.
    pub(crate) fn advance_to_now(&mut self) {
        while self.next().is_some_and(|at| at <= Instant::now()) {
            let due = self.waiting.pop_front().map(|(_, event)| RuntimeSignal::Event(event));
            self.queue.extend(due);
        }
    }

    /// When the next event is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }
}

pub(crate) struct FakeEventStream {
    pub(crate) shared: Arc<FakeRuntimeShared>,
    pub(crate) connected_sent: bool,
}

impl RuntimeSignals for FakeEventStream {
    fn next(&mut self) -> PortFuture<'_, RuntimeSignal> {
        Box::pin(async move {
            if !self.connected_sent {
                self.connected_sent = true;
                let has_stream = !self.shared.state().events.event_faults.lacks_event_stream;
                return if has_stream {
                    RuntimeSignal::Connected
                } else {
                    RuntimeSignal::Unsupported
                };
            }
            loop {
                let wake = {
                    let mut state = self.shared.state();
                    state.advance_to_now(&self.shared);
                    if let Some(signal) = state.events.queue.pop_front() {
                        return signal;
                    }
                    state.next_exit()
                };
                let changed = self.shared.changed.notified();
                match wake {
                    Some(at) => {
                        tokio::select! {
                            () = changed => {}
                            () = tokio::time::sleep_until(at) => {}
                        }
                    }
                    None => changed.await,
                }
            }
        })
    }
}
