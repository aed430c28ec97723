//! What is requested again: removed images, volumes that an edit added, tasks that panicked.

use super::bench::{AgentBench, pod};
use runtime_fake::{Behaviour, Fault};
use std::time::Duration;

fn waiting(bench: &AgentBench) -> String {
    let status = bench.status("/containerStatuses/0/state/waiting");
    format!("{} {}", status["reason"], status["message"])
}

/// The image was present when it was looked up and is not when the container starts: before its
/// first start, or between a failed start and the next.
#[tokio::test(start_paused = true)]
async fn an_image_removed_before_the_start_is_pulled_again() {
    for call in ["run_sandbox", "create_container"] {
        let mut bench = AgentBench::new();
        bench.runtime.set_pulls_succeed(true);
        bench.runtime.inject_fault(call, Fault::Refuses("not now".to_owned()));
        bench.script.emit(&[("/m/a", &pod("a", ""))]);
        bench.begin();
        bench.until("it is refused", |bench| !bench.calls_of(call).is_empty()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(bench.runtime.call_counts("image") > 0, "{call}: the image was found");
        bench.runtime.remove_image_now("i:1");
        let took = bench.until_running().await;
        assert!(took < Duration::from_secs(60), "{call}: {took:?}");
        assert_eq!(bench.calls_of("pull_image").len(), 1, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_for_an_image_that_panics_begins_again_after_a_pause() {
    let mut bench = AgentBench::new();
    bench.runtime.inject_fault("image", Fault::Panics);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("it is told", |bench| waiting(bench).contains("panicked")).await;
    let took = bench.until_running().await;
    assert!((9..=11).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_for_volumes_that_panics_begins_again_after_a_pause() {
    let mut bench = AgentBench::new();
    bench.host.panic_on_name("data", 2);
    let mounts = ", volumeMounts: [{name: data, mountPath: /data}]";
    let text = format!("{}  volumes: [{{name: data, emptyDir: {{}}}}]\n", pod("a", mounts));
    bench.script.emit(&[("/m/a", &text)]);
    bench.begin();
    let reported = |bench: &AgentBench| {
        let waiting = bench.pod().and_then(|pod| pod.waiting_on);
        waiting.is_some_and(|waiting| waiting.why.contains("panicked"))
    };
    bench.until("it is told", reported).await;
    let took = bench.until_running().await;
    assert!((19..=21).contains(&took.as_secs()), "after two pauses: {took:?}");
    assert_eq!(bench.host.panics(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_action_is_reported_and_retried_after_the_usual_delay() {
    for call in ["run_sandbox", "create_container"] {
        let mut bench = AgentBench::new();
        for _ in 0..2 {
            bench.runtime.inject_fault(call, Fault::Panics);
        }
        bench.script.emit(&[("/m/a", &pod("a", ""))]);
        bench.begin();
        let took = bench.until_running().await;
        assert!((20..=31).contains(&took.as_secs()), "{call}: after two pauses: {took:?}");
        assert_eq!(bench.calls_of(call).len(), 3);
        let events = bench.detail().events;
        let reported = events.iter().any(|event| event.message.contains("panicked"));
        assert!(reported, "{call}: {events:?}");
    }
}

fn with_volumes(mounts: &str, volumes: &str) -> String {
    let mounted = format!(", volumeMounts: [{mounts}]");
    format!("{}  volumes: [{volumes}]\n", pod("a", &mounted))
        .replace("{name: a}", "{name: a, uid: stated-uid}")
}

/// An edit of a pod with a stated UID is another version of the same pod.
#[tokio::test(start_paused = true)]
async fn an_edit_brings_the_volumes_that_it_adds() {
    let one = with_volumes("{name: one, mountPath: /one}", "{name: one, emptyDir: {}}");
    let two = with_volumes(
        "{name: one, mountPath: /one}, {name: two, mountPath: /two}",
        "{name: one, emptyDir: {}}, {name: two, emptyDir: {}}",
    );
    let other = with_volumes("{name: two, mountPath: /two}", "{name: two, hostPath: {path: /h}}");
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &one)]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(bench.host.volumes_of("stated-uid"), ["one"]);
    bench.host.panic_on_name("one", 1);
    for (text, starts, mounted) in
        [(&two, 2, vec!["/one", "/two"]), (&other, 3, vec!["/two"]), (&pod_without(), 4, vec![])]
    {
        // Another image makes it another container.
        let image = format!("i:{starts}");
        bench.runtime.add_image(&image);
        bench.script.emit(&[("/m/a", &text.replace("i:1", &image))]);
        let has_started = |bench: &AgentBench| bench.calls_of("start_container").len() == starts;
        let took = bench.until("the edited one starts", has_started).await;
        assert!(took < Duration::from_secs(30), "{took:?}");
        bench.until_running().await;
        let newest = bench.runtime.containers().into_iter().max_by_key(|record| record.attempt);
        let mounts = newest.unwrap().mounts;
        let paths: Vec<&str> = mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        for path in ["/one", "/two"] {
            assert_eq!(paths.contains(&path), mounted.contains(&path), "{path}: {paths:?}");
        }
    }
    assert_eq!(bench.host.panics(), 0, "what is as it was is not set up again");
    assert_eq!(bench.calls_of("run_sandbox").len(), 1);
    bench.script.emit(&[]);
    bench.until("nothing is left", |bench| bench.pods().is_empty()).await;
    assert_eq!(bench.host.volumes_of("stated-uid"), [""; 0], "not of what left before either");
}

fn pod_without() -> String {
    pod("a", "").replace("{name: a}", "{name: a, uid: stated-uid}")
}

/// A pod of each agent, room for one, and a container that takes its time to exit.
async fn full_and_ending(waits_for_terminating_pods: bool) -> AgentBench {
    let mut bench = AgentBench::new();
    bench.max_pods = 1;
    bench.waits_for_ending = waits_for_terminating_pods;
    bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.script.emit(&[("/m/b", &pod("b", "").replace("main", "other"))]);
    bench
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_keelson_run_waits_for_the_room_of_pods_that_are_ending() {
    let bench = full_and_ending(true).await;
    bench.until("both are known", |bench| bench.pods().len() == 2).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let waits = bench.pods().into_iter().find(|pod| pod.name == "b-n").unwrap();
    let why = waits.waiting_on.unwrap().why;
    assert!(why.contains("until these have ended: a-n_default"), "{why}");
    let took = bench.until("it runs", |bench| bench.phase_of("b-n") == "Running").await;
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// As the kubelet does for static pods: a rejected one stays rejected while this agent runs.
#[tokio::test(start_paused = true)]
async fn a_pod_that_a_kubelet_rejected_is_judged_anew_by_the_next() {
    let mut bench = full_and_ending(false).await;
    bench.until("it is rejected", |bench| bench.phase_of("b-n") == "Failed").await;
    bench.until("room", |bench| bench.pods().len() == 1).await;
    // Neither a touch nor a comment changes the pod.
    let text = pod("b", "").replace("main", "other");
    bench.script.emit(&[("/m/b", &format!("# again\n{text}"))]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(bench.phase_of("b-n"), "Failed");
    assert!(bench.reasons().iter().any(|reason| reason == "UnexpectedAdmissionError"));
    bench.kill().await;
    bench.script.emit(&[("/m/b", &text)]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(bench.phase_of("b-n"), "Running");
}
