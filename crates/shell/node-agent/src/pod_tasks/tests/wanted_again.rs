//! A pod whose manifest comes back under the same UID before its removal is over, also if the agent
//! is killed in between. A pod that has ended for good stays ended.

use super::bench::{AgentBench, pod};
use ports::runtime_objects::ContainerState;
use runtime_fake::{Behaviour, Fault};
use std::time::Duration;

const STATED: &str = "stated-uid";

fn stated(rest: &str) -> String {
    format!("{}{rest}", pod("a", "")).replace("{name: a}", "{name: a, uid: stated-uid}")
}

/// How far the removal has come when the agent is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum KillPoint {
    /// Nothing was stopped yet.
    WrittenDown,
    /// Its containers have some of their grace period left.
    Stopping,
    /// Its containers are still in the runtime.
    Stopped,
    /// Only its memory is left.
    Removed,
}

const KILL_POINTS: [KillPoint; 4] =
    [KillPoint::WrittenDown, KillPoint::Stopping, KillPoint::Stopped, KillPoint::Removed];

/// A pod that ran and whose manifest was removed; the agent is dead.
async fn cut_short(manifest: &str, cut: KillPoint) -> AgentBench {
    let mut bench = AgentBench::new();
    bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
    bench.script.emit(&[("/m/a", manifest)]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let late = Fault::AnswersLate(Duration::from_secs(100));
    match cut {
        KillPoint::WrittenDown => bench.host.delay_record_writes(Duration::from_secs(1)),
        KillPoint::Stopping => {}
        KillPoint::Stopped => bench.runtime.inject_fault("remove_container", Fault::Hangs),
        KillPoint::Removed => bench.runtime.inject_fault("remove_sandbox", late),
    }
    bench.script.emit(&[]);
    let is_there = |bench: &AgentBench| match cut {
        KillPoint::WrittenDown => !bench.host.record_names("ending").is_empty(),
        KillPoint::Stopping => !bench.calls_of("stop_container").is_empty(),
        KillPoint::Stopped => {
            bench.runtime.containers().iter().all(|one| one.state == ContainerState::Exited)
        }
        KillPoint::Removed => bench.runtime.sandboxes().is_empty(),
    };
    bench.until("the end has come that far", is_there).await;
    if matches!(cut, KillPoint::Stopping | KillPoint::Stopped) {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    bench.kill().await;
    bench.host.delay_record_writes(Duration::ZERO);
    bench.runtime.set_behaviour("main", Behaviour::RunsForEver);
    bench
}

fn running(bench: &AgentBench) -> usize {
    let all = bench.runtime.containers();
    all.iter().filter(|one| one.state == ContainerState::Running).count()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_wanted_again_after_a_kill_in_its_end_ends_and_then_runs() {
    for manifest in [stated(""), stated("  restartPolicy: Never\n"), pod("a", "")] {
        for cut in KILL_POINTS {
            let mut bench = cut_short(&manifest, cut).await;
            let first = bench.host.record_names("ending");
            let stops = bench.calls_of("stop_container").len();
            bench.script.emit(&[("/m/a", &manifest)]);
            bench.begin();
            // Before its removal has begun there is nothing to continue: it runs on.
            let starts = if cut == KillPoint::WrittenDown { 1 } else { 2 };
            let runs = |bench: &AgentBench| {
                assert!(running(bench) < 2, "{cut:?}: never two at once");
                let started = bench.calls_of("start_container").len() == starts;
                started && running(bench) == 1 && bench.phase().as_deref() == Some("Running")
            };
            let took = bench.until("it runs", runs).await.as_secs();
            if cut == KillPoint::Stopping {
                assert!((23..=26).contains(&took), "the first keeps its grace: {took} s");
            } else {
                assert!(took < 2, "{cut:?}: {took} s");
            }
            let stopped = bench.calls_of("stop_container").len() - stops;
            assert_eq!(stopped, usize::from(cut == KillPoint::Stopping), "{cut:?}");
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(runs(&bench), "{cut:?}: and goes on");
            assert_eq!(bench.pod().unwrap().waiting_on, None, "{cut:?}");
            let counted = bench.metric("kubelet_restarted_pods_total{static=\"true\"}");
            // A pod without a stated UID of which nothing runs any more is another pod.
            let is_same = first == [bench.pod().unwrap().uid];
            assert!(is_same || manifest == pod("a", ""), "{cut:?}");
            let again = (starts == 2 && is_same).then_some(1.0);
            assert_eq!(counted.filter(|count| *count > 0.0), again, "{cut:?}");
            bench.script.emit(&[]);
            bench.until("nothing is left", |bench| bench.pods().is_empty()).await;
            for dir in ["pods", "ending"] {
                assert_eq!(bench.host.record_names(dir), [""; 0], "{cut:?}: {dir}");
            }
        }
    }
}

/// The earlier version ends as it was; then the new one runs.
#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_changed_ends_as_it_was_and_runs_as_it_is() {
    let first = stated("  terminationGracePeriodSeconds: 60\n");
    let mut bench = cut_short(&first, KillPoint::Stopping).await;
    bench.runtime.add_image("i:2");
    let second = stated("  terminationGracePeriodSeconds: 2\n").replace("i:1", "i:2");
    bench.script.emit(&[("/m/a", &second)]);
    bench.begin();
    let made = |bench: &AgentBench| bench.calls_of("start_container").len() == 2;
    let took = bench.until("it runs", made).await.as_secs();
    assert!((50..=56).contains(&took), "{took} s");
    bench.until_running().await;
    assert_eq!(bench.pod().unwrap().uid, STATED);
    let images: Vec<String> =
        bench.runtime.containers().into_iter().map(|one| one.image.to_string()).collect();
    assert!(matches!(images.as_slice(), [one] if one.contains("i:2")), "{images:?}");
}

/// Killed again and again: the pod still runs in the end.
#[tokio::test(start_paused = true)]
async fn a_second_kill_does_not_lose_that_it_is_wanted_again() {
    let manifest = stated("");
    let mut bench = cut_short(&manifest, KillPoint::Stopping).await;
    for _ in 0..3 {
        bench.script.emit(&[("/m/a", &manifest)]);
        bench.begin();
        bench.until("known again", |bench| bench.phase().is_some()).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        bench.kill().await;
    }
    assert_eq!(bench.calls_of("start_container").len(), 1);
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until("it runs", |bench| bench.calls_of("start_container").len() == 2).await;
    bench.until_running().await;
}

/// Its manifest is there all the time: its end is final, whatever was saved before.
#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_for_good_stays_so_with_the_next_agent() {
    let never = stated("  restartPolicy: Never\n");
    let deadline = stated("  activeDeadlineSeconds: 20\n");
    for (manifest, code, phase) in
        [(&never, Some(0), "Succeeded"), (&never, Some(3), "Failed"), (&deadline, None, "Failed")]
    {
        // As a kill before the end began leaves it.
        for was_to_end in [false, true] {
            let mut bench = if was_to_end {
                cut_short(manifest, KillPoint::WrittenDown).await
            } else {
                AgentBench::new()
            };
            bench.script.emit(&[("/m/a", manifest)]);
            bench.begin();
            bench.until_running().await;
            if let Some(code) = code {
                bench.runtime.crash("main", code);
            }
            bench.until("it is over", |bench| bench.phase().as_deref() == Some(phase)).await;
            for pause in [0, 60] {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                bench.kill().await;
                bench.script.emit(&[("/m/a", manifest)]);
                bench.begin();
                bench.until("known again", |bench| bench.phase().is_some()).await;
                tokio::time::sleep(Duration::from_secs(120)).await;
                let shown = (bench.phase().unwrap(), bench.calls_of("start_container").len());
                assert_eq!(shown, (phase.to_owned(), 1), "{was_to_end} {manifest}");
                assert_eq!(bench.host.record_names("ending"), [""; 0], "{was_to_end} {manifest}");
            }
            // It runs again only when its manifest goes and comes back.
            bench.script.emit(&[]);
            bench.until("nothing is left", |bench| bench.pods().is_empty()).await;
            bench.script.emit(&[("/m/a", manifest)]);
            bench.until("it runs", |bench| bench.calls_of("start_container").len() == 2).await;
        }
    }
}
