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

use crate::activity::Activity;
use crate::places::Place;

const PART: usize = 32 * 1024;
/// Parts queued between a sender and the connection.
const QUEUED_PARTS: usize = 4;

/// A response's body.
#[derive(Debug)]
pub struct Body {
    content: Content,
    pub(crate) held: Option<Held>,
}

#[derive(Debug)]
enum Content {
    Whole(Bytes),
    Parts(mpsc::Receiver<Result<Bytes, Aborted>>),
}

/// The sender aborted the body before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body was cut off")]
pub struct Aborted;

/// What a response holds until its last part is handed to the connection.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) activity: Arc<Activity>,
    pub(crate) _place: Option<Place>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.activity.finish();
    }
}

/// Sends the parts of a body; dropping it ends the body.
#[derive(Debug)]
pub struct BodySender {
    parts: mpsc::Sender<Result<Bytes, Aborted>>,
}

impl Body {
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into()), held: None }
    }

    pub fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    /// A body whose parts are sent one by one.
    pub fn parts() -> (BodySender, Self) {
        let (parts, receiver) = mpsc::channel(QUEUED_PARTS);
        (BodySender { parts }, Self { content: Content::Parts(receiver), held: None })
    }
}

impl BodySender {
    /// Waits while the client does not read. `false` if the client is gone.
    pub async fn send(&self, part: Bytes) -> bool {
        part.is_empty() || self.parts.send(Ok(part)).await.is_ok()
    }

    /// Breaks the connection, so that the client does not take a part for the whole.
    pub async fn abort(self) {
        let _ = self.parts.send(Err(Aborted)).await;
    }

    /// Waits until the client is gone.
    pub async fn closed(&self) {
        self.parts.closed().await;
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match &mut self.content {
            Content::Whole(rest) if rest.is_empty() => Poll::Ready(None),
            Content::Whole(rest) => {
                let part = rest.split_to(rest.len().min(PART));
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            Content::Parts(parts) => {
                parts.poll_recv(context).map(|part| part.map(|part| part.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(rest) if rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Content::Parts(_) => SizeHint::default(),
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
    most: usize,
    longest: Duration,
) -> Result<Bytes, ReadBodyError> {
    match timeout(longest, Limited::new(body, most).collect()).await {
        Err(_) => Err(ReadBodyError::TooSlow { limit: longest }),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(ReadBodyError::TooLarge { limit: most })
        }
        Ok(Err(error)) => Err(ReadBodyError::Broken { cause: error.to_string() }),
    }
}
