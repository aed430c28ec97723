//! The agent's work beside pods: log rotation, reserved cgroups, rejected pods.

use super::bench::{AgentBench, pod};
use crate::log_rotation::LogRotation;
use crate::pods::ReservedCgroup;
use node_policy::log_rotation::LogLimits;
use ports::pod_host::CgroupLimits;
use runtime_fake::Fault;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(10);

async fn bench_with_a_log() -> (AgentBench, String) {
    let mut bench = AgentBench::new();
    let limits = LogLimits { size: 10, files: 3 };
    bench.logs = Some(LogRotation { limits, workers: 1, interval: INTERVAL });
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    let log = bench.runtime.containers()[0].log_path.clone();
    assert!(log.starts_with("/logs/"), "{log}");
    (bench, log)
}

fn contents(bench: &AgentBench) -> Vec<(String, String)> {
    let short = |(path, content): (String, String)| {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        // The time in the name is the clock's; its end distinguishes compressed from plain files.
        let name = match name.split_once(".2") {
            Some((log, stamp)) if stamp.ends_with(".gz") => format!("{log}.*.gz"),
            Some((log, _)) => format!("{log}.*"),
            None => name,
        };
        (name, content)
    };
    bench.host.files_below("/logs").into_iter().map(short).collect()
}

fn files(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_log_that_has_reached_its_size_is_rotated_and_the_oldest_goes() {
    let (bench, log) = bench_with_a_log().await;
    bench.host.put_file(&log, b"short");
    tokio::time::sleep(INTERVAL * 3).await;
    assert_eq!(contents(&bench), files(&[("0.log", "short")]));
    for content in ["first first", "second second", "third third"] {
        bench.host.put_file(&log, content.as_bytes());
        tokio::time::sleep(INTERVAL).await;
        bench.host.put_file(&log, b"");
    }
    let expected =
        files(&[("0.log", ""), ("0.log.*.gz", "second second"), ("0.log.*", "third third")]);
    assert_eq!(contents(&bench), expected);
    assert_eq!(bench.calls_of("reopen_log").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_begins_no_new_log_gets_the_old_one_back() {
    let (bench, log) = bench_with_a_log().await;
    bench.runtime.inject_fault("reopen_log", Fault::Refuses("no".to_owned()));
    bench.host.put_file(&log, b"all that was written");
    bench.until("it was asked", |bench| !bench.calls_of("reopen_log").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(contents(&bench), files(&[("0.log", "all that was written")]));
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(contents(&bench), files(&[("0.log.*", "all that was written")]));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_does_not_keep_a_log_from_being_rotated() {
    let (bench, log) = bench_with_a_log().await;
    for content in ["first first", "second second"] {
        bench.host.put_file(&log, content.as_bytes());
        tokio::time::sleep(INTERVAL).await;
        bench.host.set_disk_full(true);
    }
    let expected = files(&[("0.log.*", "first first"), ("0.log.*", "second second")]);
    assert_eq!(contents(&bench), expected);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_missing_is_opened_again() {
    let (bench, _) = bench_with_a_log().await;
    bench.until("it was asked", |bench| !bench.calls_of("reopen_log").is_empty()).await;
    assert_eq!(contents(&bench), files(&[]));
}

#[tokio::test(start_paused = true)]
async fn reserved_cgroups_are_limited_once_they_are_there_and_no_pod_waits() {
    let mut bench = AgentBench::new();
    let limits = CgroupLimits { cpu_shares: Some(102), ..CgroupLimits::default() };
    bench.reserved = vec![ReservedCgroup {
        level: "system-reserved".to_owned(),
        path: "/system".to_owned(),
        limits: limits.clone(),
    }];
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(bench.host.cgroup("/system"), None, "it is not ours to make");
    bench.host.insert_cgroup("/system");
    bench.until("the limits", |bench| bench.host.cgroup("/system") == Some(limits.clone())).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_the_node_cannot_run_is_rejected_with_upstreams_message() {
    let sysctl =
        pod("a", "") + "  securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}\n";
    let profile = ", securityContext: {appArmorProfile: {type: RuntimeDefault}}";
    for (manifest, reason, message) in [
        (sysctl, "SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
        (
            pod("a", profile),
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
    ] {
        let mut bench = AgentBench::new();
        bench.script.emit(&[("/m/a", &manifest)]);
        bench.begin();
        bench.until("refused", |bench| bench.phase().as_deref() == Some("Failed")).await;
        assert_eq!(bench.status("/reason"), reason);
        let shown_message = bench.status("/message");
        assert!(
            shown_message.as_str().is_some_and(|shown_message| shown_message.contains(message)),
            "{shown_message}"
        );
        assert!(bench.calls_of("run_sandbox").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn images_are_pulled_with_the_logins_that_the_node_has() {
    let mut bench = AgentBench::new();
    let logins = r#"{"auths": {
        "r.example": {"username": "all", "password": "x"},
        "r.example/team": {"username": "team", "password": "x"}
    }}"#;
    bench.host.put_file("/node/config.json", logins.as_bytes());
    bench.host.put_file("/.docker/config.json", b"{}");
    bench.runtime.set_pulls_succeed(true);
    bench.runtime.inject_fault("pull_image", Fault::Refuses("denied".to_owned()));
    let manifest = pod("a", "").replace("'i:1'", "'r.example/team/i:1'");
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until_running().await;
    let pulls = ["pull_image r.example/team/i:1 as team", "pull_image r.example/team/i:1 as all"];
    assert_eq!(bench.calls_of("pull_image"), pulls);
}

#[tokio::test(start_paused = true)]
async fn addresses_of_the_machine_may_come_and_change_while_the_agent_runs() {
    let mut bench = AgentBench::new();
    bench.host.set_addresses(&[]);
    let manifest = format!("{}  hostNetwork: true\n", pod("a", ""));
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(bench.status("/hostIP"), serde_json::Value::Null);
    bench.host.set_addresses(&["192.0.2.7".parse().unwrap()]);
    bench.runtime.crash("main", 1);
    bench.until("a restart", |bench| bench.calls_of("start_container").len() == 2).await;
    bench.until("its address", |bench| bench.status("/hostIP") == "192.0.2.7").await;
    assert_eq!(bench.status("/podIP"), "192.0.2.7");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_others_are_cleaned_up_loses_nothing() {
    let mut bench = AgentBench::new();
    let (old, new) = (pod("old", ""), pod("new", ""));
    bench.script.emit(&[("/m/old", &old)]);
    bench.begin();
    bench.until_running().await;
    bench.host.delay_pod_list(Duration::from_secs(20));
    bench.script.emit(&[]);
    bench.until("it is gone", |bench| bench.pods().is_empty()).await;
    // The round that follows has begun, and finds what the new pod creates meanwhile.
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.script.emit(&[("/m/new", &new)]);
    bench.until_running().await;
    let uid = bench.pod().unwrap().uid;
    let cgroup = format!("pod{uid}");
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(bench.host.pod_dirs(), std::slice::from_ref(&uid));
    assert_eq!(bench.host.record_names("pods"), std::slice::from_ref(&uid));
    let cgroups = bench.host.cgroup_names();
    assert!(cgroups.iter().any(|name| name.ends_with(&cgroup)), "{cgroup} in {cgroups:?}");
}

/// The end of each round is reported, so that its memory can be returned: logs, garbage, runtime.
#[tokio::test(start_paused = true)]
async fn every_periodic_task_reports_the_end_of_its_round() {
    let (bench, log) = bench_with_a_log().await;
    bench.host.put_file(&log, b"short");
    // Until the runtime is polled at the longest interval.
    tokio::time::sleep(Duration::from_mins(10)).await;
    let before = bench.periodic_tasks.count();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let (logs, garbage, runtime) = (60, 10, 10);
    let seen = bench.periodic_tasks.count() - before;
    assert!(seen.abs_diff(logs + garbage + runtime) <= 2, "{seen} rounds");
}
