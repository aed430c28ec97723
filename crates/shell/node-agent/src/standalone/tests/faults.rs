//! Faults: calls that fail, hang or lose their answer, a runtime that is away, a full disk.

use super::bench::{Bench, pod};
use runtime_fake::Fault;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn lost_events_cost_latency_only() {
    let mut bench = Bench::new();
    bench.runtime.lose_events(true);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.crash("main", 1);
    let took = bench.until("a restart", |bench| bench.calls_of("start_container").len() == 2).await;
    assert!(took <= Duration::from_secs(301), "{took:?}");
    assert!(took >= Duration::from_secs(100), "nobody polls: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_without_a_stream_is_listed_every_second() {
    let mut bench = Bench::new();
    bench.runtime.have_no_stream();
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.runtime.crash("main", 1);
    let took = bench.until("a restart", |bench| bench.calls_of("start_container").len() == 2).await;
    assert!(took <= Duration::from_millis(1200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn repeated_events_change_nothing() {
    let mut bench = Bench::new();
    bench.runtime.repeat_events(true);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.crash("main", 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.calls_of("start_container").len(), 2);
    assert_eq!(bench.status("/containerStatuses/0/restartCount"), 1);
}

#[tokio::test(start_paused = true)]
async fn one_pod_that_hangs_delays_only_itself() {
    let mut bench = Bench::new();
    bench.runtime.spoil("run_sandbox", Fault::Hangs);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("the hanging call", |bench| bench.calls_of("run_sandbox").len() == 1).await;
    bench.script.tell(&[("/m/a", &pod("a", "")), ("/m/b", &pod("b", ""))]);
    let took = bench
        .until("the other one", |bench| {
            bench.pods().iter().any(|pod| pod.name == "b-n" && !pod.containers.is_empty())
        })
        .await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    let stuck = bench.pods().into_iter().find(|pod| pod.name == "a-n").unwrap();
    assert_eq!(stuck.doing, ["starting the sandbox"]);
    assert!(stuck.waiting_on.is_some());
}

#[tokio::test(start_paused = true)]
async fn failed_and_lost_calls_are_made_good() {
    let mut bench = Bench::new();
    bench.runtime.spoil("run_sandbox", Fault::Refuses("no room".to_owned()));
    bench.runtime.spoil("create_container", Fault::Refuses("not now".to_owned()));
    bench.runtime.spoil("start_container", Fault::LosesAnswer);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    let running = bench.runtime.containers();
    let running = running
        .iter()
        .filter(|record| record.state == ports::runtime_objects::ContainerState::Running);
    assert_eq!(running.count(), 1, "never two");
    let reasons = bench.reasons();
    assert!(reasons.iter().any(|reason| reason == "FailedCreatePodSandBox"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_action_ends_that_action_only() {
    let mut bench = Bench::new();
    bench.runtime.spoil("create_container", Fault::Panics);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_is_said_and_one_listing_catches_up() {
    let mut bench = Bench::new();
    bench.runtime.be_away(true);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(bench.api().node().runtime.contains("does not answer"), "{:?}", bench.api().node());
    bench.runtime.be_away(false);
    bench.until_running().await;
    bench.runtime.be_away(true);
    bench.runtime.crash("main", 1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(bench.calls_of("start_container").len(), 1);
    bench.runtime.be_away(false);
    let took =
        bench.until("the restart", |bench| bench.calls_of("start_container").len() == 2).await;
    assert!(took < Duration::from_secs(1), "one listing, at once: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_no_pod_that_runs() {
    let mut bench = Bench::new();
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.host.fill_disk(true);
    bench.runtime.crash("main", 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(bench.pod().unwrap().waiting_on.is_some(), "it says why");
    bench.host.fill_disk(false);
    bench.until("the restart", |bench| bench.calls_of("start_container").len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn pulls_back_off_and_are_shared() {
    let mut bench = Bench::new();
    let manifest = |name| pod(name, "").replace("i:1", "far:1");
    let (a, b) = (manifest("a"), manifest("b"));
    bench.runtime.let_pulls_succeed(true);
    bench.runtime.spoil("pull_image", Fault::Refuses("registry is down".to_owned()));
    bench.script.tell(&[("/m/a", &a)]);
    bench.begin();
    bench
        .until("back-off", |bench| {
            bench.status("/containerStatuses/0/state/waiting/reason") == "ImagePullBackOff"
        })
        .await;
    assert_eq!(bench.calls_of("pull_image").len(), 1);
    let took = bench.until_running().await;
    assert!((7..=11).contains(&took.as_secs()), "{took:?}");
    assert_eq!(bench.calls_of("pull_image").len(), 2);
    let reasons = bench.reasons();
    for expected in ["Pulling", "Failed", "BackOff", "Pulled"] {
        assert!(reasons.iter().any(|reason| reason == expected), "{expected}: {reasons:?}");
    }
    bench.script.tell(&[("/m/a", &a), ("/m/b", &b)]);
    bench.until("both run", |bench| bench.calls_of("start_container").len() == 2).await;
    assert_eq!(bench.calls_of("pull_image").len(), 2, "it was there");
}

#[tokio::test(start_paused = true)]
async fn a_pod_too_many_is_rejected_and_one_kind_of_volume_is_not_served() {
    let mut bench = Bench::new();
    bench.max_pods = 0;
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("rejected", |bench| bench.phase().as_deref() == Some("Failed")).await;
    assert_eq!(bench.status("/reason"), "UnexpectedAdmissionError");
    assert!(bench.calls_of("run_sandbox").is_empty());

    let mut bench = Bench::new();
    let text = format!("{}  volumes: [{{name: v, nfs: {{server: s, path: /p}}}}]\n", pod("a", ""));
    bench.script.tell(&[("/m/a", &text)]);
    bench.begin();
    bench
        .until("told", |bench| {
            let waiting = bench.pod().and_then(|pod| pod.waiting_on);
            waiting.is_some_and(|waiting| waiting.why.contains("does not serve yet"))
        })
        .await;
}
