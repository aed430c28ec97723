//! The wheel itself; the tests with a whole agent show what probes do to pods.

use super::*;
use pod_model::pod::Container;
use pod_model::pod::handler::ExecAction;
use runtime_fake::{FakeHost, FakeRuntime, Fault};

#[tokio::test(start_paused = true)]
async fn a_probe_in_flight_when_the_scheduler_panics_is_tried_again() {
    let probe = Probe {
        exec: Some(Box::new(ExecAction { command: vec![Box::from("true")] })),
        period_seconds: 10,
        ..Probe::default()
    };
    let container = Container {
        name: Box::from("main"),
        liveness_probe: Some(Box::new(probe)),
        ..Container::default()
    };
    let mut pod = Pod::default();
    pod.metadata.uid = Box::from("u");
    pod.spec.containers.push(container);
    let required = RequiredProbe {
        container: "main".to_owned(),
        container_id: "c".to_owned(),
        kind: ProbeKind::Liveness,
        started_at: ApiTime::from_nanos(1),
        can_wait: true,
    };
    let runtime = FakeRuntime::new(|| 1);
    runtime.inject_fault("exec_sync", Fault::Hangs);
    let began = ApiTime::from_nanos(1);
    let probes = Probes::new(Arc::new(runtime.clone()), Arc::new(FakeHost::default()), began);
    let (worker_events, _receiver) = tokio::sync::mpsc::channel(8);
    probes.set(&DesiredProbes {
        pod: &pod,
        requirements: &[required],
        pod_ip: None,
        now: ApiTime::from_nanos(1),
        worker_events: &worker_events,
        is_ending: false,
    });
    let wheel = tokio::spawn(run_probes(probes.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(runtime.call_counts("exec_sync"), 1, "it hangs");
    wheel.abort();
    assert!(wheel.await.unwrap_err().is_cancelled());
    let wheel = tokio::spawn(run_probes(probes.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let tries = runtime.call_counts("exec_sync");
    assert!(tries > 1, "its turn was when it was");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(runtime.call_counts("exec_sync") > tries, "and comes again");
    wheel.abort();
}
