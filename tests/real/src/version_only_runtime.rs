//! A container runtime that implements little more than `Version`.
//!
//! The rule it keeps: it answers the two calls without which no kubelet starts, `Version` and
//! `ImageFsInfo`, and returns "unimplemented" for all others, so that no kubelet finds it ready.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use anyhow::{Context as _, Result};
use cri_wire::v1::{ImageFsInfoRequest, ImageFsInfoResponse, VersionRequest, VersionResponse};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The running stand-in; it stops when this value is dropped.
#[derive(Debug)]
pub struct VersionOnlyRuntime {
    socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl VersionOnlyRuntime {
    pub fn start(socket: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(socket).with_context(|| socket.display().to_string())?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let serving = tonic::transport::Server::builder()
                .add_service(RuntimeHalf)
                .add_service(ImageHalf)
                .serve_with_incoming_shutdown(StandInConnections(listener), async {
                    stopped.await.ok();
                });
            if let Err(error) = runtime.block_on(serving) {
                eprintln!("the stand-in for the runtime failed: {error}");
            }
        });
        Ok(Self { socket: socket.to_owned(), stop: Some(stop), thread: Some(thread) })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for VersionOnlyRuntime {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct StandInConnections(UnixListener);

impl Stream for StandInConnections {
    type Item = std::io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

/// The runtime service: it answers `Version`.
#[derive(Clone, Copy)]
struct RuntimeHalf;

/// The image service: it has no file system to report.
#[derive(Clone, Copy)]
struct ImageHalf;

impl NamedService for RuntimeHalf {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for ImageHalf {
    const NAME: &'static str = "runtime.v1.ImageService";
}

impl UnaryService<VersionRequest> for RuntimeHalf {
    type Response = VersionResponse;
    type Future = Ready<Result<Response<VersionResponse>, Status>>;

    fn call(&mut self, _: Request<VersionRequest>) -> Self::Future {
        ready(Ok(Response::new(VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "version-only".to_owned(),
            runtime_version: "0".to_owned(),
            runtime_api_version: "v1".to_owned(),
        })))
    }
}

impl UnaryService<ImageFsInfoRequest> for ImageHalf {
    type Response = ImageFsInfoResponse;
    type Future = Ready<Result<Response<ImageFsInfoResponse>, Status>>;

    fn call(&mut self, _: Request<ImageFsInfoRequest>) -> Self::Future {
        ready(Ok(Response::new(ImageFsInfoResponse::default())))
    }
}

impl Service<http::Request<Body>> for RuntimeHalf {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if !request.uri().path().ends_with("/Version") {
                return Ok(Status::unimplemented("only the version is known").into_http());
            }
            Ok(Grpc::new(ProstCodec::default()).unary(Self, request).await)
        })
    }
}

impl Service<http::Request<Body>> for ImageHalf {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if !request.uri().path().ends_with("/ImageFsInfo") {
                return Ok(Status::unimplemented("there are no images").into_http());
            }
            Ok(Grpc::new(ProstCodec::default()).unary(Self, request).await)
        })
    }
}
