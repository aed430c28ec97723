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
    /// What the runtime itself needed meanwhile, where the agent leaves pods of others alone.
    pub bare: Option<Bare>,
}

/// What the runtime itself needs: medians.
#[derive(Debug)]
pub struct Bare {
    pub pod: Duration,
    pub create_and_start: Duration,
}

/// The calls without an agent, by turns with its pods: a runtime just started, a disk just filled or a
/// machine that is busy for a while then slow both down alike.
struct Turns<'a> {
    runtime: &'a Runtime,
    logs: String,
    count: usize,
}

impl<'a> Turns<'a> {
    /// None beside an agent that would remove what it does not know.
    fn beside(kind: &Kind, bed: &Bed, runtime: &'a Runtime) -> Result<Option<Self>> {
        if kind.name != Kind::KEELSON {
            return Ok(None);
        }
        let logs = bed.make_folder("bare-logs")?.display().to_string();
        Ok(Some(Self { runtime, logs, count: 0 }))
    }

    /// One pod, gone again; the agent has none meanwhile. The time of all calls and of the last two.
    fn turn(&mut self, image: &str) -> Result<(Duration, Duration)> {
        self.count += 1;
        let name = format!("bare-{}", self.count);
        let times = self.runtime.bare_pod(&name, image, &self.logs)?;
        self.runtime.remove(&name)?;
        Ok(times)
    }
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
    let mut turns = Turns::beside(kind, bed, runtime)?;
    let (single, removal, pod) = singles(&agent, runtime, &images.quiet, turns.as_mut())?;
    say("crashes");
    let (crash, create_and_start) = crashes(&agent, runtime, &images.shell, turns.as_mut())?;
    let bare = pod.zip(create_and_start);
    let bare = bare.map(|(pod, create_and_start)| Bare { pod, create_and_start });
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
        bare,
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

/// Start and removal of a pod, and the bare calls for one.
fn singles(
    agent: &Agent,
    runtime: &Runtime,
    image: &str,
    mut turns: Option<&mut Turns<'_>>,
) -> Result<(Duration, Duration, Option<Duration>)> {
    let (mut starts, mut ends, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=SINGLES {
        let by_hand = turns.as_mut().map(|turns| turns.turn(image)).transpose()?;
        let name = format!("single-{round}");
        let begun = now();
        agent.place(&name, &manifest(&name, image, ""))?;
        let seen = runtime.wait_started(&name, 1, 0)?;
        let started = seen.iter().map(|one| one.started_at).max().context("a container")?;
        let removed = Instant::now();
        agent.withdraw(&name)?;
        runtime.wait_gone(&name)?;
        // The first of each warms up.
        if round > 0 {
            starts.push(nanos(started - begun));
            ends.push(removed.elapsed());
            bare.extend(by_hand.map(|(pod, _)| pod));
        }
    }
    Ok((median(starts)?, median(ends)?, median(bare).ok()))
}

/// From a crash to the next life, and the bare calls for one.
fn crashes(
    agent: &Agent,
    runtime: &Runtime,
    image: &str,
    mut turns: Option<&mut Turns<'_>>,
) -> Result<(Duration, Option<Duration>)> {
    let (mut times, mut bare) = (Vec::new(), Vec::new());
    for round in 0..CRASHES {
        let by_hand = turns.as_mut().map(|turns| turns.turn(image)).transpose()?;
        bare.extend(by_hand.map(|(_, create_and_start)| create_and_start));
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
        runtime.wait_gone("crash-")?;
    }
    Ok((median(times)?, median(bare).ok()))
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
