//! What is measured of two runtimes, in turns, and in which order.
//!
//! Rule: within a turn one runtime does a thing and then the other does the same; the first one
//! alternates from turn to turn. Memory is measured when both are idle.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::images as known;

use super::calls::{BenchNetwork, BenchPod, CriConnection};
use super::images::{LARGE, LINES, LINES_BYTES};
use super::memory::{self, ProcessMemory};
use super::plugins::TimedPlugins;
use crate::promises::PairedSamples;

/// The size of a run; a small one only shows that the benchmark works.
#[derive(Debug, Clone, Copy)]
pub struct BenchSize {
    pub singles: usize,
    pub batches: usize,
    pub pods: usize,
    pub execs: usize,
    pub logs: usize,
    pub log_files: usize,
    pub pulls: usize,
    pub layers: usize,
    pub layer_mebibytes: usize,
    /// The pause until both are idle.
    pub settle: Duration,
}

impl BenchSize {
    pub const WHOLE: Self = Self {
        singles: 30,
        batches: 6,
        pods: 30,
        execs: 100,
        logs: 3,
        log_files: 64,
        pulls: 3,
        layers: 5,
        layer_mebibytes: 100,
        settle: Duration::from_secs(40),
    };
    pub const SMALL: Self = Self {
        singles: 3,
        batches: 1,
        pods: 3,
        execs: 5,
        logs: 1,
        log_files: 2,
        pulls: 1,
        layers: 2,
        layer_mebibytes: 2,
        settle: Duration::from_secs(5),
    };
}

/// Names of a runtime's processes.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeNames {
    pub server: &'static str,
    pub per_pod: &'static str,
    /// The cgroup of its pods.
    pub group: &'static str,
}

/// A runtime that is measured.
#[derive(Debug)]
pub struct MeasuredRuntime {
    pub runtime: CriConnection,
    pub names: RuntimeNames,
}

/// One value for each runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct Both<T> {
    pub ours: T,
    pub theirs: T,
}

/// Milliseconds with one kind of network.
#[derive(Debug, Default)]
pub struct Times {
    pub sandbox: PairedSamples,
    pub create: PairedSamples,
    pub start: PairedSamples,
    pub whole: PairedSamples,
    /// From the first call to the last response of eight pods at once.
    pub eight: PairedSamples,
    pub removal: PairedSamples,
    /// Of `whole`: the plugins' own time, and the rest. Empty without plugins.
    pub of_plugins: PairedSamples,
    pub rest: PairedSamples,
    /// The same of a pod among eight, on average; it includes the time that each waits for others.
    pub of_plugins_among_eight: PairedSamples,
    pub rest_among_eight: PairedSamples,
}

#[derive(Debug)]
pub struct CriBenchResult {
    pub host: Times,
    pub plugins: Times,
    pub server_idle: Both<ProcessMemory>,
    pub server: Both<ProcessMemory>,
    /// Sums over all pods.
    pub per_pod: Both<ProcessMemory>,
    /// What else runs for each pod and is not a container: the pause processes.
    pub pauses: Both<ProcessMemory>,
    pub pods: usize,
    /// Milliseconds.
    pub exec: PairedSamples,
    /// Megabytes per second of a single container.
    pub log_rate: PairedSamples,
    /// Milliseconds.
    pub pull: PairedSamples,
}

const PAUSE: (&str, &[&str]) = (known::PAUSE, &[]);
const SLEEP: (&str, &[&str]) = (known::BUSYBOX, &["sleep", "10000"]);
const AT_ONCE: usize = 8;
/// The pause before each measurement.
const PAUSE_BEFORE_EACH: Duration = Duration::from_millis(100);

