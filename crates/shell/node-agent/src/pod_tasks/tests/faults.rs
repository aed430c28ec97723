//! Faults: calls that fail, hang or lose their answer, a runtime that is away, a full disk.

use super::bench::{AgentBench, pod};
use node_policy::garbage::DeadContainerLimits;
use ports::runtime_objects::CgroupDriver;
use runtime_fake::{Behaviour, Fault};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn lost_events_cost_latency_only() {
    let mut bench = AgentBench::new();
    bench.runtime.drop_events(true);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.crash("main", 1);
    let took = bench.until("a restart", |bench| bench.calls_of("start_container").len() == 2).await;
    assert!(took <= Duration::from_secs(301), "{took:?}");
    assert!(took >= Duration::from_secs(100), "nobody polls: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_without_a_stream_is_listed_every_second() {
    let mut bench = AgentBench::new();
    bench.runtime.support_event_stream(false);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.runtime.crash("main", 1);
    let took = bench.until("a restart", |bench| bench.calls_of("start_container").len() == 2).await;
    assert!(took <= Duration::from_millis(1200), "{took:?}");

    // Nothing happens: listings go on, and no pod's status is read.
    bench.until("it runs again", |bench| bench.phase().as_deref() == Some("Running")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let call_counts = |call: &str| bench.runtime.call_counts(call);
    let before = (call_counts("observe_pod"), call_counts("observe_all"), call_counts("list_pods"));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((call_counts("observe_pod"), call_counts("observe_all")), (before.0, before.1));
    assert!((90..=110).contains(&(call_counts("list_pods") - before.2)), "every second");

    // A newer runtime replaces it: its event stream is used, and the listings stop.
    bench.runtime.set_unavailable(true);
    bench.runtime.support_event_stream(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.runtime.set_unavailable(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = call_counts("list_pods");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(call_counts("list_pods"), before);
    bench.runtime.crash("main", 1);
    bench.until("a restart", |bench| bench.calls_of("start_container").len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_log_dir_does_not_hide_running_containers() {
    let mut bench = AgentBench::new();
    bench.host.delay_log_links(Duration::from_secs(3600));
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    let took = bench.until_running().await;
    assert!(took <= Duration::from_secs(10), "{took:?}");
    assert_eq!(bench.calls_of("start_container").len(), 1);
}

/// Such as logs from before `podLogsDir` was changed.
#[tokio::test(start_paused = true)]
async fn an_unremovable_log_does_not_block_a_pods_end() {
    let mut bench = AgentBench::new();
    bench.host.fail_log_removal();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.crash("main", 1);
    bench.until("a restart", |bench| bench.calls_of("start_container").len() == 2).await;
    bench.script.emit(&[("/m/a", &pod("a", ", workingDir: /else"))]);
    let took = bench.until("the next", |bench| bench.calls_of("run_sandbox").len() == 2).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    bench.script.emit(&[]);
    bench.until("nothing is left", |bench| bench.pods().is_empty()).await;
}

/// More pods than slots do not answer at all: others wait a little, not until the hanging calls
/// end.
#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_looked_at_do_not_keep_others_waiting() {
    let mut bench = AgentBench::new();
    let names: Vec<String> = (0..10).map(|number| format!("h{number}")).collect();
    let texts: Vec<String> = names.iter().map(|name| pod(name, "")).collect();
    let mut files: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    bench.script.emit(&files);
    bench.begin();
    bench.until("all run", |bench| bench.calls_of("start_container").len() == 10).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.runtime.hang_observations_of(bench.pods().into_iter().map(|pod| pod.uid));
    let call_counts = bench.runtime.call_counts("observe_pod");
    bench.runtime.include_exit_in_events(false);
    bench.runtime.crash("main", 1);
    bench
        .until("some hang", |bench| bench.runtime.call_counts("observe_pod") >= call_counts + 8)
        .await;
    let other = pod("other", "").replace("name: main", "name: lone");
    files.push(("other", &other));
    bench.script.emit(&files);
    let lone = |bench: &AgentBench| bench.calls_of("start_container lone").len() == 1;
    let took = bench.until("the other one runs", lone).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(bench.calls_of("start_container main").len(), 10, "the others hang still");
    bench.runtime.hang_observations_of([]);
    bench.until("all are back", |bench| bench.calls_of("start_container main").len() == 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_stops_no_pod() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    // A crash loop, so that the memory holds earlier times.
    bench.runtime.crash("main", 1);
    bench.until("a restart", |bench| bench.calls_of("start_container").len() == 2).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    bench.clock.set_back(Duration::from_secs(3600));
    bench.runtime.crash("main", 1);
    let took = bench.until("a restart", |bench| bench.calls_of("start_container").len() == 3).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.calls_of("start_container").len(), 3, "and one is enough");
    assert_eq!(bench.calls_of("run_sandbox").len(), 1);
    // By its creation time the lost sandbox is younger than its replacement.
    bench.runtime.kill_sandboxes();
    bench.until("a new sandbox", |bench| bench.calls_of("run_sandbox").len() == 2).await;
    bench.clock.set_back(Duration::from_secs(7200));
    bench.until("a start in it", |bench| bench.calls_of("start_container").len() == 4).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.calls_of("run_sandbox").len(), 2, "{:?}", bench.runtime.calls());
    bench.until_running().await;
    bench.script.emit(&[]);
    let took = bench.until("nothing is left", |bench| bench.pods().is_empty()).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_victim_with_an_enormous_grace_period_does_not_panic_the_agent() {
    let mut bench = AgentBench::new();
    bench.max_pods = 1;
    let with = |name: &str, priority: i32, grace: i64| {
        format!(
            "{}  priority: {priority}\n  terminationGracePeriodSeconds: {grace}\n",
            pod(name, "")
        )
    };
    let (low, high) = (with("low", 1, i64::MAX), with("high", 2, 1));
    bench.script.emit(&[("/m/low", &low)]);
    bench.begin();
    bench.until_running().await;
    bench.script.emit(&[("/m/low", &low), ("/m/high", &high)]);
    let took = bench.until("it runs", |bench| bench.phase_of("high-n") == "Running").await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    bench.script.emit(&[("/m/high", &high)]);
    bench.until("the victim goes", |bench| bench.pods().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_events_change_nothing() {
    let mut bench = AgentBench::new();
    bench.runtime.duplicate_events(true);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.crash("main", 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.calls_of("start_container").len(), 2);
    assert_eq!(bench.status("/containerStatuses/0/restartCount"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_pod_delays_only_itself() {
    let mut bench = AgentBench::new();
    bench.runtime.inject_fault("run_sandbox", Fault::Hangs);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("the hanging call", |bench| bench.calls_of("run_sandbox").len() == 1).await;
    bench.script.emit(&[("/m/a", &pod("a", "")), ("/m/b", &pod("b", ""))]);
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
async fn failed_and_lost_calls_are_retried() {
    let mut bench = AgentBench::new();
    bench.runtime.inject_fault("run_sandbox", Fault::Refuses("no room".to_owned()));
    bench.runtime.inject_fault("create_container", Fault::Refuses("not now".to_owned()));
    bench.runtime.inject_fault("start_container", Fault::LosesAnswer);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
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
    let mut bench = AgentBench::new();
    bench.runtime.inject_fault("create_container", Fault::Panics);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_runtime_is_reported_and_one_listing_catches_up() {
    let mut bench = AgentBench::new();
    bench.runtime.set_unavailable(true);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(bench.api().node().runtime.contains("does not answer"), "{:?}", bench.api().node());
    bench.runtime.set_unavailable(false);
    bench.until_running().await;
    bench.runtime.set_unavailable(true);
    bench.runtime.crash("main", 1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(bench.calls_of("start_container").len(), 1);
    bench.runtime.set_unavailable(false);
    let took =
        bench.until("the restart", |bench| bench.calls_of("start_container").len() == 2).await;
    assert!(took < Duration::from_secs(1), "one listing, at once: {took:?}");
}

/// A guess would put pods into cgroups where the runtime does not look for them.
#[tokio::test(start_paused = true)]
async fn no_pod_starts_before_the_cgroup_driver_is_known() {
    let mut bench = AgentBench::new();
    for _ in 0..4 {
        bench.runtime.inject_fault("cgroup_driver", Fault::Refuses("starting".to_owned()));
    }
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("it was asked", |bench| bench.runtime.call_counts("cgroup_driver") == 3).await;
    assert!(bench.calls_of("run_sandbox").is_empty());
    assert!(bench.host.cgroup_names().is_empty() && bench.host.drivers().is_empty());
    let why = bench.pod().and_then(|pod| pod.waiting_on).map(|waiting| waiting.why);
    assert!(why.as_ref().is_some_and(|why| why.contains("cgroup driver")), "{why:?}");
    bench.until_running().await;
    assert_eq!(bench.host.drivers().first(), Some(&Some(CgroupDriver::Cgroupfs)));

    // A runtime without that call leaves it to the configuration.
    let mut bench = AgentBench::new();
    bench.runtime.inject_fault("cgroup_driver", Fault::Lacks);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(bench.host.drivers().first(), Some(&None));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_no_pod_that_runs() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.host.set_disk_full(true);
    bench.runtime.crash("main", 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(bench.pod().unwrap().waiting_on.is_some(), "it says why");
    bench.host.set_disk_full(false);
    bench.until("the restart", |bench| bench.calls_of("start_container").len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn no_container_goes_before_its_end_is_on_disk() {
    let mut bench = AgentBench::new();
    bench.dead =
        DeadContainerLimits { max_per_container: Some(0), ..DeadContainerLimits::default() };
    let never = format!("{}  restartPolicy: Never\n", pod("a", ""))
        .replace("- {name: main", "- {name: other, image: 'i:1'}\n  - {name: main");
    bench.script.emit(&[("/m/a", &never)]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.host.set_disk_full(true);
    bench.runtime.crash("main", 7);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(bench.runtime.containers().len(), 2, "{:?}", bench.runtime.calls());
    bench.host.set_disk_full(false);
    bench.until("it is removed", |bench| bench.runtime.containers().len() == 1).await;
    bench.kill().await;
    bench.script.emit(&[("/m/a", &never)]);
    bench.begin();
    bench.until_running().await;
    let ended = |bench: &AgentBench| {
        bench.status("/containerStatuses/0/state/terminated/exitCode") == 7
            || bench.status("/containerStatuses/1/state/terminated/exitCode") == 7
    };
    bench.until("its exit code is known", ended).await;
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_cannot_be_written_stops_a_removal() {
    let mut bench = AgentBench::new();
    // No limit on dead containers, so that garbage collection does not remove the old one.
    bench.dead = DeadContainerLimits { max_per_container: None, ..DeadContainerLimits::default() };
    bench
        .runtime
        .set_behaviour("first", Behaviour::Exits { after: Duration::from_secs(5), code: 1 });
    let with_init = format!("{}  initContainers: [{{name: first, image: 'i:1'}}]\n", pod("a", ""));
    bench.script.emit(&[("/m/a", &with_init)]);
    bench.begin();
    let starts = |bench: &AgentBench| bench.calls_of("start_container first").len();
    bench.until("its second life", |bench| starts(bench) == 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.host.set_disk_full(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.calls_of("remove_container"), [""; 0]);
    bench.host.set_disk_full(false);
    let removed = |bench: &AgentBench| bench.calls_of("remove_container first#0").len() == 1;
    bench.until("the old one goes", removed).await;
}

#[tokio::test(start_paused = true)]
async fn pulls_back_off_and_are_shared() {
    let mut bench = AgentBench::new();
    let manifest = |name| pod(name, "").replace("i:1", "far:1");
    let (a, b) = (manifest("a"), manifest("b"));
    bench.runtime.set_pulls_succeed(true);
    bench.runtime.inject_fault("pull_image", Fault::Refuses("registry is down".to_owned()));
    bench.script.emit(&[("/m/a", &a)]);
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
    bench.script.emit(&[("/m/a", &a), ("/m/b", &b)]);
    bench.until("both run", |bench| bench.calls_of("start_container").len() == 2).await;
    assert_eq!(bench.calls_of("pull_image").len(), 2, "it was there");
}

#[tokio::test(start_paused = true)]
async fn a_pod_too_many_is_rejected_and_one_kind_of_volume_is_not_served() {
    let mut bench = AgentBench::new();
    bench.max_pods = 0;
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("rejected", |bench| bench.phase().as_deref() == Some("Failed")).await;
    assert_eq!(bench.status("/reason"), "UnexpectedAdmissionError");
    let line = "kubelet_admission_rejections_total{reason=\"UnexpectedAdmissionError\"}";
    assert_eq!(bench.metric(line), Some(1.0));
    assert!(bench.calls_of("run_sandbox").is_empty());

    let mut bench = AgentBench::new();
    let mounts = ", volumeMounts: [{name: v, mountPath: /v}]";
    let volume = "{name: v, nfs: {server: s, path: /p}}";
    let text = format!("{}  volumes: [{volume}]\n", pod("a", mounts));
    bench.script.emit(&[("/m/a", &text)]);
    bench.begin();
    bench
        .until("told", |bench| {
            let waiting = bench.pod().and_then(|pod| pod.waiting_on);
            waiting.is_some_and(|waiting| waiting.why.contains("does not serve yet"))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_begins_anew_and_others_do_not_notice() {
    let mut bench = AgentBench::new();
    let (a, b) = (pod("a", ""), pod("b", ""));
    bench.script.emit(&[("/m/a", &a), ("/m/b", &b)]);
    bench.begin();
    bench.until("both run", |bench| bench.calls_of("start_container").len() == 2).await;
    let calls = bench.runtime.calls();
    // The worker itself reads this directory when it starts: the panic is in its own task.
    bench.host.panic_on_name("a-n", 2);
    bench.kill().await;
    bench.script.emit(&[("/m/a", &a), ("/m/b", &b)]);
    bench.begin();
    let other = bench.until("the other", |bench| bench.phase_of("b-n") == "Running").await;
    assert!(other < Duration::from_secs(1), "nothing happened to it: {other:?}");
    assert_ne!(bench.phase_of("a-n"), "Running");
    let took = bench.until("it is back", |bench| bench.phase_of("a-n") == "Running").await;
    assert!((2..=5).contains(&took.as_secs()), "after two pauses: {took:?}");
    assert_eq!(bench.host.panics(), 2);
    assert_eq!(bench.runtime.calls(), calls, "nothing was started or stopped for it");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_hangs_on_one_container_delays_that_one_alone() {
    let mut bench = AgentBench::new();
    let two =
        pod("a", "").replace("- {name: main", "- {name: other, image: 'i:1'}\n  - {name: main");
    bench.script.emit(&[("/m/a", &two), ("/m/b", &pod("b", ""))]);
    bench.begin();
    bench.until("all run", |bench| bench.calls_of("start_container").len() == 3).await;
    bench.runtime.inject_fault("stop_container", Fault::Hangs);
    bench.script.emit(&[]);
    let stopped = |bench: &AgentBench| {
        let records = bench.runtime.containers();
        let running = ports::runtime_objects::ContainerState::Running;
        records.iter().filter(|record| record.state == running).count() <= 1
    };
    let took = bench.until("all but one have ended", stopped).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    // The call has a timeout; then it is repeated.
    let took = bench.until("nothing is left", |bench| bench.pods().is_empty()).await;
    assert!(took < Duration::from_secs(3000), "{took:?}");
    assert!(bench.runtime.containers().is_empty() && bench.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_container_in_unknown_state_is_stopped_before_it_is_restarted() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.make_state_unknown("main");
    bench.until("a new one", |bench| bench.calls_of("start_container").len() == 2).await;
    let calls = bench.runtime.calls();
    let at = |word: &str| calls.iter().position(|call| call.starts_with(word)).unwrap();
    assert!(at("stop_container main") < at("start_container main#1"), "{calls:?}");
    let events = bench.detail().events;
    let unknown_state_message = "Container is in \"unknown\" state, try killing it before restart";
    assert!(events.iter().any(|event| event.message.contains(unknown_state_message)), "{events:?}");
    bench.until_running().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_higher_priority_takes_the_place_of_another() {
    let mut bench = AgentBench::new();
    bench.max_pods = 1;
    let with = |name: &str, priority: i32| {
        format!("{}  priority: {priority}\n  terminationGracePeriodSeconds: 7\n", pod(name, ""))
    };
    let (low, high, late) = (with("low", 1), with("high", 2), with("late", 1));
    bench.script.emit(&[("/m/low", &low)]);
    bench.begin();
    bench.until_running().await;
    bench.script.emit(&[("/m/low", &low), ("/m/high", &high), ("/m/late", &late)]);
    bench.until("the other one runs", |bench| bench.phase_of("high-n") == "Running").await;
    let calls = bench.runtime.calls();
    let at = |word: &str| calls.iter().position(|call| call.starts_with(word)).unwrap();
    let second = calls.iter().rposition(|call| call.starts_with("run_sandbox")).unwrap();
    assert!(at("stop_container main 7") < second, "with its own grace, and only then: {calls:?}");
    assert_eq!(bench.calls_of("run_sandbox").len(), 2, "nobody came back: {calls:?}");
    assert_eq!(bench.phase_of("late-n"), "Failed", "no priority above it, no room");
    let low_pod = bench.pods().into_iter().find(|pod| pod.name == "low-n").unwrap();
    let status = |pointer: &str| low_pod.object.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(status("/status/phase"), "Failed");
    assert_eq!(status("/status/reason"), "Preempting");
    assert_eq!(status("/status/message"), "Preempted in order to admit critical pod");
    let conditions = status("/status/conditions");
    let target = conditions.as_array().into_iter().flatten();
    let target = target.into_iter().find(|each| each["type"] == "DisruptionTarget").unwrap();
    assert_eq!(target["reason"], "TerminationByKubelet");
    let words = "Pod was preempted by Kubelet to accommodate a critical pod.";
    assert_eq!(target["message"], words);
    let preemption = bench.api().pod(&low_pod.uid).unwrap().events;
    let preemption = preemption.iter().find(|event| event.reason == "Preempting").unwrap();
    assert_eq!(preemption.message, "Preempted in order to admit critical pod");
    assert_eq!(bench.metric("kubelet_preemptions{preemption_signal=\"pods\"}"), Some(1.0));

    // A new agent leaves it as it is; without its manifest it is removed.
    bench.kill().await;
    bench.script.emit(&[("/m/low", &low), ("/m/high", &high), ("/m/late", &late)]);
    bench.begin();
    bench.until("known again", |bench| bench.phase_of("low-n") == "Failed").await;
    bench.until("known again", |bench| bench.phase_of("high-n") == "Running").await;
    assert_eq!(bench.calls_of("start_container").len(), 2, "{:?}", bench.runtime.calls());
    bench.script.emit(&[("/m/high", &high)]);
    bench.until("it is gone", |bench| bench.phase_of("low-n").is_empty()).await;
    assert_eq!(bench.phase_of("high-n"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_stops_waiting_for_victims_that_do_not_end() {
    let mut bench = AgentBench::new();
    bench.max_pods = 1;
    let with = |name: &str, priority: i32| {
        format!("{}  priority: {priority}\n  terminationGracePeriodSeconds: 1\n", pod(name, ""))
    };
    let (low, high) = (with("low", 1), with("high", 2));
    bench.script.emit(&[("/m/low", &low)]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.inject_fault("stop_container", Fault::Hangs);
    bench.script.emit(&[("/m/low", &low), ("/m/high", &high)]);
    let waits = |bench: &AgentBench| {
        let pods = bench.pods();
        let waiting = pods.into_iter().find(|pod| pod.name == "high-n")?.waiting_on?;
        waiting.why.contains("no room for it until these have ended: low-n_default").then_some(())
    };
    bench.until("it says for whom it waits", |bench| waits(bench).is_some()).await;
    let took = bench.until("it runs", |bench| bench.phase_of("high-n") == "Running").await;
    assert!((9..=11).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_refused_is_not_tried_all_the_time() {
    let mut bench = AgentBench::new();
    bench.host.record_operations();
    bench.host.refuse_records(true);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let done = |bench: &AgentBench, what: &str| {
        bench.host.recorded_operations().iter().filter(|each| *each == what).count()
    };
    assert_eq!(done(&bench, "refuse manifests"), 1, "{:?}", bench.host.recorded_operations());
    // Writes are accepted again.
    bench.host.refuse_records(false);
    let took = bench.until("it is written", |bench| done(bench, "save manifests") == 1).await;
    assert!(took < Duration::from_secs(301), "{took:?}");
}
