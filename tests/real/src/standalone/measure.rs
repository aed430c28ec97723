//! The measurements of one agent.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use node_testkit::bed::Bed;

use super::agent::{AgentHome, AgentKind, AgentMemory, AgentProcess};
use super::bare::{self, Messages};
use super::runtime::{RuntimeObserver, now};
use crate::promises::PairedSamples;

const SETTLE: Duration = Duration::from_secs(15);
const SETTLE_BRIEFLY: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);
const SINGLES: usize = 15;
const CRASHES: usize = 9;

/// Index of the measured pod's messages.
const SINGLE: usize = 0;
const CRASHING: usize = 1;

/// Exits once, then stays: the first run leaves a mark in a volume of the pod.
const CRASHES_ONCE: &str =
    "    command: [sh, -c, 'test -e /mark/1 && exec sleep 1000; touch /mark/1; sleep 1; exit 1']
    volumeMounts: [{name: mark, mountPath: /mark}]
  volumes: [{name: mark, emptyDir: {}}]
";

/// The results of one agent.
#[derive(Debug)]
pub struct PodBenchResult {
    /// With 0, 30 and 110 pods.
    pub memory: [AgentMemory; 3],
    /// In an idle minute with 0, 30 and 110 pods.
    pub idle_cpu: [Duration; 3],
    /// From the manifest to the start of the container, one pod after another: the median.
    pub single: Duration,
    /// From the exit of a container to the start of its first successor: the median.
    pub crash: Duration,
    /// From the removal of the manifest to the pod's removal: the median.
    pub removal: Duration,
    /// The runtime's own times, if the agent leaves foreign pods alone.
    pub bare: Option<BareRuntimeTimes>,
}

/// Our times and the runtime's own for the same work, in milliseconds.
#[derive(Debug, Default)]
pub struct BareRuntimeTimes {
    pub pod: PairedSamples,
    /// From an exit to the next start; ten milliseconds are allowed in addition to the ratio.
    pub crash: PairedSamples,
    /// The same compared with creating and starting a container alone, which leaves out the time
    /// until the runtime reports the exit.
    pub create_and_start: PairedSamples,
}

/// The absolute allowance of the promise about crashes.
const ALLOWED: f64 = 10.0 / 1.15;

/// The calls without an agent, in turns with the agent's pods: a runtime that was just started, a
/// disk that was just filled or a machine that is busy for a while then slow both down alike.
struct ByHand<'a> {
    runtime: &'a RuntimeObserver,
    dir: PathBuf,
    /// For a single pod, and for one that crashes.
    messages: [Messages; 2],
    count: usize,
}

impl<'a> ByHand<'a> {
    /// `None` beside an agent that would remove foreign pods.
    fn beside(
        kind: &AgentKind,
        bed: &Bed,
        runtime: &'a RuntimeObserver,
        images: &BenchImages,
    ) -> Result<Option<Self>> {
        if kind.name != AgentKind::KEELSON {
            return Ok(None);
        }
        let quiet = manifest("quiet", &images.quiet, "");
        let shell = manifest("shell", &images.shell, CRASHES_ONCE);
        let recorded = bare::record(bed, &[("quiet", quiet), ("shell", shell)])?;
        let messages = recorded.try_into().ok().context("two pods")?;
        Ok(Some(Self { runtime, dir: bed.create_dir("bare")?, messages, count: 0 }))
    }

    fn next_name(&mut self) -> String {
        self.count += 1;
        format!("bare-{}", self.count)
    }

    /// One pod, removed again; the agent has none meanwhile.
    fn pod(&mut self) -> Result<Duration> {
        let name = self.next_name();
        self.runtime.bare_pod(&name, &self.messages[SINGLE], &self.dir)
    }

    fn crash(&mut self) -> Result<bare::Crash> {
        let name = self.next_name();
        self.runtime.bare_crash(&name, &self.messages[CRASHING], &self.dir)
    }
}

/// Only the times of single pods and of crashes, beside the bare calls.
pub fn times(
    bed: &Bed,
    runtime: &RuntimeObserver,
    kind: &AgentKind,
    endpoint: &str,
    images: &BenchImages,
) -> Result<BareRuntimeTimes> {
    let mut turns = ByHand::beside(kind, bed, runtime, images)?;
    let agent = AgentProcess::start(bed, kind, &AgentHome::new(bed, kind.name, endpoint)?)?;
    let mut bare = BareRuntimeTimes::default();
    singles(&agent, runtime, &images.quiet, (turns.as_mut(), &mut bare))?;
    crashes(&agent, runtime, &images.shell, (turns.as_mut(), &mut bare))?;
    agent.end()?;
    runtime.remove_all()?;
    Ok(bare)
}

pub fn agent(
    bed: &Bed,
    runtime: &RuntimeObserver,
    kind: &AgentKind,
    endpoint: &str,
    images: &BenchImages,
) -> Result<PodBenchResult> {
    let mut turns = ByHand::beside(kind, bed, runtime, images)?;
    let agent = AgentProcess::start(bed, kind, &AgentHome::new(bed, kind.name, endpoint)?)?;
    let log_step = |what: &str| eprintln!("{}: {what}", kind.name);
    log_step("idle without pods");
    let none = idle(&agent)?;
    log_step("pods one by one");
    let mut bare = BareRuntimeTimes::default();
    let (single, removal) = singles(&agent, runtime, &images.quiet, (turns.as_mut(), &mut bare))?;
    log_step("crashes");
    let crash = crashes(&agent, runtime, &images.shell, (turns.as_mut(), &mut bare))?;
    let bare = turns.is_some().then_some(bare);
    log_step("30 at once");
    burst(&agent, runtime, 30, &images.quiet)?;
    let thirty = idle(&agent)?;
    clear(&agent, runtime)?;
    log_step("110 at once");
    burst(&agent, runtime, 110, &images.quiet)?;
    let many = idle(&agent)?;
    clear(&agent, runtime)?;
    agent.end()?;
    runtime.remove_all()?;
    Ok(PodBenchResult {
        memory: [none.0, thirty.0, many.0],
        idle_cpu: [none.1, thirty.1, many.1],
        single,
        crash,
        removal,
        bare,
    })
}

