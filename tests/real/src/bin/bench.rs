//! `cargo xtask bench`: the agent and the reference kubelet in one bed, on one containerd, both
//! standalone and idle. Measures the time from start to the first healthy response, memory from
//! smaps, and CPU time from the kernel. Prints a table with ratios; absolute times of this run mean
//! nothing elsewhere.
//!
//! Runs inside a bed (`bed run -- bench KEELSON`). The table notes that features the agent lacks
//! cost it nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{self, Bed};
use node_testkit::parts;
use node_testkit::start::{Containerd, ContainerdOptions, get};

const STARTS: usize = 5;
const SETTLE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);
const HEALTH: ([u8; 4], u16) = ([127, 0, 0, 1], 10248);

struct AgentBenchResult {
    start: Duration,
    pss_kib: u64,
    private_dirty_kib: u64,
    idle_cpu: Duration,
}

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask bench")?;
    let keelson = std::env::args().nth(1).context("usage: bench KEELSON")?;
    let containerd = Containerd::start(&bed, &ContainerdOptions::default())?;
    let config = configuration(&bed, &containerd.endpoint())?;
    let ours = measure(&bed, "keelson", &[&keelson, "kubelet"], &config)?;
    let kubelet = parts::program("kubelet", "kubelet")?;
    let theirs = measure(&bed, "reference", &[&kubelet.to_string_lossy()], &config)?;
    print_table(&ours, &theirs);
    Ok(())
}

fn configuration(bed: &Bed, endpoint: &str) -> Result<PathBuf> {
    let path = bed.dir().join("bench.yaml");
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         authentication: {{webhook: {{enabled: false}}, anonymous: {{enabled: true}}}}\n\
         authorization: {{mode: AlwaysAllow}}\nfailCgroupV1: false\nfailSwapOn: false\n\
         containerRuntimeEndpoint: {endpoint}\n"
    );
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn measure(bed: &Bed, name: &str, program: &[&str], config: &Path) -> Result<AgentBenchResult> {
    let mut starts = Vec::new();
    for round in 0..STARTS {
        eprintln!("{name}: start {} of {STARTS}", round + 1);
        let (mut agent, time) = start(bed, name, program, config)?;
        starts.push(time);
        end(&mut agent)?;
    }
    starts.sort();
    eprintln!("{name}: idle for {} s", (SETTLE + IDLE).as_secs());
    let (mut agent, _) = start(bed, name, program, config)?;
    sleep(SETTLE);
    let process = agent.id();
    let before = cpu_time(process)?;
    sleep(IDLE);
    let idle_cpu = cpu_time(process)?.saturating_sub(before);
    let memory = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let kib = |field: &str| -> Result<u64> {
        let line = memory.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.context("a field of smaps_rollup")?.parse().context("a number of KiB")
    };
    let measured = AgentBenchResult {
        start: starts[STARTS / 2],
        pss_kib: kib("Pss:")?,
        private_dirty_kib: kib("Private_Dirty:")?,
        idle_cpu,
    };
    end(&mut agent)?;
    Ok(measured)
}

/// Starts an agent and waits for its first healthy answer.
fn start(bed: &Bed, name: &str, program: &[&str], config: &Path) -> Result<(Child, Duration)> {
    let log = fs::File::create(bed.logs().join(format!("{name}.log")))?;
    let (first, rest) = program.split_first().context("a program")?;
    let begun = Instant::now();
    let mut agent = Command::new(first)
        .args(rest)
        .arg(format!("--config={}", config.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("start {first}"))?;
    while begun.elapsed() < Duration::from_secs(60) {
        if get(HEALTH.into(), "/healthz").is_ok_and(|answer| answer.status == 200) {
            return Ok((agent, begun.elapsed()));
        }
        ensure!(agent.try_wait()?.is_none(), "{name} ended before it was healthy");
        sleep(Duration::from_millis(1));
    }
    bail!("{name} was not healthy within a minute")
}

fn end(agent: &mut Child) -> Result<()> {
    agent.kill()?;
    agent.wait()?;
    Ok(())
}

/// User and system time of a process and all its threads, in the kernel's clock ticks.
fn cpu_time(process: u32) -> Result<Duration> {
    const TICKS_A_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> =
        stat.rsplit(") ").next().context("its fields")?.split_whitespace().collect();
    let ticks = |at: usize| -> Result<u64> { Ok(fields.get(at).context("a field")?.parse()?) };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / TICKS_A_SECOND))
}

fn print_table(ours: &AgentBenchResult, theirs: &AgentBenchResult) {
    let row = |name: &str, ours: f64, theirs: f64, unit: &str| {
        println!("{name:<28} {ours:>10.1} {theirs:>10.1} {unit:<4} {:>8.3}", ours / theirs);
    };
    println!("{:<28} {:>10} {:>10} {:<4} {:>8}", "", "keelson", "reference", "", "ratio");
    row("start to healthy, median", millis(ours.start), millis(theirs.start), "ms");
    row("PSS, idle", ours.pss_kib as f64, theirs.pss_kib as f64, "KiB");
    row(
        "Private_Dirty, idle",
        ours.private_dirty_kib as f64,
        theirs.private_dirty_kib as f64,
        "KiB",
    );
    row("CPU time in 30 s idle", millis(ours.idle_cpu), millis(theirs.idle_cpu), "ms");
    println!("keelson does not run pods yet: these are the costs of what it has so far");
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
