//! The memory and CPU time of a process, from the kernel.
//!
//! Rule: memory from smaps_rollup (PSS and Private_Dirty), CPU time from stat; never a sampled
//! share.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The kernel's clock ticks per second.
const TICKS: u64 = 100;

/// Memory in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ControllerMemory {
    pub pss: u64,
    pub private_dirty: u64,
}

/// The memory of a process now.
///
/// # Errors
/// When the process has ended.
pub fn memory(process: u32) -> Result<ControllerMemory> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))
        .with_context(|| format!("memory of process {process}"))?;
    let kib = |field: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.with_context(|| field.to_owned())?.parse().with_context(|| field.to_owned())
    };
    Ok(ControllerMemory { pss: kib("Pss:")?, private_dirty: kib("Private_Dirty:")? })
}

/// User and system time so far, of all threads.
///
/// # Errors
/// When the process has ended.
pub fn cpu_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))
        .with_context(|| format!("CPU time of process {process}"))?;
    let fields: Vec<&str> =
        stat.rsplit(") ").next().context("its fields")?.split_whitespace().collect();
    let ticks = |at: usize| -> Result<u64> { Ok(fields.get(at).context("a field")?.parse()?) };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / TICKS))
}
