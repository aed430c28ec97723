//! The runtime's event stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ports::PortFuture;
use ports::pod_runtime::RuntimeSignals;
use ports::runtime_objects::{ContainerRecord, RuntimeEvent, RuntimeEventKind, RuntimeSignal};

use tokio::time::Instant;

use crate::runtime::Shared;

/// Faults of event delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Unkindness {
    pub(crate) loses_events: bool,
    pub(crate) repeats_events: bool,
    pub(crate) has_no_stream: bool,
    pub(crate) tells_no_ends: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) queue: VecDeque<RuntimeSignal>,
    pub(crate) unkindness: Unkindness,
    /// How late an event is delivered.
    pub(crate) late: Duration,
    waiting: VecDeque<(Instant, RuntimeEvent)>,
    /// How far the runtime's clock lags.
    pub(crate) behind: Duration,
    /// The clock's value at the last call.
    pub(crate) now: i64,
}

impl Events {
    pub(crate) fn push(&mut self, kind: RuntimeEventKind, id: &str, uid: &str) {
        let (id, pod_uid) = (id.to_owned(), uid.to_owned());
        self.tell(&RuntimeEvent { kind, id, pod_uid, created_at: self.now, ended: None });
    }

    /// Records that a container has terminated in a ready sandbox.
    pub(crate) fn push_end(&mut self, record: &ContainerRecord, uid: &str) {
        let told = ContainerRecord { sandbox_id: String::new(), ..record.clone() };
        let ended = (!self.unkindness.tells_no_ends).then(|| Box::new(told));
        let (id, pod_uid) = (record.id.clone(), uid.to_owned());
        let kind = RuntimeEventKind::Stopped;
        self.tell(&RuntimeEvent { kind, id, pod_uid, created_at: self.now, ended });
    }

    fn tell(&mut self, event: &RuntimeEvent) {
        if self.unkindness.loses_events || self.unkindness.has_no_stream {
            return;
        }
        for _ in 0..=usize::from(self.unkindness.repeats_events) {
            self.waiting.push_back((Instant::now() + self.late, event.clone()));
        }
        self.pass_time();
    }

    /// Delivers the events whose delay has passed.
    pub(crate) fn pass_time(&mut self) {
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

pub(crate) struct Stream {
    pub(crate) shared: Arc<Shared>,
    pub(crate) greeted: bool,
}

impl RuntimeSignals for Stream {
    fn next(&mut self) -> PortFuture<'_, RuntimeSignal> {
        Box::pin(async move {
            if !self.greeted {
                self.greeted = true;
                let has_stream = !self.shared.state().events.unkindness.has_no_stream;
                return if has_stream {
                    RuntimeSignal::Connected
                } else {
                    RuntimeSignal::Unsupported
                };
            }
            loop {
                let wake = {
                    let mut state = self.shared.state();
                    state.pass_time(&self.shared);
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
