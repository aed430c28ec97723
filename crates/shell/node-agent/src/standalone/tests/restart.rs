//! A killed agent is a non-event.

use super::bench::{Bench, pod};
use runtime_fake::Behaviour;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn the_next_agent_adopts_what_runs() {
    let mut bench = Bench::new();
    let manifest = pod("a", ", readinessProbe: {exec: {command: [ready]}, periodSeconds: 10}");
    bench.script.tell(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until("ready", |bench| bench.status("/containerStatuses/0/ready") == true).await;
    let uid = bench.pod().unwrap().uid;
    let calls = bench.runtime.calls().len();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.kill().await;
        bench.script.tell(&[("/m/a", &manifest)]);
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

#[tokio::test(start_paused = true)]
async fn back_off_and_restart_counts_go_on() {
    let mut bench = Bench::new();
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
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
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    let count = bench.calls_of("start_container").len();
    let took =
        bench.until("restart", |bench| bench.calls_of("start_container").len() > count).await;
    assert!((17..=20).contains(&took.as_secs()), "the third waits 20 seconds: {took:?}");
    bench.until("counted", |bench| bench.status("/containerStatuses/0/restartCount") == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_broke_while_no_agent_ran_keeps_its_pod() {
    let mut bench = Bench::new();
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.kill().await;
    bench.script.tell(&[("/m/a", "{ broken")]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.phase().as_deref(), Some("Running"));
    assert!(bench.calls_of("stop").is_empty());
    assert!(bench.api().node().troubles[0].contains("kept"), "{:?}", bench.api().node());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_keeps_its_grace_and_its_hook() {
    let mut bench = Bench::new();
    bench.runtime.behave("main", Behaviour::IgnoresStop);
    let hook = ", lifecycle: {preStop: {exec: {command: [bye]}}}";
    let manifest = format!("{}  terminationGracePeriodSeconds: 60\n", pod("a", hook));
    bench.script.tell(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until_running().await;
    bench.script.tell(&[]);
    let asked = tokio::time::Instant::now();
    bench.until("it is told to end", |bench| !bench.calls_of("stop_container").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.kill().await;
    assert!(!bench.runtime.containers().is_empty());
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.script.tell(&[]);
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
