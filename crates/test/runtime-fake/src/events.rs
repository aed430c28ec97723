//! The runtime's event stream.

use std::collections::VecDeque;
use std::sync::Arc;

use ports::PortFuture;
use ports::pod_runtime::RuntimeSignals;
use ports::runtime_objects::{RuntimeEvent, RuntimeEventKind, RuntimeSignal};

use crate::runtime::Shared;

/// How events reach whoever listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Unkindness {
    pub(crate) loses_events: bool,
    pub(crate) repeats_events: bool,
    pub(crate) has_no_stream: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) queue: VecDeque<RuntimeSignal>,
    pub(crate) unkindness: Unkindness,
}

impl Events {
    pub(crate) fn push(&mut self, kind: RuntimeEventKind, id: &str, uid: &str) {
        if self.unkindness.loses_events || self.unkindness.has_no_stream {
            return;
        }
        let event =
            RuntimeEvent { kind, id: id.to_owned(), pod_uid: uid.to_owned(), created_at: 0 };
        for _ in 0..=usize::from(self.unkindness.repeats_events) {
            self.queue.push_back(RuntimeSignal::Event(event.clone()));
        }
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
