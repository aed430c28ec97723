//! Container events, sent to all subscribers.
//!
//! Rule: an event is sent after its record is on disk. A subscriber that is too slow loses the
//! oldest events and its stream is ended, so that it lists again; senders never wait for it.

use cri_wire::v1;
use tokio::sync::{Mutex, MutexGuard, broadcast, mpsc};
use tonic::Status;
use tonic::codegen::BoxStream;
use tonic::codegen::tokio_stream::Stream;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How many events a subscriber may lag behind.
const BACKLOG: usize = 1024;

#[derive(Debug, Clone)]
pub(crate) struct EventBroadcast {
    sender: broadcast::Sender<v1::ContainerEventResponse>,
    order_lock: Arc<Mutex<()>>,
}

impl Default for EventBroadcast {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BACKLOG), order_lock: Arc::default() }
    }
}

impl EventBroadcast {
    pub(crate) fn send(&self, event: v1::ContainerEventResponse) {
        // There may be no subscribers.
        let _ = self.sender.send(event);
    }

    /// Events are sent in the order of these calls.
    pub(crate) async fn exclusive_lock(&self) -> MutexGuard<'_, ()> {
        self.order_lock.lock().await
    }

    pub(crate) fn has_listeners(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn subscribe(&self) -> BoxStream<v1::ContainerEventResponse> {
        let mut events = self.sender.subscribe();
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    () = sender.closed() => return,
                    next = events.recv() => next,
                };
                let (item, last) = match next {
                    Ok(event) => (Ok(event), false),
                    Err(broadcast::error::RecvError::Closed) => return,
                    Err(broadcast::error::RecvError::Lagged(lost)) => {
                        let text = format!("{lost} events were lost: list again and listen anew");
                        (Err(Status::data_loss(text)), true)
                    }
                };
                if sender.send(item).await.is_err() || last {
                    return;
                }
            }
        });
        Box::pin(ReceiverStream(receiver))
    }
}

/// A channel as a stream.
pub(crate) struct ReceiverStream<T>(pub(crate) mpsc::Receiver<T>);

impl<T> Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

/// A list in parts of at most `part` items, for CRI's streaming list calls.
pub(crate) fn in_chunks<Item, Answer>(
    items: Vec<Item>,
    part: usize,
    wrap: impl Fn(Vec<Item>) -> Answer,
) -> BoxStream<Answer>
where
    Item: Send + 'static,
    Answer: Send + 'static,
{
    let mut answers = Vec::new();
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        answers.push(Ok(wrap(items.by_ref().take(part).collect())));
    }
    Box::pin(tonic::codegen::tokio_stream::iter(answers))
}
