//! A runtime that misbehaves towards one pod, or whose events are unreliable. The runtime is real;
//! a proxy between it and the agent holds calls, hides a state, and cuts, empties, duplicates or
//! refuses the event stream.
//!
//! Rule: nothing here measures time. That one pod does not delay another is shown by the other's
//! progress while the first is still held.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::Containerd;
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use real_tests::standalone::proxy::{EventStreamMode, Proxy};

use crate::clean_up::remains;
use crate::node::{
    StandaloneNode, WAIT_LIMIT, archives, container_id, containerd, is_ready, keelson, only,
    restarts, uid, wait_for,
};

/// Makes later restarts quick too.
const SHORT_BACK_OFF: &str = "featureGates: {KubeletCrashLoopBackOffMax: true}\n\
    crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";

/// Exits with an error when it is poked, and at once on SIGTERM.
pub(crate) const TOUCHY: &str = r#"
  hostNetwork: true
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "trap 'exit 0' TERM; trap 'exit 3' USR1; while :; do sleep 1000 & wait; done"]
"#;

/// Makes the container of a TOUCHY pod exit by itself.
pub(crate) fn poke(node: &StandaloneNode<'_>, name: &str) -> Result<()> {
    let pod = node.until_ready(name)?;
    // The container may be gone before the command in it has ended.
    let _ = node.shell(&pod, "main", "kill -USR1 1");
    let id = container_id(&pod, "main")?;
    wait_for(&format!("{name} has ended"), WAIT_LIMIT, || {
        let lives = node.runtime.containers(name)?;
        Ok(!lives.iter().any(|life| life.id == id && life.finished_at == 0))
    })
}

/// The pod's running container.
fn running(node: &StandaloneNode<'_>, name: &str) -> Result<String> {
    let lives = node.runtime.containers(name)?;
    let mut running = lives.iter().filter(|life| life.finished_at == 0);
    match (running.next(), running.next()) {
        (Some(one), None) => Ok(one.id.clone()),
        _ => bail!("{name}: one runs at a time: {lives:?}"),
    }
}

fn behind_proxy<'a>(
    bed: &'a Bed,
    keelson: &AgentKind,
    archives: &[std::path::PathBuf],
) -> Result<(StandaloneNode<'a>, Proxy)> {
    let parts = containerd(bed, archives)?;
    let proxy = Proxy::start(&bed.dir().join("proxy.sock"), &parts.0.socket())?;
    let home = AgentHome::new(bed, "faults", &proxy.endpoint())?.with(SHORT_BACK_OFF);
    Ok((StandaloneNode::of_parts(bed, keelson, parts, home)?, proxy))
}

fn until_restarted(node: &StandaloneNode<'_>, name: &str, times: u64) -> Result<()> {
    let what = format!("restart {times}");
    node.until(&what, name, |pod| restarts(pod, "main") == times && is_ready(pod))?;
    Ok(())
}

#[test]
fn a_runtime_that_hangs_on_one_pod_delays_that_pod_only() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(move |bed| {
        let (node, proxy) = behind_proxy(bed, &keelson, &archives)?;
        for name in ["slow", "other", "leaves"] {
            node.place(name, TOUCHY)?;
        }
        let slow = node.until_ready("slow")?;
        node.until_ready("leaves")?;
        proxy.hold(&[&container_id(&slow, "main")?]);
        node.agent.withdraw("slow")?;
        held(&proxy)?;
        others_go_on(&node).context("while a container cannot be stopped")?;
        node.until_explained("slow", "stopping container main")?;

        let kept = running(&node, "other")?;
        let node = node.restart_agent(|_| Ok(()))?;
        node.place("after", TOUCHY)?;
        node.until_ready("after").context("a new agent starts pods though it cannot see one")?;
        node.until_ready("other")?;
        ensure!(running(&node, "other")? == kept, "and those that ran run on");
        held(&proxy)?;
        // What cannot be seen is not gone: nothing of it is cleaned up.
        ensure!(only(&node.runtime, "slow")?.finished_at == 0, "it runs meanwhile");
        let dir = node.home.root().join("pods").join(uid(&slow)?);
        ensure!(dir.is_dir(), "{}", dir.display());
        proxy.release();
        node.until_gone("slow")?;
        node.runtime.wait_gone("slow")?;

        proxy.hold(&["stuck-node"]);
        node.place("stuck", TOUCHY)?;
        held(&proxy)?;
        node.until_explained("stuck", "starting the sandbox")?;
        node.place("free", TOUCHY)?;
        node.until_ready("free").context("while a sandbox does not come")?;
        proxy.release();
        node.until_ready("stuck")?;
        unknown(&node, &proxy).context("a state that nobody knows")?;
        leave_nothing(node)
    })
}

/// A call waits for its response now. A call that timed out is made again.
fn held(proxy: &Proxy) -> Result<()> {
    wait_for("a call is held", WAIT_LIMIT, || Ok(proxy.waiting() > 0))
}

