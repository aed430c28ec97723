//! A runtime that answers, but not everything.

use super::*;
use ports::container_runtime::{RuntimeCondition, RuntimeVersion};
use runtime_fake::{
    FakeContents, FakeCredentialPrograms, FakeHost, FakePeriodicTasks, FakeRuntime, Fault,
};

fn ports(runtime: &FakeRuntime) -> PodPorts {
    let host = Arc::new(FakeHost::default());
    PodPorts {
        contents: Arc::new(FakeContents::default()),
        runtime: Arc::new(runtime.clone()),
        dirs: host.clone(),
        cgroups: host.clone(),
        volumes: host.clone(),
        records: host.clone(),
        prober: host.clone(),
        texts: host.clone(),
        addresses: host.clone(),
        logs: host.clone(),
        credential_programs: Arc::new(FakeCredentialPrograms::default()),
        periodic_tasks: Arc::new(FakePeriodicTasks::default()),
        pull_records: host,
    }
}

fn answering(met: bool) -> RuntimeView {
    let condition =
        |kind| RuntimeCondition { kind, met, reason: String::new(), message: String::new() };
    let kinds = [RuntimeConditionKind::RuntimeReady, RuntimeConditionKind::NetworkReady];
    RuntimeView::Responding {
        version: RuntimeVersion {
            runtime_name: "fake".to_owned(),
            runtime_version: "1".to_owned(),
            interface_version: "v1".to_owned(),
        },
        status: RuntimeStatus {
            conditions: kinds.map(condition).into(),
            strict_supplemental_groups: false,
        },
    }
}

#[tokio::test(start_paused = true)]
async fn handler_features_stay_known_and_are_fetched_again() {
    let runtime = FakeRuntime::new(|| 0);
    let busy = || runtime.inject_fault("handlers", Fault::Refuses("busy".to_owned()));
    let (view, seen) = watch::channel(RuntimeView::default());
    let (node_sender, mut node) = watch::channel(initial_state(&PodLifecycleSettings::default()));
    let following = tokio::spawn(update_node_state(ports(&runtime), seen, node_sender));
    busy();
    view.send_replace(answering(true));
    node.wait_for(|state| state.runtime_ready.is_ok()).await.unwrap();
    let soon = Duration::from_secs(2);
    let answer = tokio::time::timeout(soon, node.wait_for(|state| state.handlers.len() == 1)).await;
    assert!(answer.is_ok(), "asked again without the runtime having been away");
    drop(answer);

    busy();
    view.send_replace(answering(false));
    node.wait_for(|state| state.network_ready.is_err()).await.unwrap();
    assert_eq!(node.borrow().handlers.len(), 1, "what is known holds");
    let asked = runtime.call_counts("handlers");
    tokio::time::sleep(soon).await;
    assert_eq!(runtime.call_counts("handlers"), asked + 1);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(runtime.call_counts("handlers"), asked + 1, "once it has told, it is left alone");
    following.abort();
}
