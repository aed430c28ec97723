//! Memory by process name, as the kernel counts it. A bed has its own PID namespace, so every
//! visible process belongs to the runtimes under measurement.

use std::fs;

use anyhow::{Context, Result};

/// In KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    pub processes: u64,
    pub pss: u64,
    pub private_dirty: u64,
}

/// The sum over the processes of this name.
pub fn of(name: &str) -> Result<ProcessMemory> {
    of_group(name, "")
}

/// The same, of those in this cgroup and below it.
pub fn of_group(name: &str, group: &str) -> Result<ProcessMemory> {
    let mut sum = ProcessMemory::default();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let read = |file: &str| fs::read_to_string(entry.path().join(file));
        // A process may end between two looks.
        let (Ok(comm), Ok(rollup)) = (read("comm"), read("smaps_rollup")) else { continue };
        let is_of_group = || read("cgroup").is_ok_and(|groups| groups.contains(group));
        if comm.trim_end() != name || !is_of_group() {
            continue;
        }
        sum.processes += 1;
        sum.pss += kib(&rollup, "Pss:")?;
        sum.private_dirty += kib(&rollup, "Private_Dirty:")?;
    }
    Ok(sum)
}

fn kib(rollup: &str, field: &str) -> Result<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.with_context(|| format!("{field} of smaps_rollup"))?.parse().context("KiB")
}
