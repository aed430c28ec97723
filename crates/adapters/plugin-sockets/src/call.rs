//! One call to a plugin: connect, send, wait, each with a limit.
//!
//! Rule: a socket that nothing listens on yet is tried again until the limit for connecting, since a
//! socket's file appears before its process listens. Returns an error that names call and socket.

use std::future::Future;
use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use ports::plugins::PluginCallError;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Longer texts of plugins are cut.
const MAX_MESSAGE_CHARS: usize = 1024;

/// A call to the plugin at a socket.
#[derive(Clone, Copy)]
pub(crate) struct SocketCall<'a> {
    pub(crate) name: &'static str,
    pub(crate) socket: &'a str,
    pub(crate) limit: Duration,
}

impl SocketCall<'_> {
    /// Connects and calls.
    pub(crate) async fn make<Message, Answer, Sent>(
        self,
        message: Message,
        send: impl FnOnce(Channel, Request<Message>) -> Sent,
    ) -> Result<Answer, PluginCallError>
    where
        Sent: Future<Output = Result<Response<Answer>, Status>>,
    {
        let channel = connect(self.socket).await?;
        let sent_at = Instant::now();
        let mut request = Request::new(message);
        request.set_timeout(self.limit);
        // Boxed: the future of a generated call is large.
        let sent = Box::pin(send(channel, request));
        match tokio::time::timeout(self.limit, sent).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            // The request's own timeout, which the plugin sees too, may be first.
            Ok(Err(_)) if sent_at.elapsed() >= self.limit => Err(self.timed_out()),
            Ok(Err(status)) => Err(self.failed(&status)),
            Err(_) => Err(self.timed_out()),
        }
    }

    pub(crate) fn failed(self, status: &Status) -> PluginCallError {
        PluginCallError::Failed {
            call: self.name,
            socket: self.socket.to_owned(),
            code: format!("{:?}", status.code()),
            message: status.message().chars().take(MAX_MESSAGE_CHARS).collect(),
        }
    }

    pub(crate) fn timed_out(self) -> PluginCallError {
        let (socket, seconds) = (self.socket.to_owned(), self.limit.as_secs());
        PluginCallError::TimedOut { call: self.name, socket, seconds }
    }

    pub(crate) fn bad_answer(self, cause: String) -> PluginCallError {
        PluginCallError::BadAnswer { call: self.name, socket: self.socket.to_owned(), cause }
    }
}

/// A connection to the service at a socket.
pub(crate) async fn connect(socket: &str) -> Result<Channel, PluginCallError> {
    let unreachable = |cause: String| PluginCallError::Unreachable {
        socket: socket.to_owned(),
        seconds: CONNECT_LIMIT.as_secs(),
        cause,
    };
    let stream = dial(socket).await.map_err(|error| unreachable(error.to_string()))?;
    let mut stream = Some(TokioIo::new(stream));
    // The channel connects once, with this stream: a broken connection is not replaced.
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or(io::ErrorKind::NotConnected);
        async move { stream.map_err(io::Error::from) }
    });
    // Never resolved; servers see it as the authority, and all of them take `localhost`.
    Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        .map_err(|error| unreachable(error.to_string()))
}

/// Tries until the limit; the error is the last one.
async fn dial(socket: &str) -> io::Result<UnixStream> {
    let until = Instant::now() + CONNECT_LIMIT;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            // A path that is too long, for example, stays so.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            Err(error) => error,
        };
        if Instant::now() + pause >= until {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
