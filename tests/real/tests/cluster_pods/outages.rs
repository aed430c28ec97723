//! An API server that is gone, silent, slow, or back with older data; what its pods do meanwhile.
//!
//! Pods run on, crash and are restarted; what happened is reported with its true times when the API
//! server is there again; nothing is removed because it could not be asked.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use real_tests::cluster::{
    ClusterPrograms, JoinedNode, NEEDS, container_state, container_status, is_ready, pod_object,
    restart_count, shell,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";
/// How long the API server is gone.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long it answers nothing, and then only now and then.
const SILENCE: Duration = Duration::from_secs(12);

#[test]
fn pods_go_on_while_the_api_server_is_gone_silent_slow_or_behind() -> Result<()> {
    let programs = ClusterPrograms::build()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(8)).run(move |bed| {
        let mut node = JoinedNode::start(bed, &programs)?;
        node.create_bound(&pod_object("steady", json!({"containers": [shell(STEADY)]})))?;
        node.until_ready("steady")?;
        let container = node.runtime.containers("steady")?;
        gone(&mut node).context("an API server that is gone")?;
        silent_and_slow(&mut node).context("an API server that is silent and slow")?;
        behind(&mut node).context("an API server with older data")?;
        let after = node.runtime.containers("steady")?;
        ensure!(container == after, "the steady pod was touched: {container:?} {after:?}");
        node.delete_all_pods()?;
        node.end()
    })
}

/// While it is gone: one pod finishes, one is restarted, one is deleted just before, and an agent
/// is killed and starts without having seen the API server.
fn gone(node: &mut JoinedNode<'_>) -> Result<()> {
    let finite = json!({"containers": [shell("sleep 8; exit 7")], "restartPolicy": "Never"});
    node.create_bound(&pod_object("finite", finite))?;
    let crashing = json!({"containers": [shell("sleep 12; exit 1")]});
    node.create_bound(&pod_object("crashing", crashing))?;
    node.create_bound(&pod_object("ending", json!({"containers": [shell(STEADY)]})))?;
    for name in ["finite", "crashing", "ending"] {
        node.until_ready(name)?;
    }
    node.delete_pod("ending", Some(3))?;
    node.plane.kill_api_server()?;
    let begun = Instant::now();
    node.until("the deleted pod ends here", || {
        let alive = node.runtime.containers("ending")?;
        Ok(alive.iter().all(|one| one.finished_at > 0).then_some(()))
    })?;
    node.until("the crashed container is restarted", || {
        let lives = node.runtime.containers("crashing")?;
        Ok(lives.iter().any(|one| one.attempt > 0 && one.started_at > 0).then_some(()))
    })?;
    // A new agent knows none of these pods until the API server lists them.
    node.kill_agent()?;
    node.start_agent()?;
    std::thread::sleep(OUTAGE.saturating_sub(begun.elapsed()));
    let sandboxes = node.runtime.sandboxes()?;
    ensure!(sandboxes.iter().any(|one| one.ends_with(" of finite")), "removed: {sandboxes:?}");
    let exited = node.runtime.containers("finite")?;
    node.plane.start_api_server(node.bed)?;
    let pod = node
        .until_pod("finite", "is reported as failed", |pod| pod["status"]["phase"] == "Failed")?;
    let ended = &container_state(&pod, "main")["terminated"];
    ensure!(ended["exitCode"] == 7, "{ended}");
    let at = &exited.first().context("its container is kept until it is reported")?.finished_at;
    let reported = ended["finishedAt"].as_str().context("a time")?;
    ensure!(seconds_of(reported)? == at / 1_000_000_000 % 86_400, "{reported} is not {at}");
    node.until_pod("crashing", "its restart is reported", |pod| restart_count(pod, "main") > 0)?;
    node.until_gone("ending")?;
    for name in ["finite", "crashing"] {
        node.delete_pod(name, None)?;
        node.until_gone(name)?;
    }
    Ok(())
}

