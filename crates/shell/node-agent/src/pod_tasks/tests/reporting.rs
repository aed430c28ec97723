//! What is reported of pods and of the node: events, counts, pods before anything is known of them.

use super::bench::{AgentBench, pod};
use crate::pods::ReservedCgroup;
use node_policy::garbage::DeadContainerLimits;
use ports::local_api::LocalApiError;
use ports::pod_host::CgroupLimits;
use runtime_fake::{Behaviour, FakeKernelLog, FakeOomKill, Fault};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_new_pod_is_listed_before_the_first_answer_of_the_runtime() {
    let mut bench = AgentBench::new();
    bench.runtime.set_unavailable(true);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("it is listed", |bench| bench.pod().is_some()).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let listed = bench.pod().unwrap();
    assert_eq!((listed.name.as_str(), listed.stage.as_str()), ("a-n", "Starting"));
    assert_eq!((listed.source.as_str(), listed.manifest.as_str()), ("file", "/m/a"));
    assert_eq!(listed.uid, "no-uid-yet-a-n_default");
    assert!(listed.containers.is_empty());
    let why = listed.waiting_on.unwrap().why;
    assert!(why.contains("container runtime does not answer"), "{why}");
    let detail = bench.api().pod(&listed.uid).unwrap();
    assert_eq!((detail.pod.name.as_str(), detail.events.len()), ("a-n", 0));
    let refused = bench.api().stop(&listed.uid).await;
    assert!(matches!(refused, Err(LocalApiError::OwnedByManifest { .. })), "{refused:?}");
    assert_eq!(bench.metric("kubelet_desired_pods{static=\"true\"}"), Some(1.0));

    // Removed with its manifest, though nothing was ever known of it.
    bench.script.emit(&[]);
    bench.until("it is not wanted any more", |bench| bench.pod().is_none()).await;
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.until("it is listed", |bench| bench.pod().is_some()).await;
    bench.runtime.set_unavailable(false);
    bench
        .until("it runs", |bench| bench.pod().is_some() && bench.phase_of("a-n") == "Running")
        .await;
    assert!(!bench.pod().unwrap().uid.starts_with("no-uid-yet"), "one pod, with its UID");
}

