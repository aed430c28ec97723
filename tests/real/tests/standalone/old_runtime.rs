//! A pod over containerd 1.6, which has no event stream: the agent lists every second, and a pod
//! starts, crashes, is probed, changed and removed as over a runtime with an event stream.
//!
//! By verb only: `cargo xtask real containerd_behaves_of_before_there_were_events`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::images;
use node_testkit::start::{Containerd, ContainerdGeneration, ContainerdOptions};
use real_tests::standalone::agent::{AgentHome, AgentProcess};
use real_tests::standalone::runtime::RuntimeObserver;
use serde_json::Value;

use crate::node::{
    StandaloneNode, WAIT_LIMIT, archives, container, container_id, is_ready, keelson, restarts,
    wait_for,
};

/// Listings are a second apart, and what follows takes time on a busy machine.
const SOON: Duration = Duration::from_secs(4);

/// Exits on request, by one file for the crash and another for the probes.
const LISTED: &str = r#"
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: first, image: BUSYBOX, command: [sh, -c, "echo first"]}
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "echo WORD; touch /good; while ! [ -e /crash ]; do sleep 0.1; done; exit 7"]
    readinessProbe: {exec: {command: [test, -e, /good]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [sh, -c, "! [ -e /sick ]"]}, periodSeconds: 1, failureThreshold: 1}
"#;

#[test]
fn containerd_behaves_of_before_there_were_events() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::OLD_NEEDS).deadline(Duration::from_secs(300)).run(move |bed| {
        let options = ContainerdOptions {
            generation: ContainerdGeneration::Old,
            sandbox_image: Some(images::CONTAINERD_PAUSE.to_owned()),
            ..ContainerdOptions::default()
        };
        let containerd = Containerd::start(bed, &options)?;
        for archive in &archives {
            containerd.import(archive)?;
        }
        let runtime = RuntimeObserver::connect(&containerd.endpoint())?;
        let home = AgentHome::new(bed, "old", &containerd.endpoint())?;
        let node = StandaloneNode::of_parts(bed, &keelson, (containerd, runtime), home)?;
        let log = AgentProcess::log(bed, &keelson);
        wait_for("it is listed every second", WAIT_LIMIT, || {
            Ok(fs::read_to_string(&log)?.contains("has no event stream; it is listed every second"))
        })?;
        node.place("listed", &LISTED.replace("WORD", "one"))?;
        node.place("steady", &LISTED.replace("WORD", "steady"))?;
        let steady = container_id(&node.until_ready("steady")?, "main")?;
        crash(&node).context("a crash")?;
        probes(&node).context("probes")?;
        let node = killed_agent(node).context("kill -9 of the agent")?;
        changed(&node).context("a changed manifest")?;
        ensure!(container_id(&node.until_ready("steady")?, "main")? == steady, "never touched");
        node.agent.withdraw("listed")?;
        node.until_gone("listed")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        wait_for("the runtime has nothing of them", WAIT_LIMIT, || {
            Ok(node.runtime.containers("")?.is_empty() && node.runtime.sandboxes()?.is_empty())
        })?;
        node.end()
    })
}

fn do_in(node: &StandaloneNode<'_>, script: &str) -> Result<Instant> {
    let pod = node.until_ready("listed")?;
    node.shell(&pod, "main", script)?;
    Ok(Instant::now())
}

fn crash(node: &StandaloneNode<'_>) -> Result<()> {
    let first = container_id(&node.until_ready("listed")?, "main")?;
    let at = do_in(node, "touch /crash")?;
    let pod = node.until("started again", "listed", |pod| restarts(pod, "main") == 1)?;
    let took = at.elapsed();
    ensure!(took < SOON, "seen and started again only after {took:?}");
    println!("a crash was seen and its container started again after {took:?}");
    let last = &container(&pod, "main")["lastState"]["terminated"];
    ensure!(last["exitCode"] == 7, "{pod:#}");
    ensure!(last["containerID"].as_str().is_some_and(|id| id.ends_with(&first)), "{pod:#}");
    node.until_ready("listed")?;
    Ok(())
}

fn probes(node: &StandaloneNode<'_>) -> Result<()> {
    do_in(node, "rm /good")?;
    node.until("not ready", "listed", |pod| !is_ready(pod))?;
    let pod = node.pod("listed")?.context("the pod")?;
    node.shell(&pod, "main", "touch /good")?;
    node.until_ready("listed")?;
    do_in(node, "touch /sick")?;
    let restarted = |pod: &Value| restarts(pod, "main") == 2;
    node.until("ended by its probe and started again", "listed", restarted)?;
    node.until_ready("listed")?;
    Ok(())
}

fn killed_agent(node: StandaloneNode<'_>) -> Result<StandaloneNode<'_>> {
    let before = container_id(&node.until_ready("listed")?, "main")?;
    let node = node.restart_agent(|_| Ok(()))?;
    let after = container_id(&node.until_ready("listed")?, "main")?;
    ensure!(before == after, "the same container");
    let pod = node.pod("listed")?.context("the pod")?;
    ensure!(restarts(&pod, "main") == 2, "{pod:#}");
    Ok(node)
}

fn changed(node: &StandaloneNode<'_>) -> Result<()> {
    let before = node.until_ready("listed")?;
    node.place("listed", &LISTED.replace("WORD", "two"))?;
    node.until("another pod", "listed", |pod| {
        is_ready(pod) && pod["metadata"]["uid"] != before["metadata"]["uid"]
    })?;
    ensure!(node.agent.ask(&["logs", "listed"])?.contains("two"), "the new command");
    wait_for("one container of it is left", WAIT_LIMIT, || {
        Ok(node.runtime.containers("listed")?.iter().filter(|one| one.finished_at == 0).count()
            == 1)
    })?;
    Ok(())
}
