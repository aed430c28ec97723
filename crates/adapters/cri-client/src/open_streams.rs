//! The calls that open a stream: for an address, or for the stream itself.
//!
//! Rule: the request for an open stream and the stream travel as extensions of the messages
//! ([`cri_wire::InProcessStream`]), so they reach only a runtime in this process; any other returns an
//! address in either case.

use cri_wire::{AcceptsInProcessStream, InProcessStream, v1};
use ports::container_runtime::ContainerRuntimeError;
use tonic::{Request, Response};

use crate::client::CriClient;
use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamDelivery {
    Url,
    InProcess,
}

/// What a runtime returned.
#[derive(Debug)]
pub(crate) struct OpenedStream {
    /// Empty if the stream is open.
    pub(crate) url: String,
    pub(crate) open: Option<InProcessStream>,
}

impl StreamDelivery {
    fn put_on<T>(self, mut request: Request<T>) -> Request<T> {
        if self == Self::InProcess {
            request.extensions_mut().insert(AcceptsInProcessStream);
        }
        request
    }
}

impl OpenedStream {
    fn of<T>(response: Response<T>, url: impl FnOnce(T) -> String) -> Self {
        let open = response.extensions().get::<InProcessStream>().cloned();
        Self { url: url(response.into_inner()), open }
    }
}

macro_rules! streams {
    ($($method:ident: $call:ident($request:ident) $name:literal;)*) => {
        impl CriClient {
            $(
                pub(crate) async fn $method(
                    &self,
                    request: v1::$request,
                    delivery: StreamDelivery,
                ) -> Result<OpenedStream, ContainerRuntimeError> {
                    let limit = limits::ordinary(&request, &self.limits);
                    let mut service = self.runtime_service();
                    let send = |request| async move {
                        let response = service.$call(delivery.put_on(request)).await?;
                        Ok(OpenedStream::of(response, |answer| answer.url))
                    };
                    // Boxed: the future of a generated call is large, and callers nest it.
                    Box::pin(self.runtime_call($name, limit).make(request, send)).await
                }
            )*
        }
    };
}

streams! {
    exec_stream: exec(ExecRequest) "Exec";
    attach_stream: attach(AttachRequest) "Attach";
    forward_stream: port_forward(PortForwardRequest) "PortForward";
}

#[cfg(test)]
mod tests;
