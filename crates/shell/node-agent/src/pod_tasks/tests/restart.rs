//! Killing the agent is a non-event.

use super::bench::{AgentBench, pod};
use runtime_fake::Behaviour;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn the_next_agent_adopts_running_pods() {
    let mut bench = AgentBench::new();
    let manifest = pod("a", ", readinessProbe: {exec: {command: [ready]}, periodSeconds: 10}");
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until("ready", |bench| bench.status("/containerStatuses/0/ready") == true).await;
    let uid = bench.pod().unwrap().uid;
    let calls = bench.runtime.calls().len();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.kill().await;
        bench.script.emit(&[("/m/a", &manifest)]);
        bench.begin();
        bench.until("known again", |bench| bench.phase().is_some()).await;
        assert_eq!(bench.status("/containerStatuses/0/ready"), true, "no readiness flap");
        assert_eq!(bench.pod().unwrap().uid, uid);
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let after = bench.runtime.calls();
    let changes: Vec<&String> =
        after.iter().skip(calls).filter(|call| !call.starts_with("exec")).collect();
    assert!(changes.is_empty(), "{changes:?}");
}

/// A probe result is on disk before it is published: the runtime shows nothing of it.
#[tokio::test(start_paused = true)]
async fn a_failed_readiness_stays_failed_with_the_next_agent() {
    let mut bench = AgentBench::new();
    let probe =
        ", readinessProbe: {exec: {command: [ready]}, periodSeconds: 30, failureThreshold: 1}";
    let manifest = pod("a", probe);
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    let is_ready = |bench: &AgentBench| bench.status("/containerStatuses/0/ready") == true;
    bench.until("ready", is_ready).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.runtime.set_exec_output("main", 1, "no more");
    bench.until("not ready", |bench| !is_ready(bench)).await;
    bench.kill().await;
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    assert!(!is_ready(&bench));
}

#[tokio::test(start_paused = true)]
async fn back_off_and_restart_counts_go_on() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    for _ in 0..2 {
        bench.runtime.crash("main", 1);
        bench
            .until("restart", |bench| {
                bench
                    .runtime
                    .containers()
                    .iter()
                    .any(|record| record.state == ports::runtime_objects::ContainerState::Running)
            })
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(bench.status("/containerStatuses/0/restartCount"), 2);
    bench.runtime.crash("main", 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.kill().await;
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    let count = bench.calls_of("start_container").len();
    let took =
        bench.until("restart", |bench| bench.calls_of("start_container").len() > count).await;
    assert!((17..=20).contains(&took.as_secs()), "the third waits 20 seconds: {took:?}");
    bench.until("counted", |bench| bench.status("/containerStatuses/0/restartCount") == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_broke_while_no_agent_ran_keeps_its_pod() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.kill().await;
    bench.script.emit(&[("/m/a", "{ broken")]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.phase().as_deref(), Some("Running"));
    assert!(bench.calls_of("stop").is_empty());
    assert!(bench.api().node().source_errors[0].contains("kept"), "{:?}", bench.api().node());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_keeps_its_grace_and_its_hook() {
    let mut bench = AgentBench::new();
    bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
    let hook = ", lifecycle: {preStop: {exec: {command: [bye]}}}";
    let manifest = format!("{}  terminationGracePeriodSeconds: 60\n", pod("a", hook));
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until_running().await;
    bench.script.emit(&[]);
    let asked = tokio::time::Instant::now();
    bench.until("it is told to end", |bench| !bench.calls_of("stop_container").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.kill().await;
    assert!(!bench.runtime.containers().is_empty());
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.script.emit(&[]);
    bench.begin();
    bench.until("nothing is left", |bench| bench.runtime.containers().is_empty()).await;
    let took = asked.elapsed().as_secs();
    assert!((59..=64).contains(&took), "neither cut short nor begun again: {took} s");
    let graces = bench.calls_of("stop_container");
    assert!(
        matches!(graces.as_slice(), [_, rest] if rest == "stop_container main 35"),
        "{graces:?}"
    );
    assert!(!bench.calls_of("exec main bye").is_empty());
    bench.until("it is forgotten", |bench| bench.host.record_names("ending").is_empty()).await;
}

/// However its manifest was removed while no agent ran: the pod ends with its own grace period, not
/// as an orphan.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_manifest_went_or_changed_without_an_agent_ends_as_it_asked_to() {
    let hook = ", lifecycle: {preStop: {exec: {command: [bye]}}}";
    let manifest = format!("{}  terminationGracePeriodSeconds: 60\n", pod("a", hook));
    let changed = manifest.replace("'i:1'", "'i:1', workingDir: /x");
    for (what, left) in [("gone", None), ("changed", Some(changed.as_str()))] {
        let mut bench = AgentBench::new();
        bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
        bench.script.emit(&[("/m/a", &manifest)]);
        bench.begin();
        bench.until_running().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        bench.kill().await;
        let old = bench.runtime.containers()[0].id.clone();
        let files: Vec<(&str, &str)> = left.iter().map(|text| ("/m/a", *text)).collect();
        bench.script.emit(&files);
        bench.begin();
        let asked = |bench: &AgentBench| bench.calls_of("stop_container");
        bench.until("it is told to end", |bench| !asked(bench).is_empty()).await;
        assert_eq!(bench.host.record_names("ending").len(), 1, "{what}");
        assert!(!bench.calls_of("exec main bye").is_empty(), "{what}: its hook ran");
        let goes = |bench: &AgentBench| !bench.runtime.containers().iter().any(|one| one.id == old);
        let took = bench.until("it is gone", goes).await;
        assert!((55..=64).contains(&took.as_secs()), "{what}: its grace, not 1 s: {took:?}");
        let grace = asked(&bench)[0].rsplit(' ').next().and_then(|word| word.parse::<u64>().ok());
        assert!(grace.is_some_and(|grace| grace > 55), "{what}: {:?}", asked(&bench));
        if left.is_some() {
            bench.until("the new one runs", |bench| bench.phase_of("a-n") == "Running").await;
        }
        bench.until("it is forgotten", |bench| bench.host.record_names("ending").is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_written_down_as_one_that_ends_before_anything_of_it_is_forgotten() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    let known = |bench: &AgentBench| {
        ["manifests", "uids", "ending"].map(|dir| bench.host.record_names(dir).len())
    };
    assert_eq!(known(&bench), [1, 1, 0]);
    bench.host.record_operations();
    bench.script.emit(&[]);
    bench.until("nothing is left", |bench| bench.pod().is_none()).await;
    let order: Vec<String> = bench.host.recorded_operations();
    let place = |what: &str| order.iter().position(|each| each == what);
    let ending = place("save ending").unwrap();
    for forgotten in ["remove manifests", "remove uids"] {
        assert!(place(forgotten).unwrap() > ending, "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_a_killed_agent_did_not_make_is_made_by_the_next() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let links = bench.host.links();
    assert_eq!(links.len(), 1, "{links:?}");
    bench.kill().await;
    bench.host.clear_links();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    bench.until("the link is back", |bench| bench.host.links() == links).await;
    assert_eq!(bench.calls_of("start_container").len(), 1, "nothing was started for it");
}
