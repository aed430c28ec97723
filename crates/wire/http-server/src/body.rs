//! Bodies: of responses, whole or streamed; of requests, within limits.
//!
//! Rule: a whole body is passed on in parts, so that a client that does not read keeps its response
//! open (and runs into its deadline) instead of having it counted as sent. A body that is cut off
//! ends the connection: a client never takes a part for the whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::activity::ConnectionActivity;
use crate::answer::Held;

const BODY_CHUNK_BYTES: usize = 32 * 1024;
/// Parts queued between a sender and the connection.
const QUEUED_CHUNKS: usize = 4;

/// A response's body.
#[derive(Debug)]
pub struct Body {
    content: BodyContent,
    pub(crate) guard: Option<ResponseGuard>,
}

#[derive(Debug)]
enum BodyContent {
    Whole(Bytes),
    Parts(mpsc::Receiver<Result<Bytes, BodyAborted>>),
}

/// The sender aborted the body before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body was cut off")]
pub struct BodyAborted;

/// What a response holds until its last part is handed to the connection.
#[derive(Debug)]
pub(crate) struct ResponseGuard {
    pub(crate) activity: Arc<ConnectionActivity>,
    pub(crate) _held: Held,
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.activity.finish_request();
    }
}

/// Sends the parts of a body; dropping it ends the body.
#[derive(Debug)]
pub struct BodySender {
    parts: mpsc::Sender<Result<Bytes, BodyAborted>>,
}

impl Body {
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: BodyContent::Whole(bytes.into()), guard: None }
    }

    pub fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    /// A body whose parts are sent one by one.
    pub fn parts() -> (BodySender, Self) {
        let (parts, receiver) = mpsc::channel(QUEUED_CHUNKS);
        (BodySender { parts }, Self { content: BodyContent::Parts(receiver), guard: None })
    }
}

impl BodySender {
    /// Waits while the client does not read. `false` if the client is gone.
    pub async fn send(&self, part: Bytes) -> bool {
        part.is_empty() || self.parts.send(Ok(part)).await.is_ok()
    }

    /// Breaks the connection, so that the client does not take a part for the whole.
    pub async fn abort(self) {
        let _ = self.parts.send(Err(BodyAborted)).await;
    }

    /// Waits until the client is gone.
    pub async fn closed(&self) {
        self.parts.closed().await;
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BodyAborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyAborted>>> {
        match &mut self.content {
            BodyContent::Whole(rest) if rest.is_empty() => Poll::Ready(None),
            BodyContent::Whole(rest) => {
                let part = rest.split_to(rest.len().min(BODY_CHUNK_BYTES));
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            BodyContent::Parts(parts) => {
                parts.poll_recv(context).map(|part| part.map(|part| part.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, BodyContent::Whole(rest) if rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            BodyContent::Parts(_) => SizeHint::default(),
        }
    }
}

/// Why a request's body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadBodyError {
    #[error("the request's body has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the request's body did not come within {} s", limit.as_secs())]
    TooSlow { limit: Duration },
    #[error("the request's body: {cause}")]
    Broken { cause: String },
}

/// Reads a request's whole body.
///
/// # Errors
/// If it is longer or slower than allowed, or the client stops.
pub async fn read_body(
    body: Incoming,
    max_bytes: usize,
    max_duration: Duration,
) -> Result<Bytes, ReadBodyError> {
    match timeout(max_duration, Limited::new(body, max_bytes).collect()).await {
        Err(_) => Err(ReadBodyError::TooSlow { limit: max_duration }),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(ReadBodyError::TooLarge { limit: max_bytes })
        }
        Ok(Err(error)) => Err(ReadBodyError::Broken { cause: error.to_string() }),
    }
}
