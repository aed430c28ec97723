//! The runtime with a scripted supervisor: connections that are cut, messages that are lost, a full
//! disk. Needs root, as the runtime does.

mod script;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use container_create::spec::ContainerSpec;
use pod_supervisor::protocol::{
    ContainerPhase, ContainerState, Event, EventBody, ExecState, PodState, ProcessExit, RequestBody,
};
use prost::Message as _;

use super::Runtime;
use crate::record_store::{Container, Sandbox};
use crate::records::{ContainerStage, SandboxStage, StoredContainer, StoredSandbox};
use crate::settings::RuntimeSettings;
use script::{FakeSupervisor, ServerPeer};

/// An upper limit even for a slow machine.
const LIMIT: Duration = Duration::from_secs(60);
const SANDBOX: &str = "5a4db0c5a4db0c5a4db0c5a4db0c";
const CONTAINER: &str = "c04741c04741c04741c04741";

struct RuntimeFixture {
    dir: tempfile::TempDir,
    runtime: Runtime,
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("in time")
}

impl RuntimeFixture {
    async fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap()).await
    }

    async fn on(dir: tempfile::TempDir) -> Self {
        let place = |name: &str| dir.path().join(name);
        let mut settings = RuntimeSettings::new(place("root"), place("state"));
        // Nothing of the host's own is touched.
        settings.claims = place("claims");
        settings.cni.configurations = place("net.d");
        settings.cni.results = place("cni");
        fs::write(place("supervisor"), "never run").unwrap();
        settings.supervisor = Some(place("supervisor"));
        let runtime = in_time(Box::pin(Runtime::open(settings))).await.unwrap();
        Self { dir, runtime }
    }

    /// A pod with one container.
    async fn with_pod(
        &self,
        stage: SandboxStage,
        (of_container, started_at): (ContainerStage, i64),
    ) -> (Arc<Sandbox>, Arc<Container>, FakeSupervisor) {
        let mut record = StoredSandbox { id: SANDBOX.into(), ..Default::default() };
        record.set_stage(stage);
        let sandbox = self.runtime.record_store.add_sandbox(record).await.unwrap();
        let mut record = StoredContainer {
            id: CONTAINER.into(),
            sandbox_id: SANDBOX.into(),
            started_at,
            ..Default::default()
        };
        record.set_stage(of_container);
        let container = self.runtime.record_store.add_container(record).await.unwrap();
        let dir = self.runtime.pod_dir(SANDBOX);
        fs::create_dir_all(&dir).unwrap();
        (sandbox, container, FakeSupervisor::in_dir(&dir))
    }

    /// The same with a connection to its supervisor.
    async fn with_connected_pod(
        &self,
        stage: (ContainerStage, i64),
    ) -> (Arc<Sandbox>, Arc<Container>, FakeSupervisor, ServerPeer) {
        let (sandbox, container, listener) = self.with_pod(SandboxStage::Ready, stage).await;
        let (with_connected_pod, peer) =
            in_time(async { tokio::join!(self.runtime.reconnect(&sandbox), listener.accept()) })
                .await;
        assert!(with_connected_pod.is_some());
        (sandbox, container, listener, peer)
    }

    fn record_dir(&self, kind: &str) -> std::path::PathBuf {
        self.dir.path().join("root/runtime").join(kind)
    }
}

const RUNNING: (ContainerStage, i64) = (ContainerStage::Started, 5);

fn state(phase: ContainerPhase, code: Option<i32>) -> ContainerState {
    let exit = code.map(|code| ProcessExit { code, finished_at: 9, ..ProcessExit::default() });
    let mut state =
        ContainerState { id: CONTAINER.into(), started_at: 5, exit, ..Default::default() };
    state.set_phase(phase);
    state
}

fn exec(code: i32) -> ExecState {
    let exit = Some(ProcessExit { code, ..ProcessExit::default() });
    ExecState { exec: "e".into(), container: CONTAINER.into(), exit, ..Default::default() }
}

async fn over(container: &Container) -> StoredContainer {
    in_time(container.ended().wait_for(|over| *over)).await.unwrap();
    container.record()
}

