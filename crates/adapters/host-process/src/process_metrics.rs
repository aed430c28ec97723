//! The standard process metrics: memory, CPU time, descriptors, start time.
//!
//! Rule: read from `/proc` at each scrape, not cached; what cannot be read is left out. Names are
//! those of Prometheus' client libraries.

use std::io;
use std::path::{Path, PathBuf};

use ports::metrics::{MetricFamily, MetricKind, MetricSource, Sample};
use rustix::process::{Resource, getrlimit};

#[cfg(test)]
mod tests;

/// This process.
#[derive(Debug, Clone)]
pub struct ProcessMetrics {
    /// `/proc`
    processes: PathBuf,
}

impl Default for ProcessMetrics {
    fn default() -> Self {
        Self { processes: PathBuf::from("/proc") }
    }
}

/// Fields of `/proc/self/stat`, counted from zero after the program's name.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const STARTED_TICKS: usize = 19;
const VIRTUAL_BYTES: usize = 20;
const RESIDENT_PAGES: usize = 21;

impl ProcessMetrics {
    fn read(&self) -> io::Result<Vec<MetricFamily>> {
        let own = self.processes.join("self");
        let stat = std::fs::read(own.join("stat"))?;
        let stat = String::from_utf8_lossy(&stat);
        // A program may have brackets in its name.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = fields.split(' ').collect();
        let field = |at: usize| -> Option<f64> { fields.get(at)?.trim().parse().ok() };
        let ticks = number(rustix::param::clock_ticks_per_second());
        let seconds = |at: usize| Some(field(at)? / ticks);
        let times = || Some(seconds(USER_TICKS)? + seconds(SYSTEM_TICKS)?);
        let pages = number(u64::try_from(rustix::param::page_size()).unwrap_or(0));
        let open = std::fs::read_dir(own.join("fd")).map(Iterator::count);
        let open = open.ok().and_then(|count| u64::try_from(count).ok());
        let booted = booted(&self.processes);
        let gauge = |name, help, value: Option<f64>| family(name, help, MetricKind::Gauge, value);
        Ok(vec![
            family(
                "process_cpu_seconds_total",
                "Seconds of processor time that the process has used.",
                MetricKind::Counter,
                times(),
            ),
            gauge(
                "process_max_fds",
                "Descriptors that the process may have open.",
                getrlimit(Resource::Nofile).current.map(number),
            ),
            gauge("process_open_fds", "Descriptors that the process has open.", open.map(number)),
            gauge(
                "process_resident_memory_bytes",
                "Bytes of the process that are in memory.",
                field(RESIDENT_PAGES).map(|count| count * pages),
            ),
            gauge(
                "process_start_time_seconds",
                "When the process was started, in seconds since the epoch.",
                booted.and_then(|booted| Some(booted + seconds(STARTED_TICKS)?)),
            ),
            gauge(
                "process_virtual_memory_bytes",
                "Bytes of addresses that the process has.",
                field(VIRTUAL_BYTES),
            ),
        ])
    }
}

/// Boot time in seconds since the epoch.
fn booted(processes: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(processes.join("stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    value: Option<f64>,
) -> MetricFamily {
    let samples = value.map(|value| Sample { suffix: "", labels: Vec::new(), value });
    MetricFamily { name, help, kind, samples: samples.into_iter().collect() }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

impl MetricSource for ProcessMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        self.read().unwrap_or_default()
    }
}