pub async fn both(
    sides: &Both<MeasuredRuntime>,
    plugins: &TimedPlugins,
    size: BenchSize,
) -> Result<CriBenchResult> {
    eprintln!("pods on the host's network");
    let host = times(sides, None, size).await?;
    eprintln!("pods on the plugins' network");
    let plugins = times(sides, Some(plugins), size).await?;
    eprintln!("memory");
    tokio::time::sleep(size.settle).await;
    let server_idle = sides.each(|side| memory::of(side.names.server))?;
    let pods = many(sides, size.pods).await?;
    tokio::time::sleep(size.settle).await;
    let server = sides.each(|side| memory::of(side.names.server))?;
    let per_pod = sides.each(|side| memory::of(side.names.per_pod))?;
    // Each pod's own program is the shell's here, so what is called pause belongs to the runtime.
    let pauses = sides.each(|side| memory::of_group("pause", side.names.group))?;
    for (side, server, per_pod) in
        [(&sides.ours, server.ours, per_pod.ours), (&sides.theirs, server.theirs, per_pod.theirs)]
    {
        let RuntimeNames { server: name, per_pod: each, .. } = side.names;
        ensure!(server.processes == 1, "{} processes named {name}", server.processes);
        ensure!(per_pod.processes > 0, "no process named {each}");
    }
    for pod in pods {
        sides.ours.runtime.remove(&pod.ours).await?;
        sides.theirs.runtime.remove(&pod.theirs).await?;
    }
    eprintln!("exec");
    let exec = execs(sides, size.execs).await?;
    eprintln!("log");
    let mut log_rate = PairedSamples::default();
    for turn in 0..size.logs {
        let rate = sides.turn(turn, async |side| logged(&side.runtime, turn, size.log_files).await);
        let Both { ours, theirs } = rate.await?;
        log_rate.push(ours, theirs);
    }
    eprintln!("pull");
    let mut pull = PairedSamples::default();
    for turn in 0..size.pulls {
        let took = sides.turn(turn, async |side| side.runtime.pull(LARGE).await).await?;
        pull.push(millis(took.ours), millis(took.theirs));
    }
    let pods = size.pods;
    Ok(CriBenchResult {
        host,
        plugins,
        server_idle,
        server,
        per_pod,
        pauses,
        pods,
        exec,
        log_rate,
        pull,
    })
}

impl Both<MeasuredRuntime> {
    /// The same for each runtime, one directly after the other.
    async fn turn<T>(
        &self,
        turn: usize,
        mut measure: impl AsyncFnMut(&MeasuredRuntime) -> Result<T>,
    ) -> Result<Both<T>> {
        let mut measure = async |side| {
            // What the other one still does after its answer is not this one's.
            tokio::time::sleep(PAUSE_BEFORE_EACH).await;
            measure(side).await
        };
        if turn.is_multiple_of(2) {
            let ours = measure(&self.ours).await?;
            Ok(Both { ours, theirs: measure(&self.theirs).await? })
        } else {
            let theirs = measure(&self.theirs).await?;
            Ok(Both { ours: measure(&self.ours).await?, theirs })
        }
    }

    fn each<T>(&self, look: impl Fn(&MeasuredRuntime) -> Result<T>) -> Result<Both<T>> {
        Ok(Both { ours: look(&self.ours)?, theirs: look(&self.theirs)? })
    }
}

/// Without plugins, pods are on the host's network.
async fn times(
    sides: &Both<MeasuredRuntime>,
    plugins: Option<&TimedPlugins>,
    size: BenchSize,
) -> Result<Times> {
    let network = if plugins.is_some() { BenchNetwork::Plugins } else { BenchNetwork::Host };
    let mut times = Times::default();
    for turn in 0..=size.singles {
        let name = format!("single-{network:?}-{turn}");
        let single = async |side: &MeasuredRuntime| {
            let pod = side.runtime.pod(&name, network, PAUSE).await?;
            let removal = side.runtime.remove(&pod).await?;
            Ok((pod, removal))
        };
        let Both { ours, theirs } = sides.turn(turn, single).await?;
        // The first warms up the runtimes.
        if turn == 0 {
            continue;
        }
        let (mine, other) = (ours.0.took, theirs.0.took);
        times.sandbox.push(millis(mine.sandbox), millis(other.sandbox));
        times.create.push(millis(mine.create), millis(other.create));
        times.start.push(millis(mine.start), millis(other.start));
        times.whole.push(millis(mine.whole()), millis(other.whole()));
        times.removal.push(millis(ours.1), millis(theirs.1));
        if let Some(plugins) = plugins {
            let (mine, other) =
                (split_times(plugins, &[ours.0])?, split_times(plugins, &[theirs.0])?);
            times.of_plugins.push(mine.plugins, other.plugins);
            times.rest.push(mine.rest, other.rest);
        }
    }
    for turn in 0..size.batches {
        let batch = async |side: &MeasuredRuntime| eight(&side.runtime, network, turn).await;
        let Both { ours, theirs } = sides.turn(turn, batch).await?;
        times.eight.push(millis(ours.0), millis(theirs.0));
        if let Some(plugins) = plugins {
            let (mine, other) = (split_times(plugins, &ours.1)?, split_times(plugins, &theirs.1)?);
            times.of_plugins_among_eight.push(mine.plugins, other.plugins);
            times.rest_among_eight.push(mine.rest, other.rest);
        }
    }
    Ok(times)
}

