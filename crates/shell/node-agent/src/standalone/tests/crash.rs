//! What happens between a container's exit and its restart, and what a kill in between leaves.

use super::bench::{Bench, pod};
use ports::runtime_objects::ContainerState;
use runtime_fake::Fault;
use std::time::Duration;

/// Relists of a start: the first one, and after directories, sandbox and container were created.
const LOOKS_OF_A_START: usize = 4;

/// A pod that has run for a while; nothing is in flight.
async fn settled() -> Bench {
    let mut bench = Bench::new();
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench
}

fn has_started_again(bench: &Bench) -> bool {
    bench.calls_of("start_container").iter().any(|call| call == "start_container main#1")
}

fn is_made_again(bench: &Bench) -> bool {
    bench.runtime.containers().iter().any(|record| record.attempt == 1)
}

fn has_back_off_on_disk(bench: &Bench) -> bool {
    let uid = bench.pod().unwrap().uid;
    let record = bench.host.record("pods", &uid).unwrap_or_default();
    String::from_utf8_lossy(&record).contains("backOff")
}

/// Each call here costs every crash of every container its time: think twice before adding one.
#[tokio::test(start_paused = true)]
async fn a_first_crash_costs_these_calls_and_one_write_and_no_more() {
    for tells_ends in [true, false] {
        let bench = settled().await;
        bench.runtime.tell_ends(tells_ends);
        bench.host.keep_order();
        // So slow that the write after the restart, of the pod that is ready again, is not over
        // here.
        bench.host.save_slowly(Duration::from_millis(100));
        let before = bench.runtime.asked().len();
        bench.runtime.crash("main", 3);
        bench.until("the restart", has_started_again).await;
        let asked = bench.runtime.asked();
        let mut asked = asked[before..].to_vec();
        let started = asked.iter().position(|call| *call == "start_container").unwrap();
        asked.truncate(started + 1);
        let look = ["observe_pod"].iter().filter(|_| !tells_ends);
        let calls = ["image", "create_container", "start_container"].iter();
        assert_eq!(asked, look.chain(calls).copied().collect::<Vec<_>>());
        // The restart is saved before the container starts.
        assert_eq!(bench.host.order_of_records(), ["save pods"]);
    }
}

/// One relist after each action and none for the runtime's events about it.
#[tokio::test(start_paused = true)]
async fn a_start_is_looked_at_once_for_each_action() {
    let mut bench = Bench::new();
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.calls_of("run_sandbox").len(), 1);
    assert_eq!(bench.runtime.looks("observe_pod"), LOOKS_OF_A_START);
}

/// The event of an action that arrives after its relist has begun causes no other one.
#[tokio::test(start_paused = true)]
async fn word_of_what_was_seen_since_is_no_reason_to_look() {
    for late in [Duration::from_millis(5), Duration::from_millis(300)] {
        let mut bench = Bench::new();
        bench.runtime.tell_late(late);
        bench.script.tell(&[("/m/a", &pod("a", ""))]);
        bench.begin();
        bench.until_running().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.runtime.looks("observe_pod"), LOOKS_OF_A_START, "{late:?}");
        bench.runtime.crash("main", 3);
        bench.until("the restart", has_started_again).await;
    }
}

/// The machine's clock was set back a little, and the agent's own goes on.
#[tokio::test(start_paused = true)]
async fn an_end_that_seems_to_be_of_before_is_seen() {
    for tells_ends in [true, false] {
        let mut bench = Bench::new();
        bench.runtime.stamp_early(Duration::from_secs(2));
        bench.runtime.tell_ends(tells_ends);
        bench.script.tell(&[("/m/a", &pod("a", ""))]);
        bench.begin();
        bench.until_running().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        bench.runtime.crash("main", 3);
        let took = bench.until("the restart", has_started_again).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

/// An exit during a relist is not undone by a relist that began before.
#[tokio::test(start_paused = true)]
async fn an_end_that_comes_while_the_pod_is_looked_at_is_seen() {
    let bench = settled().await;
    bench.runtime.crash("main", 3);
    bench.until("the restart", has_started_again).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.runtime.spoil("observe_all", Fault::AnswersLate(Duration::from_secs(1)));
    bench.runtime.be_away(true);
    bench.runtime.be_away(false);
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.runtime.crash("main", 4);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waits_for = bench.status("/containerStatuses/0/state/waiting/reason");
    assert_eq!(waits_for, "CrashLoopBackOff");
}

/// A pulled image is looked up once more, as its user is not known yet.
#[tokio::test(start_paused = true)]
async fn only_an_image_that_was_pulled_is_asked_about_for_the_start() {
    for (policy, asks) in [("IfNotPresent", 1), ("Always", 2)] {
        let mut bench = Bench::new();
        bench.runtime.let_pulls_succeed(true);
        let manifest = pod("a", "").replace("IfNotPresent", policy);
        bench.script.tell(&[("/m/a", &manifest)]);
        bench.begin();
        bench.until_running().await;
        assert_eq!(bench.runtime.looks("image"), asks, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_while_its_restart_is_written_down_and_runs_only_then() {
    let bench = settled().await;
    bench.host.save_slowly(Duration::from_secs(1));
    bench.runtime.crash("main", 3);
    bench.until("it is made", is_made_again).await;
    assert!(!has_back_off_on_disk(&bench), "nobody waited for it");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!has_started_again(&bench), "not before it is on disk");
    let took = bench.until("the restart", has_started_again).await;
    assert!(took < Duration::from_millis(600), "{took:?}");
    assert!(has_back_off_on_disk(&bench));
}

/// A disk that takes no writes does not keep a pod from running.
#[tokio::test(start_paused = true)]
async fn a_restart_that_cannot_be_written_down_goes_on_all_the_same() {
    let bench = settled().await;
    bench.host.refuse_records(true);
    bench.runtime.crash("main", 3);
    let took = bench.until("the restart", has_started_again).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
}

/// Killed when the container is created and nothing is on disk: no program ran, so neither the
/// restart count nor the back-off has changed. Killed when it runs: both have, and the next restart
/// has to wait.
#[tokio::test(start_paused = true)]
async fn a_kill_while_a_restart_is_written_down_loses_and_repeats_nothing() {
    let mut bench = settled().await;
    bench.host.save_slowly(Duration::from_secs(1));
    bench.runtime.crash("main", 3);
    bench.until("it is made", is_made_again).await;
    assert!(!has_back_off_on_disk(&bench), "the kill comes before the write");
    bench.kill().await;
    bench.host.save_slowly(Duration::ZERO);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    let took = bench.until("the restart", has_started_again).await;
    assert!(took < Duration::from_secs(1), "the first restart is at once: {took:?}");
    assert_eq!(bench.calls_of("remove_container"), ["remove_container main#1"], "never started");
    assert_eq!(bench.calls_of("start_container").len(), 2);
    let counted = |bench: &Bench| bench.status("/containerStatuses/0/restartCount") == 1;
    bench.until("it is counted", counted).await;
    assert_eq!(bench.status("/containerStatuses/0/lastState/terminated/exitCode"), 3);

    bench.kill().await;
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    bench.runtime.crash("main", 4);
    let runs = |bench: &Bench| {
        let mut all = bench.runtime.containers().into_iter();
        all.any(|record| record.attempt == 2 && record.state == ContainerState::Running)
    };
    let took = bench.until("the second restart", runs).await;
    assert!((9..=11).contains(&took.as_secs()), "the back-off is known: {took:?}");
}
