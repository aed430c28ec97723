//! containerd is restarted under pods: no running container is restarted, and the agent catches up
//! with what happened meanwhile: a new pod, a container that exited unobserved, pods that were
//! being started and stopped at that instant.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::{Containerd, ContainerdOptions};
use real_tests::standalone::agent::{AgentHome, AgentProcess};
use real_tests::standalone::runtime::ListedContainer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::clean_up::remains;
use crate::node::{
    STEADY, WAIT_LIMIT, archives, by_pod, container, containerd, is_ready, keelson, pod, restarts,
    wait_for,
};

const RESTARTS: usize = 3;

/// How often the agent listed everything in the runtime, successfully.
const LISTINGS: &str = "kubelet_pleg_relist_duration_seconds_count";

/// Thirty with the soak verb, fewer in `cargo xtask test`.
fn pods() -> usize {
    if std::env::var_os("KEELSON_KILLS").is_some() { 30 } else { 10 }
}

#[test]
fn a_runtime_killed_under_pods_costs_no_container() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(move |bed| {
        let (mut containerd, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "runtime-restarts", &containerd.endpoint())?;
        let mut agent = AgentProcess::start(bed, &keelson, &home)?;
        for number in 0..pods() {
            let name = format!("steady-{number}");
            agent.place(&name, &pod(&name, "", STEADY))?;
        }
        for round in 0..RESTARTS {
            let name = format!("falls-{round}");
            agent.place(&name, &pod(&name, "", &format!("exec sleep {}", marker(round))))?;
        }
        all_run(&agent, pods() + RESTARTS)?;
        let before = by_pod(runtime.containers("steady-")?);
        for round in 0..RESTARTS {
            let listings = agent.metric(LISTINGS)?;
            containerd.process().kill()?;
            // What is asked for while there is no runtime is done when there is one.
            let name = format!("meanwhile-{round}");
            agent.place(&name, &pod(&name, "", STEADY))?;
            end_unseen(round)?;
            containerd = Containerd::start(bed, &ContainerdOptions::default())?;
            runtime.wait_started(&name, 1, 0)?;
            ensure!(!agent.has_ended()?, "the agent ended in round {round}");
            caught_up(&agent, &format!("falls-{round}-node"))?;
            let listings = agent.metric(LISTINGS)? - listings;
            // Once per restart, when the event stream is open again; an event of a container that
            // is not known any more causes another.
            ensure!((1.0..=4.0).contains(&listings), "caught up with {listings} listings");
        }
        all_run(&agent, pods() + 2 * RESTARTS)?;
        same_containers(&before, &by_pod(runtime.containers("steady-")?))?;
        eprintln!("containerd killed {RESTARTS} times under {} pods", pods() + 2 * RESTARTS);
        agent.withdraw_all()?;
        runtime.wait_gone("")?;
        let mut left = Vec::new();
        wait_for("nothing is left", WAIT_LIMIT, || {
            left = remains(&home.root())?;
            Ok(left.is_empty())
        })
        .with_context(|| format!("left: {left:#?}"))?;
        agent.end()?;
        runtime.remove_all()
    })
}

/// Number of pods that start, and of pods that stop, when the runtime dies.
const CHURNING: usize = 3;

/// Exits slowly on SIGTERM, and prints when it begins to.
const SLOW: &str = "trap 'echo ending; sleep 15; exit 0' TERM; while :; do sleep 1000 & wait; done";

/// A pod with a slow postStart hook that also stops slowly.
fn slow(name: &str) -> String {
    let hook = "    lifecycle: {postStart: {exec: {command: [sleep, '10']}}}\n    command:";
    pod(name, "", SLOW).replace("PeriodSeconds: 2", "PeriodSeconds: 30").replacen(
        "    command:",
        hook,
        1,
    )
}

