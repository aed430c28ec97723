//! A handler's result: a response, or a connection that becomes a stream.
//!
//! Rule: what a result holds (such as its slot) is held until its last byte is handed to the connection, or
//! until the stream has ended.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::activity::TrackedStream;
use crate::body::Body;
use crate::permits::WorkPermit;

/// Runs a stream after its response (101) has been sent.
pub type UpgradeTask = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// A response with what it holds.
pub struct HandlerResponse {
    pub(crate) response: Response<Body>,
    pub(crate) upgrade: Option<UpgradeTask>,
    pub(crate) within: Option<Duration>,
    pub(crate) held: Held,
}

/// Dropped once the last byte is handed to the connection, or the stream has ended.
#[derive(Debug, Default)]
pub(crate) struct Held {
    _permit: Option<WorkPermit>,
    _other: Option<Box<dyn Any + Send + Sync>>,
}

impl HandlerResponse {
    pub fn new(response: Response<Body>) -> Self {
        Self { response, upgrade: None, within: None, held: Held::default() }
    }

    /// The response is sent; then the task owns the connection, for at most `within`.
    pub fn upgrade(response: Response<Body>, within: Duration, task: UpgradeTask) -> Self {
        let (upgrade, within) = (Some(task), Some(within));
        Self { response, upgrade, within, held: Held::default() }
    }

    /// How long it may take from now on; by default the rest of `ServerLimits::response_timeout`.
    #[must_use]
    pub fn within(self, max_duration: Duration) -> Self {
        Self { within: Some(max_duration), ..self }
    }

    /// The slot that it holds.
    #[must_use]
    pub fn with_permit(self, permit: WorkPermit) -> Self {
        Self { held: Held { _permit: Some(permit), ..self.held }, ..self }
    }

    /// Anything else that it holds, such as a count of requests in flight.
    #[must_use]
    pub fn holding(self, other: impl Send + Sync + 'static) -> Self {
        Self { held: Held { _other: Some(Box::new(other)), ..self.held }, ..self }
    }
}

/// The accepted stream below an upgraded connection, and the bytes already read from it.
///
/// # Errors
/// The connection itself if its stream has another type.
pub fn stream_of<S>(upgraded: Upgraded) -> Result<(S, Bytes), Upgraded>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let parts = upgraded.downcast::<TokioIo<TrackedStream<S>>>()?;
    Ok((parts.io.into_inner().into_stream(), parts.read_buf))
}
