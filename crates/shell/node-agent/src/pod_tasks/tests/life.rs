//! The life of a pod: file, running, crash, back-off, probes, hooks, edit, removal.

use super::bench::{AgentBench, pod};
use runtime_fake::{Behaviour, ScriptedManifests};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_manifest_becomes_a_running_pod_and_its_removal_ends_it() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    let took = bench.until_running().await;
    assert!(took < Duration::from_millis(200), "event-driven: {took:?}");
    let shown = bench.pod().unwrap();
    assert_eq!((shown.name.as_str(), shown.manifest.as_str()), ("a-n", "/m/a"));
    assert_eq!(shown.waiting_on, None);
    assert_eq!(shown.containers[0].state, "running");
    assert_eq!(bench.status("/podIP"), "10.0.0.1");
    assert_eq!(bench.status("/containerStatuses/0/ready"), true);
    let reasons = bench.reasons();
    for expected in ["Pulled", "Created", "Started"] {
        assert!(reasons.iter().any(|reason| reason == expected), "{expected}: {reasons:?}");
    }
    let marks: Vec<String> = bench.detail().marks.into_iter().map(|mark| mark.milestone).collect();
    assert!(marks.iter().any(|mark| mark == "started"), "{marks:?}");
    let uid = shown.uid;
    assert_eq!(bench.host.pod_dirs(), std::slice::from_ref(&uid));
    assert!(bench.host.cgroup_names().iter().any(|name| name.contains(&uid)));

    let refused = bench.api().stop(&uid).await.unwrap_err();
    assert!(refused.to_string().contains("/m/a"), "{refused}");

    bench.script.emit(&[]);
    bench.until("nothing left", |bench| bench.pod().is_none()).await;
    assert!(bench.runtime.containers().is_empty());
    assert!(bench.runtime.sandboxes().is_empty());
    assert!(bench.host.pod_dirs().is_empty());
    assert!(!bench.host.cgroup_names().iter().any(|name| name.contains(&uid)));
    for dir in ["pods", "uids", "manifests"] {
        assert_eq!(bench.host.record_names(dir), Vec::<String>::new(), "{dir}");
    }
    assert_eq!(bench.calls_of("stop_container"), ["stop_container main 30"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_restarted_at_once_and_then_with_back_off() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.crash("main", 3);
    let count = |bench: &AgentBench| bench.calls_of("start_container").len();
    let took = bench.until("the first restart", |bench| count(bench) == 2).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    bench
        .until("it runs again", |bench| bench.status("/containerStatuses/0/restartCount") == 1)
        .await;
    assert_eq!(bench.status("/containerStatuses/0/lastState/terminated/exitCode"), 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.runtime.crash("main", 0);
    let took = bench.until("the second restart", |bench| count(bench) == 3).await;
    assert!((9..=11).contains(&took.as_secs()), "{took:?}");
    let reasons = bench.reasons();
    assert!(reasons.iter().any(|reason| reason == "BackOff"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn an_edited_manifest_is_another_pod_and_the_two_never_run_at_once() {
    let mut bench = AgentBench::new();
    bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    let first = bench.pod().unwrap().uid;
    bench.script.emit(&[("/m/a", &pod("a", ", args: [x]"))]);
    bench.until("both are known", |bench| bench.pods().len() == 2).await;
    let second = bench.pods().into_iter().find(|pod| pod.uid != first).unwrap();
    assert!(second.waiting_on.unwrap().why.contains(&first), "it says for whom it waits");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(bench.calls_of("run_sandbox").len(), 1, "the first has its 30 seconds");
    bench.until("the second runs", |bench| bench.calls_of("start_container").len() == 2).await;
    let running = bench.runtime.containers();
    assert_eq!(running.len(), 1, "{running:?}");
    assert_ne!(bench.pod().unwrap().uid, first);
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_its_probe_and_liveness_kills() {
    let mut bench = AgentBench::new();
    bench.runtime.set_exec_output("main", 1, "not yet");
    let probe = ", readinessProbe: {exec: {command: [ready]}, periodSeconds: 2}, \
                 livenessProbe: {exec: {command: [alive]}, initialDelaySeconds: 20, periodSeconds: 1, failureThreshold: 2}";
    bench.script.emit(&[("/m/a", &pod("a", probe))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.status("/containerStatuses/0/ready"), false);
    assert!(bench.reasons().iter().any(|reason| reason == "Unhealthy"));
    bench.runtime.set_exec_output("main", 0, "");
    bench.until("ready", |bench| bench.status("/containerStatuses/0/ready") == true).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(bench.calls_of("start_container").len(), 1, "alive");
    bench.runtime.set_exec_output("main", 1, "dead");
    bench.until("it was restarted", |bench| bench.calls_of("start_container").len() == 2).await;
    assert!(bench.reasons().iter().any(|reason| reason == "Killing"));
}

#[tokio::test(start_paused = true)]
async fn hooks_run_around_the_container_and_take_their_time_from_the_grace() {
    let mut bench = AgentBench::new();
    let hooks =
        ", lifecycle: {postStart: {exec: {command: [hello]}}, preStop: {sleep: {seconds: 10}}}";
    bench.script.emit(&[("/m/a", &pod("a", hooks))]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(bench.calls_of("exec"), ["exec main hello"]);
    bench.script.emit(&[]);
    let took = bench.until("gone", |bench| bench.pod().is_none()).await;
    assert!(took >= Duration::from_secs(10), "{took:?}");
    assert_eq!(bench.calls_of("stop_container"), ["stop_container main 20"]);
}

#[tokio::test(start_paused = true)]
async fn orphaned_pods_are_removed_only_after_all_sources_are_ready() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.kill().await;
    bench.script = ScriptedManifests::default();
    bench.begin();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(bench.runtime.containers().len(), 1, "the source has not spoken");
    assert!(bench.calls_of("stop_container").is_empty());
    bench.script.emit(&[]);
    bench.until("gone", |bench| bench.runtime.sandboxes().is_empty()).await;
    bench.until("cleaned up", |bench| bench.host.pod_dirs().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn kill_now_takes_the_rest_of_the_grace_period_from_pods_that_end_and_from_no_others() {
    let mut bench = AgentBench::new();
    bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
    let both = [("/m/a", pod("a", "")), ("/m/b", pod("b", "").replace("main", "other"))];
    let both = both.each_ref().map(|(path, text)| (*path, text.as_str()));
    bench.script.emit(&both);
    bench.begin();
    bench.until("both run", |bench| bench.calls_of("start_container").len() == 2).await;
    bench.script.emit(&both[1..]);
    bench.until("a stop", |bench| !bench.calls_of("stop_container").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.calls_of("stop_container"), ["stop_container main 30"]);
    bench.kill_now.send_replace(true);
    let took = bench.until("one is left", |bench| bench.pods().len() == 1).await;
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(bench.calls_of("stop_container")[1..], ["stop_container main 2"]);
    assert_eq!(bench.phase_of("b-n"), "Running");
    // A pod that is not desired any more after that has no grace period either.
    bench.script.emit(&[]);
    bench.until("none is left", |bench| bench.pods().is_empty()).await;
    assert_eq!(bench.calls_of("stop_container")[2..], ["stop_container other 2"]);
}
