//! The client: two transports, the limits, and the one place where a call is made.
//!
//! Rule: every call has a name for its errors and a limit that is enforced on both sides: here by a
//! timer, in the runtime by the request's timeout header. Does not know the calls; `calls` lists
//! them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cri_wire::MESSAGE_SIZE_LIMIT;
use cri_wire::v1::image_service_client::ImageServiceClient;
use cri_wire::v1::runtime_service_client::RuntimeServiceClient;
use ports::container_runtime::ContainerRuntimeError;
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use crate::call_counts::CallCounts;
use crate::call_error::{RuntimeCallContext, from_status};
use crate::endpoint::Endpoint;
use crate::limits::CallLimits;
use crate::transport::{BoxedService, RuntimeTransport};

/// A client of one runtime. Cheap to clone; clones share the connections.
#[derive(Debug, Clone)]
pub struct CriClient {
    runtime: RuntimeTransport,
    image: RuntimeTransport,
    pub(crate) limits: CallLimits,
    pub(crate) counts: Arc<CallCounts>,
}

impl CriClient {
    /// Over sockets; without `image`, the image service is at `runtime` too.
    ///
    /// Must be called inside a tokio runtime. Opens nothing yet.
    pub fn connect(runtime: &Endpoint, image: Option<&Endpoint>, limits: CallLimits) -> Self {
        let runtime = RuntimeTransport::socket(runtime);
        let image = image.map_or_else(|| runtime.clone(), RuntimeTransport::socket);
        Self::over(runtime, image, limits)
    }

    /// Over given transports, for a runtime in this process.
    pub fn over(runtime: RuntimeTransport, image: RuntimeTransport, limits: CallLimits) -> Self {
        Self { runtime, image, limits, counts: Arc::default() }
    }

    pub(crate) fn runtime_service(&self) -> RuntimeServiceClient<BoxedService> {
        RuntimeServiceClient::new(self.runtime.service())
            .max_decoding_message_size(MESSAGE_SIZE_LIMIT)
            .max_encoding_message_size(MESSAGE_SIZE_LIMIT)
    }

    pub(crate) fn image_service(&self) -> ImageServiceClient<BoxedService> {
        ImageServiceClient::new(self.image.service())
            .max_decoding_message_size(MESSAGE_SIZE_LIMIT)
            .max_encoding_message_size(MESSAGE_SIZE_LIMIT)
    }

    pub(crate) fn runtime_name(&self) -> &str {
        self.runtime.name()
    }

    pub(crate) fn runtime_call(&self, name: &'static str, limit: Duration) -> CriCall<'_> {
        CriCall { name, limit, transport: &self.runtime, counts: &self.counts }
    }

    pub(crate) fn image_call(&self, name: &'static str, limit: Duration) -> CriCall<'_> {
        CriCall { name, limit, transport: &self.image, counts: &self.counts }
    }
}

/// One call to be made.
pub(crate) struct CriCall<'a> {
    name: &'static str,
    limit: Duration,
    transport: &'a RuntimeTransport,
    counts: &'a CallCounts,
}

impl CriCall<'_> {
    /// Sends `message` by `send` and waits for the whole response, at most as long as the limit.
    pub(crate) async fn make<Message, Answer, Sent>(
        self,
        message: Message,
        send: impl FnOnce(Request<Message>) -> Sent,
    ) -> Result<Answer, ContainerRuntimeError>
    where
        Message: prost::Message,
        Sent: Future<Output = Result<Answer, Status>>,
    {
        let (call, counts, began) = (self.name, self.counts, Instant::now());
        let outcome = self.send(message, send).await;
        counts.add(call, began.elapsed(), outcome.is_err());
        outcome
    }

    async fn send<Message, Answer, Sent>(
        self,
        message: Message,
        send: impl FnOnce(Request<Message>) -> Sent,
    ) -> Result<Answer, ContainerRuntimeError>
    where
        Message: prost::Message,
        Sent: Future<Output = Result<Answer, Status>>,
    {
        let Self { name: call, limit, transport, .. } = self;
        // Checked here because the transport would report its own limit as a broken stream.
        let size = message.encoded_len();
        if size > MESSAGE_SIZE_LIMIT {
            let message = format!("the request has {size} bytes, at most {MESSAGE_SIZE_LIMIT}");
            let code = format!("{:?}", Code::ResourceExhausted);
            return Err(ContainerRuntimeError::Refused { call, code, message });
        }
        let started = Instant::now();
        let mut request = Request::new(message);
        request.set_timeout(limit);
        let Ok(outcome) = tokio::time::timeout(limit, send(request)).await else {
            return Err(ContainerRuntimeError::DeadlineExceeded { call, limit });
        };
        outcome.map_err(|status| {
            let elapsed = started.elapsed();
            let endpoint = transport.name();
            from_status(&status, RuntimeCallContext { call, endpoint, limit: Some(limit), elapsed })
        })
    }
}
