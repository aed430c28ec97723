//! The transport to a runtime: one boxed service, for either kind of runtime.
//!
//! Rule: users of the client cannot tell a socket from a runtime in the same process. Connects when
//! the first call needs it and again when a connection broke; does not wait, retry or limit.

use std::fmt;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response, Uri};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use crate::endpoint::Endpoint;

pub(crate) type BoxedService = BoxCloneSyncService<Request<Body>, Response<Body>, TransportError>;

/// A transport error: a type of its own because the compiler cannot prove a bare boxed error `Send`
/// across the generated code's awaits.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TransportError(#[source] BoxError);

/// A connection to one service of a runtime. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct RuntimeTransport {
    service: BoxedService,
    name: Arc<str>,
}

impl RuntimeTransport {
    /// To the socket at `endpoint`; nothing is opened before the first call.
    ///
    /// Must be called inside a tokio runtime, which drives the connection.
    pub fn socket(endpoint: &Endpoint) -> Self {
        let path = endpoint.socket().to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is never dialled; servers see it as the authority, and `localhost` is the
        // one that all of them take.
        let channel = tonic::transport::Endpoint::from_static("http://localhost")
            .connect_with_connector_lazy(connector);
        Self {
            service: BoxCloneSyncService::new(
                channel.map_err(|error| TransportError(error.into())),
            ),
            name: endpoint.to_string().into(),
        }
    }

    /// To a server in this process, without a socket or HTTP/2.
    ///
    /// `name` identifies it in errors.
    pub fn in_process<S>(name: &str, server: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError> + 'static,
    {
        Self {
            service: BoxCloneSyncService::new(server.map_err(|error| TransportError(error.into()))),
            name: name.into(),
        }
    }

    pub(crate) fn service(&self) -> BoxedService {
        self.service.clone()
    }

    /// The server's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for RuntimeTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Transport").field(&self.name).finish()
    }
}