#[tokio::test(start_paused = true)]
async fn enforced_cgroup_limits_are_node_events() {
    let mut bench = AgentBench::new();
    bench.host.refuse_cgroups(true);
    let reserved = |level: &str, path: &str| ReservedCgroup {
        level: level.to_owned(),
        path: path.to_owned(),
        limits: CgroupLimits { cpu_shares: Some(102), ..CgroupLimits::default() },
    };
    bench.reserved = vec![reserved("kube-reserved-compressible", "/kube")];
    bench.begin();
    tokio::time::sleep(Duration::from_secs(50)).await;
    let mut reported = bench.node_events();
    reported.sort();
    let failed = "Warning FailedNodeAllocatableEnforcement: Failed to";
    let expected = [
        format!(
            "{failed} enforce Kube Reserved Compressible Cgroup Limits on \"/kube\": \
             there is no cgroup /kube"
        ),
        format!("{failed} update Node Allocatable Limits [\"kubepods\"]: no cgroups today"),
    ];
    assert_eq!(reported, expected);
    let failures = |bench: &AgentBench| {
        let events = bench.api().node().events;
        events.iter().find(|event| event.message.contains("kubepods")).unwrap().count
    };
    assert_eq!(failures(&bench), 1, "once a minute, however often it is tried");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(failures(&bench), 2);
    bench.host.refuse_cgroups(false);
    bench.host.insert_cgroup("/kube");
    let done = [
        "Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods",
        "Normal NodeAllocatableEnforced: Updated limits on kube reserved cgroup /kube",
    ];
    let is_done = |bench: &AgentBench| {
        let reported = bench.node_events();
        done.iter().all(|line| reported.iter().any(|reported| reported == line))
    };
    bench.until("all is enforced", is_done).await;
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.until_running().await;
    let events = bench.api().node().events;
    assert!(events.iter().filter(|event| event.kind == "Normal").all(|event| event.count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_container_that_cannot_be_removed_is_a_node_event() {
    let mut bench = AgentBench::new();
    bench.dead =
        DeadContainerLimits { max_per_container: Some(0), ..DeadContainerLimits::default() };
    bench
        .runtime
        .set_behaviour("main", Behaviour::Exits { after: Duration::from_secs(5), code: 3 });
    let never = format!("{}  restartPolicy: Never\n", pod("a", ""))
        .replace("- {name: main", "- {name: other, image: 'i:1'}\n  - {name: main");
    bench.script.emit(&[("/m/a", &never)]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.inject_fault("remove_container", Fault::Refuses("busy".to_owned()));
    bench.until("it is gone", |bench| bench.runtime.containers().len() == 1).await;
    let events = bench.node_events();
    let reported: Vec<&String> = events.iter().filter(|event| event.contains("GC")).collect();
    assert_eq!(reported.len(), 1, "{events:?}");
    let words = "Warning ContainerGCFailed: failed to remove container \"";
    assert!(reported[0].starts_with(words) && reported[0].ends_with("busy"), "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_stays_unreadable_gets_a_failed_sync_event() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let reported = |bench: &AgentBench| {
        let events = bench.detail().events.into_iter();
        events.filter(|event| event.reason == "FailedSync").map(|event| event.count).sum::<u32>()
    };
    bench.runtime.inject_fault("observe_pod", Fault::Refuses("no".to_owned()));
    bench.runtime.crash("main", 1);
    bench.until("the restart", |bench| bench.calls_of("start_container").len() == 2).await;
    assert_eq!(reported(&bench), 0, "one failure is soon made good");
    tokio::time::sleep(Duration::from_secs(5)).await;
    for _ in 0..3 {
        bench.runtime.inject_fault("observe_pod", Fault::Refuses("no".to_owned()));
    }
    bench.runtime.crash("main", 1);
    bench.until("it is told", |bench| reported(bench) == 1).await;
    let event = bench.detail().events.into_iter().find(|event| event.reason == "FailedSync");
    let event = event.unwrap();
    assert_eq!(event.kind, "Warning");
    assert!(event.message.starts_with("error determining status: "), "{event:?}");
    bench.until("the restart", |bench| bench.calls_of("start_container").len() == 3).await;
    assert_eq!(reported(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn pod_and_container_activity_is_counted_under_upstreams_metric_names() {
    let mut bench = AgentBench::new();
    bench.runtime.remove_image_now("i:1");
    bench.runtime.set_pulls_succeed(true);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let of_images = "kubelet_image_manager_ensure_image_requests_total{present_locally=\"false\",\
                     pull_policy=\"ifnotpresent\",pull_required=\"true\"}";
    for (line, value) in [
        ("kubelet_node_name{node=\"n\"}", 1.0),
        ("kubelet_cgroup_version", 2.0),
        ("kubelet_started_pods_total", 1.0),
        ("kubelet_started_pods_errors_total", 0.0),
        ("kubelet_started_containers_total{container_type=\"container\"}", 1.0),
        ("kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"}", 1.0),
        ("kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"N/A\"}", 1.0),
        (of_images, 1.0),
        ("kubelet_running_pods", 1.0),
        ("kubelet_running_containers{container_state=\"running\"}", 1.0),
        ("kubelet_active_pods{static=\"true\"}", 1.0),
        ("kubelet_desired_pods{static=\"true\"}", 1.0),
        ("kubelet_desired_pods{static=\"\"}", 0.0),
        ("kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"true\"}", 1.0),
        ("kubelet_containers_per_pod_count_sum", 1.0),
        ("kubelet_pod_start_duration_seconds_count", 1.0),
        ("kubelet_pod_worker_start_duration_seconds_count", 1.0),
        ("kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"}", 1.0),
        ("kubelet_evented_pleg_connection_success_count", 1.0),
    ] {
        assert_eq!(bench.metric(line), Some(value), "{line}\n{}", bench.api().metrics());
    }
    bench.runtime.inject_fault("start_container", Fault::Refuses("no".to_owned()));
    bench.runtime.crash("main", 1);
    bench.until("the restart", |bench| bench.calls_of("start_container").len() >= 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let failed = "kubelet_started_containers_errors_total{code=\"RunContainerError\",\
                  container_type=\"container\"}";
    assert_eq!(bench.metric(failed), Some(1.0), "{}", bench.api().metrics());
    bench.script.emit(&[]);
    bench.until("it is gone", |bench| bench.pods().is_empty()).await;
    assert_eq!(bench.metric("kubelet_running_pods"), Some(0.0));
    assert_eq!(bench.metric("kubelet_desired_pods{static=\"true\"}"), Some(0.0));
}

/// A test on a real runtime reads the same.
#[tokio::test(start_paused = true)]
async fn full_listings_are_countable_and_few() {
    let listings =
        |bench: &AgentBench| bench.metric("kubelet_pleg_relist_duration_seconds_count").unwrap();
    let mut bench = AgentBench::new();
    let texts: Vec<(String, String)> =
        (0..30).map(|n| (format!("/m/{n}"), pod(&format!("p{n}"), ""))).collect();
    let reported: Vec<(&str, &str)> =
        texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    bench.script.emit(&reported);
    bench.begin();
    let started = |bench: &AgentBench| bench.calls_of("start_container").len();
    bench.until("all were started", |bench| started(bench) == 30).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = listings(&bench);
    for round in 1..=3_u8 {
        bench.runtime.set_unavailable(true);
        bench.runtime.crash("main", 1);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(listings(&bench) - before, f64::from(round - 1), "nobody answers");
        bench.runtime.set_unavailable(false);
        let starts = 30 * (usize::from(round) + 1);
        bench.until("all were started again", |bench| started(bench) == starts).await;
        // Longer than the back-off and shorter than the next safety net.
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(listings(&bench) - before, f64::from(round), "one for each time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_refuses_its_events_is_listed_every_few_seconds() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    bench.runtime.break_event_stream();
    tokio::time::sleep(Duration::from_secs(60)).await;
    bench.runtime.crash("main", 1);
    let started = |bench: &AgentBench| bench.calls_of("start_container").len();
    let took = bench.until("it is started again", |bench| started(bench) == 2).await;
    assert!(took <= Duration::from_secs(6), "after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_oom_kill_without_a_kernel_log_is_an_event() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = bench.runtime.containers()[0].id.clone();
    let reported = oom_events;
    bench.host.count_oom_kill(&format!("cri-containerd-{id}.scope"));
    let took = bench.until("it is told", |bench| reported(bench).len() == 1).await;
    assert!(took < Duration::from_secs(1), "as it happens: {took:?}");
    let message = &reported(&bench)[0];
    assert!(message.contains("a process of the container"), "{message}");
    assert!(message.contains("which is not known"), "{message}");
    bench.host.count_oom_kill(&format!("cri-containerd-{id}.scope"));
    bench.until("the second is told", |bench| reported(bench).len() == 2).await;
    assert_eq!(bench.phase().as_deref(), Some("Running"), "the container goes on");
    bench.host.count_oom_kill("somebody-else");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(reported(&bench).len(), 2);

    // The next agent reports the kills that were counted without one, and none twice.
    bench.kill().await;
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(reported(&bench), [""; 0], "all of it was told before");
    bench.kill().await;
    bench.host.count_oom_kill(&format!("cri-containerd-{id}.scope"));
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(reported(&bench).len(), 1, "{:?}", reported(&bench));
}

fn oom_events(bench: &AgentBench) -> Vec<String> {
    let events = bench.detail().events.into_iter();
    let kills = events.filter(|event| event.reason == "OOMKilling");
    kills.map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn an_oom_kill_in_the_kernel_log_is_reported_by_one_agent_only() {
    let mut bench = AgentBench::new();
    let log = FakeKernelLog::default();
    bench.kernel_log = Some(log.clone());
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let group = format!("/kubepods/pod1/{}", bench.runtime.containers()[0].id);
    log.emit(&group, "eater", 7);
    log.emit(&group.replace("/kubepods", "/elsewhere").replace('0', "1"), "other", 8);
    bench.until("it is told", |bench| oom_events(bench).len() == 1).await;
    log.emit(&group, "eater", 9);
    bench.until("the second is told", |bench| oom_events(bench).len() == 2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    for round in 0..3 {
        bench.kill().await;
        // Kills while there is no agent are reported by the next one; all others have been
        // reported.
        log.emit(&group, "late", 20 + round);
        bench.script.emit(&[("/m/a", &pod("a", ""))]);
        bench.begin();
        bench.until("known again", |bench| bench.phase().is_some()).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let reported = oom_events(&bench);
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].contains(&format!("late (pid {})", 20 + round)), "{reported:?}");
    }
}

/// Several are killed during one relist, by an agent that is there and while there is none, and the
/// container's next instance has its own kills.
#[tokio::test(start_paused = true)]
async fn simultaneous_oom_kills_are_all_reported() {
    let mut bench = AgentBench::new();
    let log = FakeKernelLog::default();
    bench.kernel_log = Some(log.clone());
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = format!("/kubepods/pod1/{}", bench.runtime.containers()[0].id);
    log.emit(&first, "one", 7);
    log.emit(&first, "two", 8);
    bench.until("both are told", |bench| oom_events(bench).len() == 2).await;
    let reported = oom_events(&bench);
    assert!(
        reported[0].contains("one (pid 7)") && reported[1].contains("two (pid 8)"),
        "{reported:?}"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.kill().await;
    for (pid, name) in [(9, "three"), (10, "four"), (11, "five")] {
        log.emit(&first, name, pid);
    }
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("known again", |bench| bench.phase().is_some()).await;
    bench.until("those of the time without an agent", |bench| oom_events(bench).len() == 3).await;
    bench.runtime.crash("main", 137);
    bench
        .until("the end tells of all", |bench| {
            let ended = bench.status("/containerStatuses/0/lastState/terminated");
            let reported = ended["message"].as_str().unwrap_or_default();
            ended["reason"] == "OOMKilled"
                && (7..=11).all(|pid| reported.contains(&format!("(pid {pid})")))
        })
        .await;
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reported = oom_events(&bench);
    assert_eq!(reported.len(), 3, "nothing twice, and nothing of the new life: {reported:?}");
    bench.runtime.crash("main", 1);
    let ended = |bench: &AgentBench| bench.status("/containerStatuses/0/lastState/terminated");
    bench.until("the second life has ended", |bench| ended(bench)["exitCode"] == 1).await;
    let message = ended(&bench)["message"].as_str().unwrap_or_default().to_owned();
    assert!(!message.contains("memory"), "{message}");
}

/// A whole cgroup is killed, and each process is in the log: the one that triggered it is reported.
#[tokio::test(start_paused = true)]
async fn a_group_oom_kill_is_reported_for_the_process_over_the_limit() {
    let mut bench = AgentBench::new();
    let log = FakeKernelLog::default();
    bench.kernel_log = Some(log.clone());
    let never = format!("{}  restartPolicy: Never\n", pod("a", ""));
    bench.script.emit(&[("/m/a", &never)]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let group = format!("/kubepods/pod1/{}", bench.runtime.containers()[0].id);
    let now = bench.clock.now().nanos();
    for (process, pid, is_group_kill) in [("tail", 7, false), ("sh", 5, true), ("sleep", 9, true)] {
        log.emit_kill(FakeOomKill { at: now, victim_cgroup: &group, process, pid, is_group_kill });
    }
    bench.runtime.crash("main", 137);
    let ended = |bench: &AgentBench| bench.status("/containerStatuses/0/state/terminated");
    bench
        .until("the kill is told", |bench| {
            ended(bench)["message"].as_str().is_some_and(|text| text.contains("want of memory"))
        })
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reported = ended(&bench);
    assert_eq!(reported["reason"], "OOMKilled", "{reported}");
    assert!(reported["message"].as_str().unwrap().contains("process tail (pid 7)"), "{reported}");
    assert_eq!(oom_events(&bench).len(), 1, "{:?}", oom_events(&bench));
}

#[tokio::test(start_paused = true)]
async fn idle_main_loops_keep_beating() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    let (name, silent) = bench.loop_heartbeats.most_silent().unwrap();
    assert!(silent <= Duration::from_secs(60), "{name}: {silent:?}");
    bench.kill().await;
    tokio::time::sleep(Duration::from_secs(301)).await;
    let (_, silent) = bench.loop_heartbeats.most_silent().unwrap();
    assert!(silent > Duration::from_secs(300), "nothing beats when nothing runs");
}

/// The runtime's reason of an exit, and then the termination message: each once.
#[tokio::test(start_paused = true)]
async fn a_termination_message_contains_each_part_once() {
    for (left, expected) in [("", "it could not start"), ("bye", "it could not start: bye")] {
        let mut bench = AgentBench::new();
        let rest = ", terminationMessagePath: /dev/termination-log";
        bench.script.emit(&[("/m/a", &format!("{}  restartPolicy: Never\n", pod("a", rest)))]);
        bench.begin();
        bench.until_running().await;
        let mounts = bench.runtime.containers().remove(0).mounts;
        let file = mounts.iter().find(|mount| mount.container_path == "/dev/termination-log");
        bench.host.put_file(&file.unwrap().host_path, left.as_bytes());
        bench.runtime.crash_with_message("main", 128, "it could not start");
        bench.until("it has ended", |bench| bench.phase().as_deref() == Some("Failed")).await;
        assert_eq!(bench.status("/containerStatuses/0/state/terminated/message"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn outdated_or_broken_machine_settings_are_node_events() {
    let begun = async |file: Option<&str>| {
        let mut bench = AgentBench::new();
        bench.host.use_cgroup_v1();
        bench.resolv_conf = "/etc/r".to_owned();
        if let Some(text) = file {
            bench.host.put_file("/etc/r", text.as_bytes());
        }
        bench.begin();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reported = bench.node_events();
        bench.kill().await;
        reported
    };
    let old = "Warning CgroupV1: cgroup v1 detected. cgroup v1 support is deprecated";
    let good = begun(Some("nameserver 192.0.2.1\nsearch a.example\n")).await;
    assert!(good.iter().any(|event| event.starts_with(old)), "{good:?}");
    assert!(!good.iter().any(|event| event.contains("ResolvConf")), "{good:?}");
    let domains = (0..40).map(|number| format!(" d{number}.example")).collect::<String>();
    let long = begun(Some(&format!("search{domains}\n"))).await;
    let words = "Warning CheckLimitsForResolvConf: Resolv.conf file '/etc/r' contains search line \
                 consisting of more than 32 domains!";
    assert!(long.iter().any(|event| event == words), "{long:?}");
    let missing = begun(None).await;
    let words = "Warning CheckLimitsForResolvConf: open /etc/r: no such file or directory";
    assert!(missing.iter().any(|event| event == words), "{missing:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_cluster_dns_emits_an_event() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    let events = bench.node_events();
    let words = "Warning MissingClusterDNS: kubelet does not have ClusterDNS IP configured";
    assert!(events.iter().any(|event| event.starts_with(words)), "{events:?}");
    assert!(bench.reasons().contains(&"MissingClusterDNS".to_owned()));
    assert_eq!(bench.metric("kubelet_managed_ephemeral_containers"), Some(0.0));
}
