//! Signals across a runtime that restarts, is silent, floods, or has no event stream.

use std::time::Duration;

use cri_wire::v1;
use cri_wire::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use ports::pod_runtime::{PodRuntime, RuntimeSignals};
use ports::runtime_objects::RuntimeSignal;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::{Request, Response, Status};

use crate::tests::scripted::{Parts, ScriptedRuntime, SocketDir};
use crate::{CallLimits, CriClient, RuntimeTransport};

const SOON: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_millis(200);

async fn next(signals: &mut Box<dyn RuntimeSignals>) -> RuntimeSignal {
    tokio::time::timeout(SOON, signals.next()).await.expect("a signal in time")
}

async fn expect_event(signals: &mut Box<dyn RuntimeSignals>, id: &str) {
    let signal = next(signals).await;
    assert!(matches!(&signal, RuntimeSignal::Event(event) if event.id == id), "{signal:?}");
}

async fn expect_silence(signals: &mut Box<dyn RuntimeSignals>) {
    let signal = tokio::time::timeout(SILENCE, signals.next()).await;
    assert!(signal.is_err(), "{signal:?}");
}

#[tokio::test]
async fn the_event_stream_reconnects_after_a_runtime_restart() {
    let dir = SocketDir::new();
    let client = CriClient::connect(&dir.endpoint(), None, CallLimits::default());
    let mut signals = client.signals();
    let lost = next(&mut signals).await;
    assert!(
        matches!(&lost, RuntimeSignal::Lost(reason) if reason.contains("runtime.sock")),
        "{lost:?}"
    );
    expect_silence(&mut signals).await;
    for _ in 0..2 {
        let server = dir.serve(ScriptedRuntime);
        assert_eq!(next(&mut signals).await, RuntimeSignal::Connected);
        // A cancelled wait loses nothing.
        expect_event(&mut signals, "first").await;
        expect_event(&mut signals, "second").await;
        expect_silence(&mut signals).await;
        drop(server);
        let lost = next(&mut signals).await;
        assert!(matches!(lost, RuntimeSignal::Lost(_)), "{lost:?}");
        dir.remove_socket();
        expect_silence(&mut signals).await;
    }
}

/// How the stream of events behaves.
#[derive(Clone, Copy)]
enum StreamBehaviour {
    /// Nothing comes, not even headers.
    Mute,
    EndsAtOnce,
    NotThere,
    /// It exists, but access is denied.
    Refuses,
    /// No server answers at all.
    Dead,
}

#[tonic::async_trait]
impl RuntimeService for StreamBehaviour {
    async fn version(
        &self,
        _: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        match self {
            Self::Dead => std::future::pending().await,
            _ => Ok(Response::new(v1::VersionResponse::default())),
        }
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Result<Response<Parts<v1::ContainerEventResponse>>, Status> {
        match self {
            Self::Mute | Self::Dead => std::future::pending().await,
            Self::EndsAtOnce => {
                let nothing = tokio_stream::empty().chain(tokio_stream::empty());
                Ok(Response::new(Box::pin(nothing)))
            }
            Self::NotThere => Err(Status::unimplemented("no events here")),
            Self::Refuses => Err(Status::resource_exhausted("too many listen")),
        }
    }
}

fn listening_to(stream: StreamBehaviour, request: Duration) -> Box<dyn RuntimeSignals> {
    let transport = RuntimeTransport::in_process("scripted", RuntimeServiceServer::new(stream));
    let limits = CallLimits { request, ..CallLimits::default() };
    CriClient::over(transport.clone(), transport, limits).signals()
}

#[tokio::test]
async fn a_silent_stream_is_connected_once_the_runtime_answers() {
    let mut signals = listening_to(StreamBehaviour::Mute, SOON);
    assert_eq!(next(&mut signals).await, RuntimeSignal::Connected);
    expect_silence(&mut signals).await;
}

#[tokio::test]
async fn a_runtime_without_container_events_is_reported_unsupported_once() {
    let mut signals = listening_to(StreamBehaviour::NotThere, SOON);
    assert_eq!(next(&mut signals).await, RuntimeSignal::Unsupported);
    expect_silence(&mut signals).await;
}

#[tokio::test]
async fn a_runtime_that_refuses_the_event_stream_is_reported_once() {
    let mut signals = listening_to(StreamBehaviour::Refuses, SOON);
    let lost = next(&mut signals).await;
    assert!(
        matches!(&lost, RuntimeSignal::Lost(reason) if reason.contains("too many")),
        "{lost:?}"
    );
    let refused = next(&mut signals).await;
    let words = |reason: &str| reason.contains("too many listen");
    assert!(matches!(&refused, RuntimeSignal::Refused(reason) if words(reason)), "{refused:?}");
    expect_silence(&mut signals).await;
}

#[tokio::test]
async fn a_runtime_that_never_answers_is_lost_at_the_limit() {
    let mut signals = listening_to(StreamBehaviour::Dead, SILENCE);
    let lost = next(&mut signals).await;
    assert!(
        matches!(&lost, RuntimeSignal::Lost(reason) if reason.starts_with("Version")),
        "{lost:?}"
    );
}

#[tokio::test]
async fn a_stream_that_ends_at_once_is_reopened_with_back_off() {
    let mut signals = listening_to(StreamBehaviour::EndsAtOnce, SOON);
    let signals_received = async {
        let mut count = 0;
        loop {
            signals.next().await;
            count += 1;
            if count > 50 {
                return;
            }
        }
    };
    // Each retry waits twice as long as the one before: few fit in here.
    tokio::time::timeout(Duration::from_secs(1), signals_received)
        .await
        .expect_err("too many rounds");
}