/// Images that both agents run.
#[derive(Debug)]
pub struct BenchImages {
    /// Does nothing, exits at once on SIGTERM.
    pub quiet: String,
    /// Has a shell.
    pub shell: String,
}

fn idle(agent: &AgentProcess) -> Result<(AgentMemory, Duration)> {
    sleep(SETTLE);
    let before = agent.cpu_time()?;
    sleep(IDLE);
    let used = agent.cpu_time()?.saturating_sub(before);
    Ok((agent.memory()?, used))
}

/// Start and removal of a pod, and the bare calls for one.
fn singles(
    agent: &AgentProcess,
    runtime: &RuntimeObserver,
    image: &str,
    (mut by_hand, bare): (Option<&mut ByHand<'_>>, &mut BareRuntimeTimes),
) -> Result<(Duration, Duration)> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for round in 0..=SINGLES {
        let beside = by_hand.as_mut().map(|by_hand| by_hand.pod()).transpose()?;
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
            if let Some(beside) = beside {
                bare.pod.push(millis(nanos(started - begun)), millis(beside));
            }
        }
    }
    Ok((median(starts)?, median(ends)?))
}

/// From a crash to the next start, and the bare calls for one.
fn crashes(
    agent: &AgentProcess,
    runtime: &RuntimeObserver,
    image: &str,
    (mut by_hand, bare): (Option<&mut ByHand<'_>>, &mut BareRuntimeTimes),
) -> Result<Duration> {
    let mut times = Vec::new();
    for round in 0..CRASHES {
        let beside = by_hand.as_mut().map(|by_hand| by_hand.crash()).transpose()?;
        let name = format!("crash-{round}");
        agent.place(&name, &manifest(&name, image, CRASHES_ONCE))?;
        runtime.wait_started(&name, 1, 1)?;
        let seen = runtime.containers(&name)?;
        let ended = seen.iter().find(|one| one.attempt == 0).context("the first life")?;
        let again = seen.iter().find(|one| one.attempt == 1).context("the second life")?;
        let took = nanos(again.started_at - ended.finished_at);
        times.push(took);
        if let Some(beside) = beside {
            bare.crash.push(millis(took), millis(beside.whole) + ALLOWED);
            bare.create_and_start.push(millis(took), millis(beside.create_and_start) + ALLOWED);
        }
        agent.withdraw(&name)?;
        runtime.wait_gone("crash-")?;
    }
    median(times)
}

fn burst(
    agent: &AgentProcess,
    runtime: &RuntimeObserver,
    count: usize,
    image: &str,
) -> Result<Duration> {
    let begun = now();
    for number in 0..count {
        let name = format!("burst-{number}");
        agent.place(&name, &manifest(&name, image, ""))?;
    }
    let seen = runtime.wait_started("burst-", count, 0)?;
    let last = seen.iter().map(|one| one.started_at).max().context("containers")?;
    Ok(nanos(last - begun))
}

/// How many pods start at once, and how often this is measured.
#[derive(Debug, Clone, Copy)]
pub struct BurstPlan<'a> {
    pub images: &'a BenchImages,
    pub pods: usize,
    pub turns: usize,
}

/// From the manifests to the start of the last container, in milliseconds: many pods at once under
/// one agent and then under the other, each just started, in turns. A machine that is slow for a
/// while is slow for both.
pub fn bursts(
    bed: &Bed,
    runtime: &RuntimeObserver,
    kinds: [&AgentKind; 2],
    endpoint: &str,
    plan: BurstPlan<'_>,
) -> Result<PairedSamples> {
    let BurstPlan { images, pods, turns } = plan;
    let mut seen = PairedSamples::default();
    for turn in 0..turns {
        let mut took = [0.0; 2];
        for (kind, took) in kinds.iter().zip(&mut took) {
            eprintln!("{}: {pods} at once, turn {}", kind.name, turn + 1);
            let home = AgentHome::new(bed, &format!("{}-{pods}-{turn}", kind.name), endpoint)?;
            let agent = AgentProcess::start(bed, kind, &home)?;
            sleep(SETTLE_BRIEFLY);
            *took = millis(burst(&agent, runtime, pods, &images.quiet)?);
            clear(&agent, runtime)?;
            agent.end()?;
            runtime.remove_all()?;
        }
        seen.push(took[0], took[1]);
    }
    Ok(seen)
}

fn clear(agent: &AgentProcess, runtime: &RuntimeObserver) -> Result<()> {
    agent.withdraw_all()?;
    runtime.wait_gone("burst-")
}

pub fn manifest(name: &str, image: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: {name}}}\nspec:\n  hostNetwork: true\n  \
         terminationGracePeriodSeconds: 5\n  containers:\n  - name: main\n    image: {image}\n    \
         imagePullPolicy: IfNotPresent\n{rest}"
    )
}

fn nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn median(mut times: Vec<Duration>) -> Result<Duration> {
    times.sort();
    times.get(times.len() / 2).copied().context("at least one time")
}
