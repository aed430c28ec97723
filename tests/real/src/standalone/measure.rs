//! What is measured of one agent, and how.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use node_testkit::bed::Bed;

use super::agent::{Agent, Home, Kind, Memory};
use super::runtime::{Runtime, now};

const SETTLE: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(60);
const SINGLES: usize = 15;
const CRASHES: usize = 5;

/// One agent's numbers.
#[derive(Debug)]
pub struct Measured {
    /// With 0, 30 and 110 pods.
    pub memory: [Memory; 3],
    /// In an idle minute with 0, 30 and 110 pods.
    pub idle_cpu: [Duration; 3],
    /// From the manifest to the start of the container, one pod after another: the median.
    pub single: Duration,
    /// From the manifests to the start of the last container.
    pub burst_30: Duration,
    pub burst_110: Duration,
    /// From the end of a container to the start of its first successor: the median.
    pub crash: Duration,
    /// From the removal of the manifest to the pod's end: the median.
    pub removal: Duration,
}

/// What the runtime itself needs.
#[derive(Debug)]
pub struct Bare {
    pub pod: Duration,
    pub create_and_start: Duration,
}

pub fn bare(runtime: &Runtime, bed: &Bed, image: &str) -> Result<Bare> {
    let logs = bed.make_folder("bare-logs")?.display().to_string();
    let mut times = Vec::new();
    for round in 0..=SINGLES {
        let name = format!("bare-{round}");
        let pair = runtime.bare_pod(&name, image, &logs)?;
        // The first warms up the runtime.
        if round > 0 {
            times.push(pair);
        }
    }
    runtime.remove_all()?;
    let pod = median(times.iter().map(|pair| pair.0).collect())?;
    let create_and_start = median(times.iter().map(|pair| pair.1).collect())?;
    Ok(Bare { pod, create_and_start })
}

pub fn agent(
    bed: &Bed,
    runtime: &Runtime,
    kind: &Kind,
    endpoint: &str,
    images: &Images,
) -> Result<Measured> {
    let agent = Agent::start(bed, kind, &Home::new(bed, kind.name, endpoint)?)?;
    let say = |what: &str| eprintln!("{}: {what}", kind.name);
    say("idle without pods");
    let none = idle(&agent)?;
    say("pods one by one");
    let (single, removal) = singles(&agent, runtime, &images.quiet)?;
    say("crashes");
    let crash = crashes(&agent, runtime, &images.shell)?;
    say("30 at once");
    let burst_30 = burst(&agent, runtime, 30, &images.quiet)?;
    let thirty = idle(&agent)?;
    clear(&agent, runtime)?;
    say("110 at once");
    let burst_110 = burst(&agent, runtime, 110, &images.quiet)?;
    let many = idle(&agent)?;
    clear(&agent, runtime)?;
    agent.end()?;
    runtime.remove_all()?;
    Ok(Measured {
        memory: [none.0, thirty.0, many.0],
        idle_cpu: [none.1, thirty.1, many.1],
        single,
        burst_30,
        burst_110,
        crash,
        removal,
    })
}

/// Images that both agents run.
#[derive(Debug)]
pub struct Images {
    /// Does nothing, ends at once when told.
    pub quiet: String,
    /// Has a shell.
    pub shell: String,
}

fn idle(agent: &Agent) -> Result<(Memory, Duration)> {
    sleep(SETTLE);
    let before = agent.cpu_time()?;
    sleep(IDLE);
    let used = agent.cpu_time()?.saturating_sub(before);
    Ok((agent.memory()?, used))
}

fn singles(agent: &Agent, runtime: &Runtime, image: &str) -> Result<(Duration, Duration)> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for round in 0..=SINGLES {
        let name = format!("single-{round}");
        let begun = now();
        agent.place(&name, &manifest(&name, image, ""))?;
        let seen = runtime.wait_started(&name, 1, 0)?;
        let started = seen.iter().map(|one| one.started_at).max().context("a container")?;
        let removed = Instant::now();
        agent.withdraw(&name)?;
        runtime.wait_gone(&name)?;
        if round > 0 {
            starts.push(nanos(started - begun));
            ends.push(removed.elapsed());
        }
    }
    Ok((median(starts)?, median(ends)?))
}

fn crashes(agent: &Agent, runtime: &Runtime, image: &str) -> Result<Duration> {
    let mut times = Vec::new();
    for round in 0..CRASHES {
        let name = format!("crash-{round}");
        // Ends once, then stays: the first life leaves a mark in a volume of the pod.
        let script = "    command: [sh, -c, 'test -e /mark/1 && exec sleep 1000; touch /mark/1; sleep 1; exit 1']\n\
                      \x20   volumeMounts: [{name: mark, mountPath: /mark}]\n\
                      \x20 volumes: [{name: mark, emptyDir: {}}]\n";
        agent.place(&name, &manifest(&name, image, script))?;
        runtime.wait_started(&name, 1, 1)?;
        let seen = runtime.containers(&name)?;
        let ended = seen.iter().find(|one| one.attempt == 0).context("the first life")?;
        let again = seen.iter().find(|one| one.attempt == 1).context("the second life")?;
        times.push(nanos(again.started_at - ended.finished_at));
        agent.withdraw(&name)?;
    }
    runtime.wait_gone("crash-")?;
    median(times)
}

fn burst(agent: &Agent, runtime: &Runtime, count: usize, image: &str) -> Result<Duration> {
    let begun = now();
    for number in 0..count {
        let name = format!("burst-{number}");
        agent.place(&name, &manifest(&name, image, ""))?;
    }
    let seen = runtime.wait_started("burst-", count, 0)?;
    let last = seen.iter().map(|one| one.started_at).max().context("containers")?;
    Ok(nanos(last - begun))
}

fn clear(agent: &Agent, runtime: &Runtime) -> Result<()> {
    agent.withdraw_all()?;
    runtime.wait_gone("burst-")
}

pub fn manifest(name: &str, image: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  hostNetwork: true\n  \
         terminationGracePeriodSeconds: 5\n  containers:\n  - name: main\n    image: {image}\n    \
         imagePullPolicy: IfNotPresent\n{rest}"
    )
}

fn nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn median(mut times: Vec<Duration>) -> Result<Duration> {
    times.sort();
    times.get(times.len() / 2).copied().context("at least one time")
}