/// The second of the day in an API time, `2026-01-02T03:04:05Z`.
fn seconds_of(time: &str) -> Result<i64> {
    let clock = time.split_once('T').context("a time")?.1;
    let mut parts = clock.trim_end_matches('Z').split(':').map(str::parse::<i64>);
    let mut next = || parts.next().context("a part of a time")?.context("a number");
    Ok(next()? * 3600 + next()? * 60 + next()?)
}

fn signal(node: &mut JoinedNode<'_>, signal: Signal) -> Result<()> {
    let process = i32::try_from(node.plane.api_server().process_id())?;
    kill_process(Pid::from_raw(process).context("a process")?, signal).context("a signal")
}

/// Stopped, it holds its connections and answers nothing; then it runs for short times only.
fn silent_and_slow(node: &mut JoinedNode<'_>) -> Result<()> {
    let crashing = json!({"containers": [shell("sleep 5; exit 1")]});
    node.create_bound(&pod_object("crashing", crashing))?;
    node.until_ready("crashing")?;
    signal(node, Signal::STOP)?;
    let restarted = node.until("the crashed container is restarted", || {
        let lives = node.runtime.containers("crashing")?;
        Ok(lives.iter().any(|one| one.attempt > 0 && one.started_at > 0).then_some(()))
    });
    std::thread::sleep(SILENCE);
    for _ in 0..6 {
        signal(node, Signal::CONT)?;
        std::thread::sleep(Duration::from_millis(120));
        signal(node, Signal::STOP)?;
        std::thread::sleep(Duration::from_millis(880));
    }
    signal(node, Signal::CONT)?;
    restarted?;
    node.until_pod("crashing", "its restart is reported", |pod| restart_count(pod, "main") > 0)?;
    let selector = "fieldSelector=involvedObject.name%3Dcrashing,reason%3DStarted";
    let events = format!("/api/v1/namespaces/default/events?{selector}");
    node.until("the event of its restart arrives", || {
        let starts = node.api.items(&events)?;
        let count: u64 = starts.iter().filter_map(|event| event["count"].as_u64()).sum();
        Ok((count > 1).then_some(()))
    })?;
    node.create_bound(&pod_object("after", json!({"containers": [shell(STEADY)]})))?;
    node.until_ready("after")?;
    for name in ["crashing", "after"] {
        node.delete_pod(name, None)?;
        node.until_gone(name)?;
    }
    Ok(())
}

/// A backup is restored: a pod that was created since then is unknown again and ends here; one that
/// was deleted since then is back and runs again; resource versions begin again at lower numbers.
fn behind(node: &mut JoinedNode<'_>) -> Result<()> {
    node.create_bound(&pod_object("returning", json!({"containers": [shell(STEADY)]})))?;
    node.until_ready("returning")?;
    let saved = node.plane.save_data(node.bed)?;
    let path = "/api/v1/namespaces/default/pods";
    node.until("the API server writes again", || Ok(node.api.items(path).ok().map(drop)))?;
    node.delete_pod("returning", None)?;
    node.until_gone("returning")?;
    node.create_bound(&pod_object("unknown", json!({"containers": [shell(STEADY)]})))?;
    node.until_ready("unknown")?;
    node.plane.restore_data(node.bed, &saved)?;
    ensure!(node.pod("unknown")?.is_none(), "the data is not the older one");
    node.until("a pod that the API server does not know ends here", || {
        let alive = node.runtime.containers("unknown")?;
        Ok(alive.iter().all(|one| one.finished_at > 0).then_some(()))
    })?;
    let is_running_here = |pod: &Value| {
        let id = container_status(pod, "main")["containerID"].as_str().unwrap_or_default();
        let here = node.runtime.containers("returning").unwrap_or_default();
        is_ready(pod) && here.iter().any(|one| one.finished_at == 0 && id.ends_with(&one.id))
    };
    node.until_pod("returning", "it runs again and says so", is_running_here)?;
    // Writes and watches go on with the versions that the API server has now.
    node.create_bound(&pod_object("next", json!({"containers": [shell(STEADY)]})))?;
    node.until_ready("next")?;
    Ok(())
}