#[test]
fn a_runtime_killed_while_pods_start_and_stop_is_caught_up_with() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(400)).run(move |bed| {
        let (mut containerd, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "runtime-churn", &containerd.endpoint())?;
        let mut agent = AgentProcess::start(bed, &keelson, &home)?;
        let steady = 4;
        for number in 0..steady {
            let name = format!("steady-{number}");
            agent.place(&name, &pod(&name, "", STEADY))?;
        }
        let named = |round: usize| (0..CHURNING).map(move |one| format!("round-{round}-{one}"));
        named(0).try_for_each(|name| agent.place(&name, &slow(&name)))?;
        all_run(&agent, steady + CHURNING)?;
        let before = by_pod(runtime.containers("steady-")?);
        for round in 0..RESTARTS {
            named(round).try_for_each(|name| agent.withdraw(&name))?;
            named(round + 1).try_for_each(|name| agent.place(&name, &slow(&name)))?;
            wait_for("some begin and some end", WAIT_LIMIT, || {
                let begun = runtime.containers(&format!("round-{}-", round + 1))?;
                let ends = named(round).any(|name| {
                    agent.ask(&["logs", &name]).is_ok_and(|output| output.contains("ending"))
                });
                Ok(ends && begun.iter().any(|one| one.started_at > 0))
            })?;
            let ending = runtime.containers(&format!("round-{round}-"))?;
            ensure!(ending.iter().any(|one| one.finished_at == 0), "all have ended: {ending:?}");
            ensure!(!any_ready(&agent, &format!("round-{}-", round + 1))?, "all have begun");
            containerd.process().kill()?;
            containerd = Containerd::start(bed, &ContainerdOptions::default())?;
            all_run(&agent, steady + CHURNING)?;
            ensure!(!agent.has_ended()?, "the agent ended in round {round}");
            wait_for("those that were ending are gone", WAIT_LIMIT, || {
                // The first question after a restart may go down the line of before.
                let left = runtime.containers(&format!("round-{round}-"));
                Ok(left.is_ok_and(|left| left.is_empty()))
            })?;
        }
        same_containers(&before, &by_pod(runtime.containers("steady-")?))?;
        agent.withdraw_all()?;
        runtime.wait_gone("")?;
        let mut left = Vec::new();
        wait_for("nothing is left", WAIT_LIMIT, || {
            left = remains(&home.root())?;
            Ok(left.is_empty())
        })
        .with_context(|| format!("left: {left:#?}"))?;
        agent.end()?;
        runtime.remove_all()
    })
}

fn any_ready(agent: &AgentProcess, prefix: &str) -> Result<bool> {
    let pods = agent.pods()?;
    let items = pods["items"].as_array().context("items")?;
    let named = |pod: &&Value| {
        pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix))
    };
    Ok(items.iter().filter(named).any(is_ready))
}

/// One container each, the same as before, and it runs.
fn same_containers(
    before: &BTreeMap<String, Vec<ListedContainer>>,
    after: &BTreeMap<String, Vec<ListedContainer>>,
) -> Result<()> {
    for (pod, seen) in before {
        let now = after.get(pod).map(Vec::as_slice).unwrap_or_default();
        let same = matches!((seen.as_slice(), now), ([old], [new]) if old.id == new.id && new.finished_at == 0);
        ensure!(same, "{pod}: {seen:?} became {now:?}");
    }
    Ok(())
}

/// A marker on the command line that shows which pod a process belongs to.
fn marker(round: usize) -> String {
    format!("{}", 77_000 + round)
}

/// Kills a container's process while it is not observed.
fn end_unseen(round: usize) -> Result<()> {
    let wanted = format!("sleep\0{}\0", marker(round));
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(process) = name.parse().ok().and_then(Pid::from_raw) else { continue };
        if fs::read(format!("/proc/{name}/cmdline")).is_ok_and(|line| line == wanted.as_bytes()) {
            return kill_process(process, Signal::KILL).context("kill a container's process");
        }
    }
    anyhow::bail!("no process {wanted:?}")
}

fn pod_of(agent: &AgentProcess, name: &str) -> Result<Option<Value>> {
    let pods = agent.pods()?;
    let items = pods["items"].as_array().context("items")?;
    Ok(items.iter().find(|pod| pod["metadata"]["name"] == name).cloned())
}

/// The exit was observed and answered with one restart. This runtime has no exit code for an exit
/// while it was down, and reports 255; it may also have got the code from the container's shim.
fn caught_up(agent: &AgentProcess, name: &str) -> Result<()> {
    let mut last = None;
    wait_for("its second life", WAIT_LIMIT, || {
        last = pod_of(agent, name)?;
        Ok(last.as_ref().is_some_and(|pod| restarts(pod, "main") == 1 && is_ready(pod)))
    })
    .with_context(|| format!("{last:#?}"))?;
    let pod = last.context("the pod")?;
    let ended = &container(&pod, "main")["lastState"]["terminated"];
    let code = &ended["exitCode"];
    ensure!(*code == 137 || (*code == 255 && ended["reason"] == "Unknown"), "{pod:#}");
    Ok(())
}

fn all_run(agent: &AgentProcess, count: usize) -> Result<()> {
    wait_for("all pods run", WAIT_LIMIT * 2, || {
        let pods = agent.pods()?;
        let items = pods["items"].as_array().cloned().unwrap_or_default();
        Ok(items.len() == count && items.iter().all(is_ready))
    })
}
