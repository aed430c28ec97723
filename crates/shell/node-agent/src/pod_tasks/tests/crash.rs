//! What happens between a container's exit and its restart, and what a kill in between leaves.

use super::bench::{AgentBench, pod};
use ports::runtime_objects::ContainerState;
use runtime_fake::Fault;
use std::time::Duration;

/// Relists of a start: the first one, and after directories, sandbox and container were created.
const RELISTS_OF_A_START: usize = 4;

/// A pod that has run for a while; nothing is in flight.
async fn settled() -> AgentBench {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench
}

fn has_started_again(bench: &AgentBench) -> bool {
    bench.calls_of("start_container").iter().any(|call| call == "start_container main#1")
}

fn is_made_again(bench: &AgentBench) -> bool {
    bench.runtime.containers().iter().any(|record| record.attempt == 1)
}

fn has_back_off_on_disk(bench: &AgentBench) -> bool {
    let uid = bench.pod().unwrap().uid;
    let record = bench.host.record("pods", &uid).unwrap_or_default();
    String::from_utf8_lossy(&record).contains("backOff")
}

/// Each call here costs every crash of every container its time: think twice before adding one.
#[tokio::test(start_paused = true)]
async fn a_first_crash_costs_these_calls_and_one_write_and_no_more() {
    for tells_ends in [true, false] {
        let bench = settled().await;
        bench.runtime.include_exit_in_events(tells_ends);
        bench.host.record_operations();
        // So slow that the write after the restart, of the pod that is ready again, is not over
        // here.
        bench.host.delay_record_writes(Duration::from_millis(100));
        let before = bench.runtime.call_names().len();
        bench.runtime.crash("main", 3);
        bench.until("the restart", has_started_again).await;
        let call_names = bench.runtime.call_names();
        let mut call_names = call_names[before..].to_vec();
        let started = call_names.iter().position(|call| *call == "start_container").unwrap();
        call_names.truncate(started + 1);
        let look = ["observe_pod"].iter().filter(|_| !tells_ends);
        let calls = ["image", "create_container", "start_container"].iter();
        assert_eq!(call_names, look.chain(calls).copied().collect::<Vec<_>>());
        // The restart is saved before the container starts.
        assert_eq!(bench.host.recorded_operations(), ["save pods"]);
    }
}

/// One relist after each action and none for the runtime's events about it.
#[tokio::test(start_paused = true)]
async fn each_action_of_a_start_causes_one_relist() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.calls_of("run_sandbox").len(), 1);
    assert_eq!(bench.runtime.call_counts("observe_pod"), RELISTS_OF_A_START);
}

/// The event of an action that arrives after its relist has begun causes no other one.
#[tokio::test(start_paused = true)]
async fn an_event_older_than_the_last_relist_causes_no_relist() {
    for late in [Duration::from_millis(5), Duration::from_millis(300)] {
        let mut bench = AgentBench::new();
        bench.runtime.delay_events(late);
        bench.script.emit(&[("/m/a", &pod("a", ""))]);
        bench.begin();
        bench.until_running().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.runtime.call_counts("observe_pod"), RELISTS_OF_A_START, "{late:?}");
        bench.runtime.crash("main", 3);
        bench.until("the restart", has_started_again).await;
    }
}

/// The machine's clock was set back a little, and the agent's own goes on.
#[tokio::test(start_paused = true)]
async fn an_exit_stamped_before_the_last_relist_is_noticed() {
    for tells_ends in [true, false] {
        let mut bench = AgentBench::new();
        bench.runtime.backdate_events(Duration::from_secs(2));
        bench.runtime.include_exit_in_events(tells_ends);
        bench.script.emit(&[("/m/a", &pod("a", ""))]);
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
    bench.runtime.inject_fault("observe_all", Fault::AnswersLate(Duration::from_secs(1)));
    bench.runtime.set_unavailable(true);
    bench.runtime.set_unavailable(false);
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.runtime.crash("main", 4);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting_reason = bench.status("/containerStatuses/0/state/waiting/reason");
    assert_eq!(waiting_reason, "CrashLoopBackOff");
}

/// A pulled image is looked up once more, as its user is not known yet.
#[tokio::test(start_paused = true)]
async fn only_a_pulled_image_is_inspected_for_the_start() {
    for (policy, asks) in [("IfNotPresent", 1), ("Always", 2)] {
        let mut bench = AgentBench::new();
        bench.runtime.set_pulls_succeed(true);
        let manifest = pod("a", "").replace("IfNotPresent", policy);
        bench.script.emit(&[("/m/a", &manifest)]);
        bench.begin();
        bench.until_running().await;
        assert_eq!(bench.runtime.call_counts("image"), asks, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_while_its_restart_is_written_down_and_runs_only_then() {
    let bench = settled().await;
    bench.host.delay_record_writes(Duration::from_secs(1));
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
    bench.host.delay_record_writes(Duration::from_secs(1));
    bench.runtime.crash("main", 3);
    bench.until("it is made", is_made_again).await;
    assert!(!has_back_off_on_disk(&bench), "the kill comes before the write");
    bench.kill().await;
    bench.host.delay_record_writes(Duration::ZERO);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    let took = bench.until("the restart", has_started_again).await;
    assert!(took < Duration::from_secs(1), "the first restart is at once: {took:?}");
    assert_eq!(bench.calls_of("remove_container"), ["remove_container main#1"], "never started");
    assert_eq!(bench.calls_of("start_container").len(), 2);
    let counted = |bench: &AgentBench| bench.status("/containerStatuses/0/restartCount") == 1;
    bench.until("it is counted", counted).await;
    assert_eq!(bench.status("/containerStatuses/0/lastState/terminated/exitCode"), 3);

    bench.kill().await;
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    bench.runtime.crash("main", 4);
    let runs = |bench: &AgentBench| {
        let mut all = bench.runtime.containers().into_iter();
        all.any(|record| record.attempt == 2 && record.state == ContainerState::Running)
    };
    let took = bench.until("the second restart", runs).await;
    assert!((9..=11).contains(&took.as_secs()), "the back-off is known: {took:?}");
}