fn others_go_on(node: &StandaloneNode<'_>) -> Result<()> {
    poke(node, "other")?;
    until_restarted(node, "other", 1)?;
    node.place("comes", TOUCHY)?;
    node.until_ready("comes")?;
    node.agent.withdraw("leaves")?;
    node.until_gone("leaves")
}

/// As in the reference: the container is killed and replaced. Others are not affected.
fn unknown(node: &StandaloneNode<'_>, proxy: &Proxy) -> Result<()> {
    let pod = node.until_ready("free")?;
    let (id, other) = (container_id(&pod, "main")?, running(node, "other")?);
    proxy.set_state_unknown(Some(&id));
    // A new stream makes the agent look at everything.
    let before = proxy.streams();
    proxy.events(EventStreamMode::Cut);
    wait_for("no stream", WAIT_LIMIT, || Ok(proxy.no_stream_is_open()))?;
    proxy.events(EventStreamMode::Whole);
    wait_for("a new stream", WAIT_LIMIT, || Ok(proxy.streams() > before))?;
    node.until("another life", "free", |pod| {
        is_ready(pod) && container_id(pod, "main").is_ok_and(|now| now != id)
    })?;
    ensure!(running(node, "free")? != id, "the first one was ended");
    ensure!(running(node, "other")? == other, "the others are left alone");
    proxy.set_state_unknown(None);
    Ok(())
}

#[test]
fn events_that_are_lost_repeated_or_cut_cost_time_only() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(move |bed| {
        let (node, proxy) = behind_proxy(bed, &keelson, &archives)?;
        node.place("touchy", TOUCHY)?;
        node.place("steady", TOUCHY)?;
        node.until_ready("touchy")?;
        node.until_ready("steady")?;
        let steady = only(&node.runtime, "steady")?.id;
        let mut seen = BTreeSet::new();

        proxy.events(EventStreamMode::Repeated);
        poke(&node, "touchy")?;
        until_restarted(&node, "touchy", 1).context("with every event three times")?;
        lives(&node, &mut seen)?;

        proxy.events(EventStreamMode::Lost);
        poke(&node, "touchy")?;
        // Its own acts are followed by looks, whatever the stream says.
        node.place("unheard", TOUCHY)?;
        node.until_ready("unheard").context("without events")?;
        proxy.events(EventStreamMode::Cut);
        until_restarted(&node, "touchy", 2).context("the end that nobody told of")?;
        lives(&node, &mut seen)?;
        poke(&node, "touchy")?;
        until_restarted(&node, "touchy", 3).context("without a stream")?;
        node.agent.withdraw("unheard")?;
        node.until_gone("unheard")?;

        let before = proxy.streams();
        proxy.events(EventStreamMode::Whole);
        wait_for("a new stream", WAIT_LIMIT, || Ok(proxy.streams() > before))?;
        poke(&node, "touchy")?;
        until_restarted(&node, "touchy", 4).context("with the stream again")?;
        lives(&node, &mut seen)?;
        without_stream(&node, &proxy, &AgentProcess::log(bed, &keelson))?;
        lives(&node, &mut seen)?;
        ensure!(only(&node.runtime, "steady")?.id == steady, "the other one was never touched");
        leave_nothing(node)
    })
}

/// A runtime without the call (containerd before 1.7): the agent falls back to listings by itself.
/// The relist interval with a stream is much longer than this test waits.
fn without_stream(node: &StandaloneNode<'_>, proxy: &Proxy, log: &Path) -> Result<()> {
    let streams = proxy.streams();
    proxy.events(EventStreamMode::Unknown);
    wait_for("it is listed every second", WAIT_LIMIT, || {
        Ok(fs::read_to_string(log)?.contains("has no event stream; it is listed every second"))
    })?;
    poke(node, "touchy")?;
    until_restarted(node, "touchy", 5).context("with a runtime that has no stream")?;
    node.place("listed", TOUCHY)?;
    node.until_ready("listed")?;
    ensure!(proxy.streams() == streams, "nobody gets a stream");
    Ok(())
}

/// No container is run twice, and only one at a time.
fn lives(node: &StandaloneNode<'_>, seen: &mut BTreeSet<(u32, String)>) -> Result<()> {
    let lives = node.runtime.containers("touchy")?;
    let running = lives.iter().filter(|life| life.finished_at == 0).count();
    ensure!(running == 1, "one runs at a time: {lives:?}");
    seen.extend(lives.iter().map(|life| (life.attempt, life.id.clone())));
    let numbers: BTreeSet<u32> = seen.iter().map(|(attempt, _)| *attempt).collect();
    ensure!(numbers.len() == seen.len(), "a life was begun twice: {seen:?}");
    Ok(())
}

fn leave_nothing(node: StandaloneNode<'_>) -> Result<()> {
    node.agent.withdraw_all()?;
    node.runtime.wait_gone("")?;
    let root = node.home.root();
    let mut left = Vec::new();
    wait_for("nothing is left", WAIT_LIMIT, || {
        left = remains(&root)?;
        Ok(left.is_empty())
    })
    .with_context(|| format!("left: {left:#?}"))?;
    node.end()
}
