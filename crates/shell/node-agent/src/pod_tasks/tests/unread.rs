//! A pod that the runtime lists but cannot read delays what depends on it, and nothing else.

use super::bench::{AgentBench, pod};
use ports::runtime_objects::{ContainerState, SandboxRecord};
use runtime_fake::FakeHost;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// With a container of its own name, so that its calls can be distinguished.
fn named(name: &str) -> String {
    pod(name, "").replace("name: main", &format!("name: of-{name}"))
}

fn uid_of(bench: &AgentBench, name: &str) -> String {
    let pods = bench.pods();
    pods.iter().find(|pod| pod.name == name).map(|pod| pod.uid.clone()).unwrap_or_default()
}

fn runs(bench: &AgentBench, container: &str) -> bool {
    let records = bench.runtime.containers();
    records.iter().any(|each| each.name == container && each.state == ContainerState::Running)
}

/// What pods of that name wait for.
fn why(bench: &AgentBench, name: &str) -> String {
    let pods = bench.pods().into_iter().filter(|pod| pod.name == name);
    let whys: Vec<String> = pods.filter_map(|pod| Some(pod.waiting_on?.why)).collect();
    whys.join("; ")
}

/// Pods `held`, `other` and `third` run, there is no agent, and the runtime hangs on the first.
async fn bench_that_hangs() -> (AgentBench, String) {
    let mut bench = AgentBench::new();
    let (held, other, third) = (named("held"), named("other"), named("third"));
    bench.script.emit(&[("/m/held", &held), ("/m/other", &other), ("/m/third", &third)]);
    bench.begin();
    for name in ["held-n", "other-n", "third-n"] {
        bench.until(name, |bench| bench.phase_of(name) == "Running").await;
    }
    let uid = uid_of(&bench, "held-n");
    bench.kill().await;
    bench.runtime.hang_observations_of([uid.clone()]);
    (bench, uid)
}

/// The memory of a pod that is gone altogether, from an earlier agent.
fn leave_a_trace(bench: &AgentBench) {
    bench.host.put_record("pods", "gone", b"{}");
}

fn has_trace(bench: &AgentBench) -> bool {
    bench.host.record_names("pods").iter().any(|name| name == "gone")
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_pod_that_cannot_be_read_keeps_no_other_pod_from_ending() {
    for before_the_agent in [true, false] {
        let (mut bench, uid) = bench_that_hangs().await;
        leave_a_trace(&bench);
        let (held, other) = (named("held"), named("other"));
        let edited = held.replace("'i:1'", "'i:1', workingDir: /x");
        let first = if before_the_agent { &edited } else { &held };
        bench.script.emit(&[("/m/held", first), ("/m/other", &other)]);
        bench.begin();
        bench.until("known again", |bench| bench.phase_of("other-n") == "Running").await;
        bench.script.emit(&[("/m/held", &edited), ("/m/other", &other)]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.script.emit(&[("/m/held", &edited)]);
        let took = bench.until("the other ends", |bench| !runs(bench, "of-other")).await;
        assert!(took < SOON, "{before_the_agent}: {took:?}");
        let took = bench.until("the orphan ends", |bench| !runs(bench, "of-third")).await;
        assert!(took < SOON, "{before_the_agent}: {took:?}");
        let took = bench.until("it is cleaned up", |bench| !has_trace(bench)).await;
        assert!(took < Duration::from_secs(70), "{before_the_agent}: {took:?}");
        // Two pods of one name never run at once, and the edited one names the pod that it waits
        // for.
        assert!(runs(&bench, "of-held") && bench.calls_of("start_container of-held").len() == 1);
        assert_ne!(uid_of(&bench, "held-n"), "");
        assert!(why(&bench, "held-n").contains(&uid), "{:?}", why(&bench, "held-n"));

        bench.runtime.hang_observations_of([]);
        let started = |bench: &AgentBench| bench.calls_of("start_container of-held").len() == 2;
        bench.until("the edited one runs", started).await;
        // With its own grace period: an orphan would have had one second.
        assert_eq!(bench.calls_of("stop_container of-held"), ["stop_container of-held 30"]);
        assert!(bench.runtime.sandboxes().iter().all(|sandbox| sandbox.uid != uid));
    }
}

/// The kubelet left pods, and one of them cannot be read.
#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_at_a_take_over_keeps_no_other_pod_from_ending() {
    let (mut bench, uid) = bench_that_hangs().await;
    // No memory is left; another sandbox has the name of the pod that cannot be read.
    bench.host = FakeHost::default();
    leave_a_trace(&bench);
    let sandboxes = bench.runtime.sandboxes();
    let like = sandboxes.iter().find(|sandbox| sandbox.uid == uid).cloned().unwrap();
    let id = || "sandbox-like".to_owned();
    let mut labels = like.labels.clone();
    labels.insert("io.kubernetes.pod.uid".to_owned(), "like".to_owned());
    let uid_of_like = "like".to_owned();
    bench.runtime.insert_sandbox(SandboxRecord { id: id(), uid: uid_of_like, labels, ..like });
    let (held, other) = (named("held"), named("other"));
    bench.script.emit(&[("/m/held", &held), ("/m/other", &other)]);
    bench.begin();
    bench.until("it is adopted", |bench| bench.phase_of("other-n") == "Running").await;
    let took = bench.until("the orphan ends", |bench| !runs(bench, "of-third")).await;
    assert!(took < SOON, "{took:?}");
    bench.script.emit(&[("/m/held", &held)]);
    let took = bench.until("the other ends", |bench| !runs(bench, "of-other")).await;
    assert!(took < SOON, "{took:?}");
    let took = bench.until("it is cleaned up", |bench| !has_trace(bench)).await;
    assert!(took < Duration::from_secs(70), "{took:?}");

    // Everything that the waiting pod might adopt is still there.
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(runs(&bench, "of-held"));
    assert!(bench.calls_of("stop_container of-held").is_empty(), "{:?}", bench.runtime.calls());
    let has_like =
        |bench: &AgentBench| bench.runtime.sandboxes().iter().any(|each| each.uid == "like");
    assert!(has_like(&bench), "{:?}", bench.runtime.calls());
    assert!(why(&bench, "held-n").contains("cannot be read"), "{:?}", why(&bench, "held-n"));

    bench.runtime.hang_observations_of([]);
    let took = bench.until("it is adopted at last", |bench| uid_of(bench, "held-n") == uid).await;
    // A relist that hangs times out after two and a half minutes.
    assert!(took < Duration::from_secs(170), "{took:?}");
    bench.until("it runs", |bench| bench.phase_of("held-n") == "Running").await;
    bench.until("its like goes", |bench| !has_like(bench)).await;
    assert!(runs(&bench, "of-held"));
    assert_eq!(bench.calls_of("start_container of-held").len(), 1);
    assert!(bench.calls_of("stop_container of-held").is_empty(), "{:?}", bench.runtime.calls());
}