/// The time of a pod on average, in milliseconds: the plugins' own, and the rest.
struct PodTimeSplit {
    plugins: f64,
    rest: f64,
}

fn split_times(plugins: &TimedPlugins, pods: &[BenchPod]) -> Result<PodTimeSplit> {
    let mut sum = PodTimeSplit { plugins: 0.0, rest: 0.0 };
    for pod in pods {
        let took = plugins.of_adding(&pod.sandbox)?;
        let whole = pod.took.whole();
        ensure!(took < whole, "plugins took {took:?} of {whole:?}");
        sum.plugins += millis(took);
        sum.rest += millis(whole - took);
    }
    let count = pods.len() as f64;
    Ok(PodTimeSplit { plugins: sum.plugins / count, rest: sum.rest / count })
}

/// Eight pods at once, and the time until all of them run.
async fn eight(
    runtime: &CriConnection,
    network: BenchNetwork,
    batch: usize,
) -> Result<(Duration, Vec<BenchPod>)> {
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..AT_ONCE {
        let (runtime, name) = (runtime.clone(), format!("batch-{network:?}-{batch}-{number}"));
        tasks.push(tokio::spawn(async move { runtime.pod(&name, network, PAUSE).await }));
    }
    let mut pods = Vec::new();
    for task in tasks {
        pods.push(task.await??);
    }
    let took = begun.elapsed();
    for pod in &pods {
        runtime.remove(pod).await?;
    }
    Ok((took, pods))
}

async fn many(sides: &Both<MeasuredRuntime>, count: usize) -> Result<Vec<Both<BenchPod>>> {
    let mut pods = Vec::new();
    for turn in 0..count {
        let name = format!("many-{turn}");
        let pod =
            async |side: &MeasuredRuntime| side.runtime.pod(&name, BenchNetwork::Host, SLEEP).await;
        pods.push(sides.turn(turn, pod).await?);
    }
    Ok(pods)
}

async fn execs(sides: &Both<MeasuredRuntime>, count: usize) -> Result<PairedSamples> {
    let Both { ours, theirs } = sides
        .turn(0, async |side| {
            let pod = side.runtime.pod("exec", BenchNetwork::Host, SLEEP).await?;
            side.runtime.exec(&pod).await?;
            Ok(pod)
        })
        .await?;
    let pod = |side: &MeasuredRuntime| {
        if side.names.server == sides.ours.names.server { &ours } else { &theirs }
    };
    let mut taken = PairedSamples::default();
    for turn in 0..count {
        let took = sides.turn(turn, async |side| side.runtime.exec(pod(side)).await).await?;
        taken.push(millis(took.ours), millis(took.theirs));
    }
    sides.turn(0, async |side| side.runtime.remove(pod(side)).await).await?;
    Ok(taken)
}

/// Megabytes per second from the container's start until everything is in its log.
async fn logged(runtime: &CriConnection, turn: usize, files: usize) -> Result<f64> {
    let script = format!("for i in $(seq {files}); do cat /lines; done");
    let name = format!("logs-{turn}");
    let begun = Instant::now();
    let pod = runtime.pod(&name, BenchNetwork::Host, (LINES, &["sh", "-c", &script])).await?;
    runtime.until_exited(&pod).await?;
    let took = begun.elapsed() - pod.took.sandbox - pod.took.create;
    let text = std::fs::read(&pod.log).with_context(|| pod.log.display().to_string())?;
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let expected = LINES_BYTES / 100 * files;
    ensure!(lines == expected, "{lines} of {expected} lines are in the log");
    runtime.remove(&pod).await?;
    std::fs::remove_file(&pod.log).with_context(|| pod.log.display().to_string())?;
    Ok((expected * 100) as f64 / 1e6 / took.as_secs_f64())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