#[tokio::test]
async fn a_cut_connection_does_not_affect_a_running_pod() {
    let fixture = RuntimeFixture::new().await;
    let (sandbox, container, listener, first) = fixture.with_connected_pod(RUNNING).await;
    let (exited, mut later) = (sandbox.execs.expect("e"), sandbox.execs.expect("later"));
    sandbox.execs.started("e");
    drop(first);
    // It reconnects and lists; the exec has ended meanwhile, the container has not.
    let second = in_time(listener.accept()).await;
    let known = PodState {
        containers: vec![state(ContainerPhase::Running, None)],
        execs: vec![exec(4)],
        ..Default::default()
    };
    let (second, _asked) = second.serve(known);
    assert_eq!(in_time(exited).await.unwrap().code, 4);
    assert_eq!(sandbox.record().stage(), SandboxStage::Ready);
    assert_eq!(container.record().stage(), ContainerStage::Started);
    // Events from now on are received.
    assert!(
        later.try_recv().is_err_and(|why| why == tokio::sync::oneshot::error::TryRecvError::Empty)
    );
    let body = Some(EventBody::ContainerExited(state(ContainerPhase::Exited, Some(9))));
    second.announce(Event { body });
    let record = over(&container).await;
    assert_eq!((record.stage(), record.exit_code), (ContainerStage::Exited, 9));
}

#[tokio::test]
async fn a_pod_whose_supervisor_is_gone_is_settled() {
    let fixture = RuntimeFixture::new().await;
    let (sandbox, container, listener, peer) = fixture.with_connected_pod(RUNNING).await;
    let exited = sandbox.execs.expect("e");
    sandbox.execs.started("e");
    let mut container_events = fixture.runtime.events.subscribe();
    drop((listener, peer));
    let next = std::future::poll_fn(|context| {
        tonic::codegen::tokio_stream::Stream::poll_next(container_events.as_mut(), context)
    });
    let event = in_time(next).await.expect("an event").expect("well");
    assert_eq!(event.container_id, CONTAINER);
    // A client that receives this event must not restart it in this pod.
    let state = event.pod_sandbox_status.expect("of a pod").state();
    assert_eq!(state, cri_wire::v1::PodSandboxState::SandboxNotready);
    let record = over(&container).await;
    assert_eq!((record.exit_code, record.reason.as_str()), (255, "Unknown"));
    assert!(in_time(exited).await.is_err(), "no exit is made up");
    in_time(fixture.runtime.stop_pod_sandbox(SANDBOX)).await.unwrap();
    assert_eq!(sandbox.record().stage(), SandboxStage::Stopped);
}

#[tokio::test]
async fn a_lost_event_is_recovered_by_listing() {
    let fixture = RuntimeFixture::new().await;
    let (sandbox, container, _listener, peer) = fixture.with_connected_pod(RUNNING).await;
    let exited = sandbox.execs.expect("e");
    sandbox.execs.started("e");
    let known = PodState {
        containers: vec![state(ContainerPhase::Exited, Some(3))],
        execs: vec![exec(4)],
        ..Default::default()
    };
    let (peer, _asked) = peer.serve(known);
    peer.announce(Event { body: None });
    assert_eq!(in_time(exited).await.unwrap().code, 4);
    assert_eq!(over(&container).await.exit_code, 3);
}

/// The answer to its start was lost: it runs, or it never did.
#[tokio::test]
async fn a_start_whose_connection_was_cut_is_checked_by_listing() {
    for (known, runs) in [(vec![state(ContainerPhase::Running, None)], true), (Vec::new(), false)] {
        let fixture = RuntimeFixture::new().await;
        let (sandbox, container, listener, mut first) =
            fixture.with_connected_pod((ContainerStage::Created, 0)).await;
        let dir = fixture.runtime.container_dir(CONTAINER);
        fs::create_dir_all(&dir).unwrap();
        let specification = ContainerSpec::default().encode_to_vec();
        fs::write(dir.join(super::container_create::SPECIFICATION), specification).unwrap();
        let runtime = fixture.runtime.clone();
        let starting = tokio::spawn(async move { runtime.start_container(CONTAINER).await });
        assert!(matches!(in_time(first.next()).await.body, Some(RequestBody::Create(_))));
        drop(first);
        let known = PodState { containers: known, ..Default::default() };
        let (_second, mut asked) = in_time(listener.accept()).await.serve(known);
        let outcome = in_time(starting).await.unwrap();
        let record = container.record();
        assert_eq!(outcome.is_ok(), runs, "{outcome:?}");
        if runs {
            assert_eq!((record.stage(), record.started_at), (ContainerStage::Started, 5));
        } else {
            assert_eq!((record.exit_code, record.reason.as_str()), (128, "StartError"));
            let mut deleted = false;
            while let Ok(body) = asked.try_recv() {
                deleted |= matches!(body, RequestBody::Delete(_));
            }
            assert!(deleted, "what may be left of it goes");
        }
        assert_eq!(sandbox.record().stage(), SandboxStage::Ready);
    }
}

