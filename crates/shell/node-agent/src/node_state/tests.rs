//! A runtime that answers, but not everything.

use super::*;
use ports::container_runtime::{RuntimeCondition, RuntimeVersion};
use runtime_fake::{FakeContents, FakeHost, FakePrograms, FakeRounds, FakeRuntime, Fault};

fn ports(runtime: &FakeRuntime) -> PodPorts {
    let host = Arc::new(FakeHost::default());
    PodPorts {
        contents: Arc::new(FakeContents::default()),
        runtime: Arc::new(runtime.clone()),
        folders: host.clone(),
        cgroups: host.clone(),
        volumes: host.clone(),
        records: host.clone(),
        prober: host.clone(),
        texts: host.clone(),
        addresses: host.clone(),
        logs: host.clone(),
        credential_programs: Arc::new(FakePrograms::default()),
        rounds: Arc::new(FakeRounds::default()),
        pull_records: host,
    }
}

fn answering(met: bool) -> RuntimeView {
    let condition =
        |kind| RuntimeCondition { kind, met, reason: String::new(), message: String::new() };
    let kinds = [RuntimeConditionKind::RuntimeReady, RuntimeConditionKind::NetworkReady];
    RuntimeView::Answering {
        version: RuntimeVersion {
            runtime_name: "fake".to_owned(),
            runtime_version: "1".to_owned(),
            interface_version: "v1".to_owned(),
        },
        status: RuntimeStatus { conditions: kinds.map(condition).into(), strict_groups: false },
    }
}

#[tokio::test(start_paused = true)]
async fn what_handlers_can_do_stays_known_and_is_asked_for_again() {
    let runtime = FakeRuntime::new(|| 0);
    let busy = || runtime.spoil("handlers", Fault::Refuses("busy".to_owned()));
    let (view, seen) = watch::channel(RuntimeView::default());
    let (tell, mut node) = watch::channel(unknown(&Settings::default()));
    let following = tokio::spawn(follow(ports(&runtime), seen, tell));
    busy();
    view.send_replace(answering(true));
    node.wait_for(|state| state.runtime_ready.is_ok()).await.unwrap();
    let soon = Duration::from_secs(2);
    let told = tokio::time::timeout(soon, node.wait_for(|state| state.handlers.len() == 1)).await;
    assert!(told.is_ok(), "asked again without the runtime having been away");
    drop(told);

    busy();
    view.send_replace(answering(false));
    node.wait_for(|state| state.network_ready.is_err()).await.unwrap();
    assert_eq!(node.borrow().handlers.len(), 1, "what is known holds");
    let asked = runtime.looks("handlers");
    tokio::time::sleep(soon).await;
    assert_eq!(runtime.looks("handlers"), asked + 1);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(runtime.looks("handlers"), asked + 1, "once it has told, it is left alone");
    following.abort();
}
