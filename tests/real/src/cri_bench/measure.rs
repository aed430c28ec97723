//! What is measured of one runtime, and in which order.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::images as known;

use super::calls::{Network, Pod, Runtime};
use super::images::{LARGE, LINES, LINES_BYTES};
use super::memory::{self, Memory};

/// How much is done; a small run only shows that it works.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub singles: usize,
    pub batches: usize,
    pub pods: usize,
    pub execs: usize,
    pub log_files: usize,
    pub pulls: usize,
    pub layers: usize,
    pub layer_mebibytes: usize,
}

impl Size {
    pub const WHOLE: Self = Self {
        singles: 30,
        batches: 6,
        pods: 30,
        execs: 100,
        log_files: 64,
        pulls: 3,
        layers: 5,
        layer_mebibytes: 100,
    };
    pub const SMALL: Self = Self {
        singles: 3,
        batches: 1,
        pods: 3,
        execs: 5,
        log_files: 2,
        pulls: 1,
        layers: 2,
        layer_mebibytes: 2,
    };
}

/// Names of its processes.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub server: &'static str,
    pub per_pod: &'static str,
}

/// Medians of one kind of network.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub sandbox: Duration,
    pub create: Duration,
    pub start: Duration,
    pub whole: Duration,
    /// From the first call to the last answer of eight pods at once.
    pub eight: Duration,
    pub removal: Duration,
}

/// One runtime's numbers.
#[derive(Debug)]
pub struct Measured {
    pub host: Times,
    pub plugins: Times,
    pub server_idle: Memory,
    pub server: Memory,
    /// Sums over all pods.
    pub per_pod: Memory,
    /// What else runs for each pod and is no container: the pause programs.
    pub pauses: Memory,
    pub pods: usize,
    pub exec: Duration,
    /// Bytes of a container's own in a second.
    pub log_rate: f64,
    pub pull: Duration,
}

const PAUSE: (&str, &[&str]) = (known::PAUSE, &[]);
const SLEEP: (&str, &[&str]) = (known::BUSYBOX, &["sleep", "10000"]);
const AT_ONCE: usize = 8;
/// Until a runtime is at rest.
const SETTLE: Duration = Duration::from_secs(40);

pub async fn runtime(socket: &Path, logs: &Path, names: Names, size: Size) -> Result<Measured> {
    let runtime = Runtime::connect(socket, logs).await?;
    let say = |what: &str| eprintln!("{}: {what}", names.server);
    say("pods on the host's network");
    let host = times(&runtime, Network::Host, size).await?;
    say("pods on the plugins' network");
    let plugins = times(&runtime, Network::Plugins, size).await?;
    say("memory");
    tokio::time::sleep(SETTLE).await;
    let server_idle = memory::of(names.server)?;
    let pods = many(&runtime, size.pods).await?;
    tokio::time::sleep(SETTLE).await;
    let (server, per_pod) = (memory::of(names.server)?, memory::of(names.per_pod)?);
    ensure!(server.processes == 1, "{} processes named {}", server.processes, names.server);
    ensure!(per_pod.processes > 0, "no process named {}", names.per_pod);
    // Each pod's own program is the shell's here, so what is called pause belongs to the runtime.
    let pauses = memory::of("pause")?;
    for pod in &pods {
        runtime.remove(pod).await?;
    }
    say("exec");
    let exec = execs(&runtime, size.execs).await?;
    say("log");
    let log_rate = logged(&runtime, size.log_files).await?;
    say("pull");
    let mut pulls = Vec::new();
    for _ in 0..size.pulls {
        pulls.push(runtime.pull(LARGE).await?);
    }
    let pull = median(pulls)?;
    Ok(Measured {
        host,
        plugins,
        server_idle,
        server,
        per_pod,
        pauses,
        pods: size.pods,
        exec,
        log_rate,
        pull,
    })
}

async fn times(runtime: &Runtime, network: Network, size: Size) -> Result<Times> {
    let (mut taken, mut removals, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=size.singles {
        let pod = runtime.pod(&format!("single-{network:?}-{round}"), network, PAUSE).await?;
        let removal = runtime.remove(&pod).await?;
        // The first warms up the runtime.
        if round > 0 {
            taken.push(pod.took);
            removals.push(removal);
        }
    }
    for batch in 0..size.batches {
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
        batches.push(begun.elapsed());
        for pod in &pods {
            runtime.remove(pod).await?;
        }
    }
    Ok(Times {
        sandbox: median(taken.iter().map(|took| took.sandbox).collect())?,
        create: median(taken.iter().map(|took| took.create).collect())?,
        start: median(taken.iter().map(|took| took.start).collect())?,
        whole: median(taken.iter().map(super::calls::Started::whole).collect())?,
        eight: median(batches)?,
        removal: median(removals)?,
    })
}

async fn many(runtime: &Runtime, count: usize) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    for number in 0..count {
        pods.push(runtime.pod(&format!("many-{number}"), Network::Host, SLEEP).await?);
    }
    Ok(pods)
}

async fn execs(runtime: &Runtime, count: usize) -> Result<Duration> {
    let pod = runtime.pod("exec", Network::Host, SLEEP).await?;
    runtime.exec(&pod).await?;
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(runtime.exec(&pod).await?);
    }
    runtime.remove(&pod).await?;
    median(taken)
}

/// Bytes in a second from the container's start until all is in its log.
async fn logged(runtime: &Runtime, files: usize) -> Result<f64> {
    let script = format!("for i in $(seq {files}); do cat /lines; done");
    let begun = Instant::now();
    let pod = runtime.pod("logs", Network::Host, (LINES, &["sh", "-c", &script])).await?;
    runtime.until_exited(&pod).await?;
    let took = begun.elapsed() - pod.took.sandbox - pod.took.create;
    let text = std::fs::read(&pod.log).with_context(|| pod.log.display().to_string())?;
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let expected = LINES_BYTES / 100 * files;
    ensure!(lines == expected, "{lines} of {expected} lines are in the log");
    runtime.remove(&pod).await?;
    Ok((expected * 100) as f64 / took.as_secs_f64())
}

fn median(mut times: Vec<Duration>) -> Result<Duration> {
    times.sort();
    times.get(times.len() / 2).copied().context("at least one time")
}