/// Removing a starting container is refused, without killing it first.
#[tokio::test]
async fn a_removal_that_is_refused_kills_nothing() {
    let fixture = RuntimeFixture::new().await;
    let (_sandbox, container, _listener, mut peer) =
        fixture.with_connected_pod((ContainerStage::Created, 0)).await;
    let dir = fixture.runtime.container_dir(CONTAINER);
    fs::create_dir_all(&dir).unwrap();
    let specification = ContainerSpec::default().encode_to_vec();
    fs::write(dir.join(super::container_create::SPECIFICATION), specification).unwrap();
    let runtime = fixture.runtime.clone();
    let starting = tokio::spawn(async move { runtime.start_container(CONTAINER).await });
    assert!(matches!(in_time(peer.next()).await.body, Some(RequestBody::Create(_))));
    let removing = fixture.runtime.remove_container(CONTAINER);
    tokio::pin!(removing);
    let failure = tokio::select! {
        outcome = &mut removing => outcome.unwrap_err(),
        asked = in_time(peer.next()) => panic!("{asked:?}"),
    };
    assert!(failure.text.contains("starting state"), "{failure}");
    assert_eq!(container.record().stage(), ContainerStage::Started);
    starting.abort();
}

#[tokio::test]
async fn an_unconnected_supervisor_is_stopped_with_its_pod() {
    let fixture = RuntimeFixture::new().await;
    let (sandbox, container, listener) =
        fixture.with_pod(SandboxStage::Creating, (ContainerStage::Created, 0)).await;
    fixture.runtime.record_store.remove_container(&container.id).await.unwrap();
    let discarding = Box::pin(fixture.runtime.discard(&sandbox));
    let ending = async {
        let mut peer = listener.accept().await;
        let request = peer.next().await;
        assert!(matches!(request.body, Some(RequestBody::Shutdown(_))), "{request:?}");
        peer.done(request.id);
        peer
    };
    let (outcome, _peer) = in_time(async { tokio::join!(discarding, ending) }).await;
    outcome.unwrap();
    assert!(fixture.runtime.record_store.sandbox(SANDBOX).is_err());
    assert!(!fixture.runtime.pod_dir(SANDBOX).exists());
}

#[tokio::test]
async fn on_a_full_disk_a_pod_ends_and_its_exits_are_kept() {
    let fixture = RuntimeFixture::new().await;
    let (sandbox, container, _listener, peer) = fixture.with_connected_pod(RUNNING).await;
    let (peer, mut asked) = peer.serve(PodState::default());
    let aside = fixture.dir.path().join("aside");
    fs::create_dir(&aside).unwrap();
    for kind in ["sandboxes", "containers"] {
        fs::rename(fixture.record_dir(kind), aside.join(kind)).unwrap();
    }
    let happened = Some(EventBody::ContainerExited(state(ContainerPhase::Exited, Some(9))));
    peer.announce(Event { body: happened });
    assert_eq!(over(&container).await.exit_code, 9);
    in_time(fixture.runtime.stop_container(CONTAINER, 5)).await.unwrap();
    in_time(fixture.runtime.stop_pod_sandbox(SANDBOX)).await.unwrap();
    assert_eq!(sandbox.record().stage(), SandboxStage::Stopped);
    assert!(asked.try_recv().is_err(), "its supervisor alone can tell the next server");
    for kind in ["sandboxes", "containers"] {
        fs::rename(aside.join(kind), fixture.record_dir(kind)).unwrap();
    }
    // With room on disk the exit is written, and the rest is removed.
    let body = in_time(asked.recv()).await;
    assert!(matches!(body, Some(RequestBody::Shutdown(_))), "{body:?}");
    assert!(!container.is_unwritten());
    in_time(fixture.runtime.remove_pod_sandbox(SANDBOX)).await.unwrap();
    assert!(!fixture.runtime.pod_dir(SANDBOX).exists());
}

#[tokio::test]
async fn a_leftover_that_cannot_be_removed_does_not_block_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let (stays, goes) = (place("state/pods/a"), place("state/pods/b/c"));
    fs::create_dir_all(&goes).unwrap();
    // A file is not removed as a directory.
    fs::write(&stays, "").unwrap();
    fs::write(place("state/mounts"), "").unwrap();
    let views = place("root/containers/d");
    fs::create_dir_all(&views).unwrap();
    let fixture = RuntimeFixture::on(dir).await;
    assert!(stays.exists() && !goes.exists() && !views.exists());
    drop(fixture);
}
