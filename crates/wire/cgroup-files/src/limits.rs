//! Writes a cgroup's limits in the format of cgroup version 1 or 2.
//!
//! Rule: values are those of an OCI runtime's resources (shares, quota, memory plus swap), so that
//! a caller need not know the version; an unset limit is not touched; one that cannot be set is an
//! error, never skipped. Does not choose values.
//!
//! upstream: opencontainers/cgroups fs/memory.go, fs2/*.go, utils.go (the meaning of each value).

use std::collections::BTreeMap;
use std::path::Path;

use crate::devices::DeviceRule;
use crate::error::{CgroupError, Result, read_number, write};
use crate::group::Cgroup;
use crate::hierarchy::{CgroupVersion, Controller};

#[cfg(test)]
mod tests;

/// Version 1 reports "no limit" as `i64::MAX` rounded down to whole pages; limits from here on
/// count as none.
const V1_UNLIMITED: i64 = i64::MAX - (1 << 20);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupResources {
    /// Version 1's shares, 2 to 262144; converted to a weight on version 2.
    pub cpu_shares: Option<u64>,
    /// Microseconds per period; a negative value means no limit.
    pub cpu_quota: Option<i64>,
    /// Microseconds.
    pub cpu_period: Option<u64>,
    pub cpu_idle: Option<bool>,
    /// Lists such as `0-3,7`.
    pub cpuset_cpus: Option<String>,
    pub cpuset_mems: Option<String>,
    /// Bytes; a negative value means no limit.
    pub memory: Option<i64>,
    /// Memory and swap together in bytes; a negative value means no limit.
    pub memory_and_swap: Option<i64>,
    /// Bytes; best-effort protection from reclaim.
    pub memory_reservation: Option<i64>,
    /// A value below 1 means no limit.
    pub pids: Option<i64>,
    pub huge_pages: Vec<HugePageLimit>,
    /// Version 2 only: values by file name.
    pub unified: BTreeMap<String, String>,
    /// Version 1 only, in the order in which they are written. Version 2 needs a BPF program.
    pub devices: Vec<DeviceRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugePageLimit {
    /// As the files spell it: `2MB`, `1GB`.
    pub page_size: String,
    pub bytes: u64,
}

impl Cgroup {
    /// Applies the limits that are set.
    pub fn apply(&self, limits: &CgroupResources) -> Result<()> {
        match self.hierarchy().version() {
            CgroupVersion::V1 => self.apply_v1(limits),
            CgroupVersion::V2 => self.apply_v2(limits),
        }
    }

    fn set(&self, controller: Controller, file: &str, value: &str) -> Result<()> {
        write(&self.dir_for(controller, file)?.join(file), value)
    }

    fn set_if_some(&self, controller: Controller, file: &str, value: Option<String>) -> Result<()> {
        value.map_or(Ok(()), |value| self.set(controller, file, &value))
    }

    fn apply_v1(&self, limits: &CgroupResources) -> Result<()> {
        if let Some(file) = limits.unified.keys().next() {
            return Err(CgroupError::NoController {
                controller: "unified (version 2)",
                needed_for: file.clone(),
            });
        }
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        self.set_if_some(Controller::Cpu, "cpu.shares", text(limits.cpu_shares.map(|s| s.max(2))))?;
        self.set_cpu_time_v1(limits)?;
        let idle = limits.cpu_idle.map(|idle| u8::from(idle).to_string());
        self.set_if_some(Controller::Cpu, "cpu.idle", idle)?;
        self.apply_cpu_set(limits)?;
        self.set_memory_v1(limits)?;
        let reservation = limits.memory_reservation.map(|bytes| bytes.to_string());
        self.set_if_some(Controller::Memory, "memory.soft_limit_in_bytes", reservation)?;
        self.set_if_some(Controller::Pids, "pids.max", limits.pids.map(pids_text))?;
        for limit in &limits.huge_pages {
            let file = format!("hugetlb.{}.limit_in_bytes", limit.page_size);
            self.set(Controller::HugeTlb, &file, &limit.bytes.to_string())?;
            // Newer kernels account reservations separately.
            let reserved = format!("hugetlb.{}.rsvd.limit_in_bytes", limit.page_size);
            if self.dir(Controller::HugeTlb).is_some_and(|dir| dir.join(&reserved).exists()) {
                self.set(Controller::HugeTlb, &reserved, &limit.bytes.to_string())?;
            }
        }
        for rule in &limits.devices {
            let file = if rule.allow { "devices.allow" } else { "devices.deny" };
            self.set(Controller::Devices, file, &rule.v1_text())?;
        }
        Ok(())
    }

    /// The kernel checks a new period against the current quota, and the reverse. If it rejects the
    /// period, write the quota first and the period again.
    fn set_cpu_time_v1(&self, limits: &CgroupResources) -> Result<()> {
        let period =
            limits.cpu_period.filter(|period| *period != 0).map(|period| period.to_string());
        let quota =
            limits.cpu_quota.filter(|quota| *quota != 0).map(|quota| quota.max(-1).to_string());
        let period_is_set =
            self.set_if_some(Controller::Cpu, "cpu.cfs_period_us", period.clone()).is_ok();
        self.set_if_some(Controller::Cpu, "cpu.cfs_quota_us", quota)?;
        if period_is_set {
            return Ok(());
        }
        self.set_if_some(Controller::Cpu, "cpu.cfs_period_us", period)
    }

    /// The kernel requires `memory` to be at most `memsw` (memory plus swap) at all times, so
    /// `memsw` is written first when it grows and last when it shrinks.
    fn set_memory_v1(&self, limits: &CgroupResources) -> Result<()> {
        let Some(memory) = limits.memory.filter(|bytes| *bytes != 0) else { return Ok(()) };
        let dir = self.dir_for(Controller::Memory, "memory.limit_in_bytes")?;
        let memsw_file = dir.join("memory.memsw.limit_in_bytes");
        let memsw = limits.memory_and_swap.filter(|bytes| *bytes != 0);
        let memsw = memsw.or((memory < 0).then_some(-1)).filter(|_| memsw_file.exists());
        let set_memory = || write(&dir.join("memory.limit_in_bytes"), &memory.max(-1).to_string());
        let Some(memsw) = memsw else { return set_memory() };
        let set_memsw = || write(&memsw_file, &memsw.max(-1).to_string());
        let current = read_number(&memsw_file)?.unwrap_or(u64::MAX);
        let grows = u64::try_from(memsw).map_or(true, |memsw| memsw > current);
        if grows {
            set_memsw().and_then(|()| set_memory())
        } else {
            set_memory().and_then(|()| set_memsw())
        }
    }

    fn apply_cpu_set(&self, limits: &CgroupResources) -> Result<()> {
        let non_empty = |list: &Option<String>| list.clone().filter(|list| !list.is_empty());
        self.set_if_some(Controller::CpuSet, "cpuset.cpus", non_empty(&limits.cpuset_cpus))?;
        self.set_if_some(Controller::CpuSet, "cpuset.mems", non_empty(&limits.cpuset_mems))
    }

    fn apply_v2(&self, limits: &CgroupResources) -> Result<()> {
        if limits.cpu_idle == Some(true) {
            self.set(Controller::Cpu, "cpu.idle", "1")?;
        } else {
            if limits.cpu_idle == Some(false) {
                self.set(Controller::Cpu, "cpu.idle", "0")?;
            }
            let weight = limits.cpu_shares.filter(|shares| *shares != 0).map(weight_of_shares);
            self.set_if_some(
                Controller::Cpu,
                "cpu.weight",
                weight.map(|weight| weight.to_string()),
            )?;
        }
        self.set_if_some(Controller::Cpu, "cpu.max", cpu_max(limits))?;
        self.apply_cpu_set(limits)?;
        self.set_memory_v2(limits)?;
        self.set_if_some(Controller::Pids, "pids.max", limits.pids.map(pids_text))?;
        for limit in &limits.huge_pages {
            let file = format!("hugetlb.{}.max", limit.page_size);
            self.set(Controller::HugeTlb, &file, &limit.bytes.to_string())?;
            let reserved = format!("hugetlb.{}.rsvd.max", limit.page_size);
            if self.dir(Controller::HugeTlb).is_some_and(|dir| dir.join(&reserved).exists()) {
                self.set(Controller::HugeTlb, &reserved, &limit.bytes.to_string())?;
            }
        }
        for (file, value) in &limits.unified {
            if file.is_empty() || file.contains('/') || !file.contains('.') {
                return Err(CgroupError::BadPath(file.clone()));
            }
            let dir = self.dir_for(Controller::Memory, file)?;
            value.lines().try_for_each(|line| write(&dir.join(file), line))?;
        }
        Ok(())
    }

    fn set_memory_v2(&self, limits: &CgroupResources) -> Result<()> {
        let text = |bytes: i64| if bytes < 0 { "max".to_owned() } else { bytes.to_string() };
        if let Some(swap) = swap_without_memory(limits) {
            let dir = self.dir_for(Controller::Memory, "memory.swap.max")?;
            // A kernel without swap accounting has no such file; a limit of zero needs none.
            if dir.join("memory.swap.max").exists() || swap > 0 {
                write(&dir.join("memory.swap.max"), &text(swap))?;
            }
        }
        let memory = limits.memory.filter(|bytes| *bytes != 0);
        self.set_if_some(Controller::Memory, "memory.max", memory.map(text))?;
        let reservation = limits.memory_reservation.filter(|bytes| *bytes != 0);
        self.set_if_some(Controller::Memory, "memory.low", reservation.map(text))
    }

    /// The limits on memory and CPU time that are in force; `None` for no limit.
    pub fn current_limits(&self) -> Result<CgroupResources> {
        let (memory, time) = match self.hierarchy().version() {
            CgroupVersion::V2 => {
                let time = self.read_file(Controller::Cpu, "cpu.max")?.unwrap_or_default();
                (self.read_file(Controller::Memory, "memory.max")?, time)
            }
            CgroupVersion::V1 => {
                let read_cpu =
                    |file| self.read_file(Controller::Cpu, file).map(Option::unwrap_or_default);
                let (quota, period) =
                    (read_cpu("cpu.cfs_quota_us")?, read_cpu("cpu.cfs_period_us")?);
                let memory = self.read_file(Controller::Memory, "memory.limit_in_bytes")?;
                (memory, format!("{} {}", quota.trim(), period.trim()))
            }
        };
        let (quota, period) = time.trim().split_once(' ').unwrap_or_default();
        let cpu_quota = quota.parse().ok().filter(|quota| *quota > 0);
        Ok(CgroupResources {
            memory: memory
                .and_then(|text| text.trim().parse().ok())
                .filter(|bytes| *bytes < V1_UNLIMITED),
            cpu_quota,
            cpu_period: cpu_quota.and(period.parse().ok()),
            ..CgroupResources::default()
        })
    }

    /// Revokes version 1's default access to every device, so that rules start from nothing.
    pub fn deny_all_devices(&self) -> Result<()> {
        match self.hierarchy().version() {
            CgroupVersion::V1 => self.set(Controller::Devices, "devices.deny", "a"),
            CgroupVersion::V2 => Ok(()),
        }
    }

    /// The content of one file; `None` if it does not exist. For files that this crate has no
    /// function for.
    pub fn read_file(&self, controller: Controller, file: &str) -> Result<Option<String>> {
        let Some(dir) = self.dir(controller) else { return Ok(None) };
        crate::error::read_if_exists(&dir.join(Path::new(file)))
    }
}

fn pids_text(pids: i64) -> String {
    if pids < 1 { "max".to_owned() } else { pids.to_string() }
}

fn cpu_max(limits: &CgroupResources) -> Option<String> {
    let quota = limits.cpu_quota.filter(|quota| *quota != 0);
    let period = limits.cpu_period.filter(|period| *period != 0);
    if quota.is_none() && period.is_none() {
        return None;
    }
    let quota =
        quota.filter(|quota| *quota > 0).map_or("max".to_owned(), |quota| quota.to_string());
    Some(format!("{quota} {}", period.unwrap_or(100_000)))
}

/// Version 2 limits swap separately from memory; an OCI runtime's resources give their sum.
fn swap_without_memory(limits: &CgroupResources) -> Option<i64> {
    let both = limits.memory_and_swap.filter(|bytes| *bytes != 0);
    match (both, limits.memory.unwrap_or(0)) {
        (None, memory) if memory < 0 => Some(-1),
        (None, _) => None,
        (Some(both), _) if both < 0 => Some(-1),
        (Some(both), memory) => Some((both - memory.max(0)).max(0)),
    }
}

/// Converts version 1's shares to a weight (1 to 10000) by the container runtimes' common curve,
/// which maps minimum, default and maximum of one scale to those of the other.
///
/// upstream: opencontainers/cgroups utils.go
pub fn weight_of_shares(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        262_144.. => 10_000,
        _ => {
            let power = (shares as f64).log2();
            let exponent = (power * power + 125.0 * power) / 612.0 - 7.0 / 34.0;
            10_f64.powf(exponent).ceil() as u64
        }
    }
}
