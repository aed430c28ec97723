//! Cgroups created by systemd: scopes, each with a process in it from the start.
//!
//! Rule: the caller that creates a scope enters it; its children start there, and when the last
//! process has left, the scope ends by itself. systemd gets every limit that it has a property for,
//! because it writes its own values again on each reload; the cgroup files are written afterwards
//! and take precedence. The cgroup is delegated, so everything beneath it is ours. Does not write
//! files.
//!
//! upstream: opencontainers/cgroups systemd/v2.go (which properties)

use std::time::Duration;

use cgroup_files::{CgroupVersion, weight_of_shares};
use systemd_units::{PropertyValue, Systemd, SystemdAddress, UnitError};

use crate::error::{CreateError, Result};
use crate::spec::LimitsSpec;

#[cfg(test)]
mod tests;

const LIMIT: Duration = Duration::from_secs(25);
/// systemd cuts quotas to whole percents of a CPU.
const QUOTA_STEP: u64 = 10_000;
const SECOND: u64 = 1_000_000;
/// The upper limit of CPUs and memory nodes in a list.
const MAX_CPUS: u32 = 1 << 16;

type ScopeProperty = (&'static str, PropertyValue);

/// A scope by its name, and its slice.
#[derive(Debug, Clone, Copy)]
pub struct SystemdScope<'a> {
    pub unit: &'a str,
    pub slice: &'a str,
    pub description: &'a str,
}

impl From<UnitError> for CreateError {
    fn from(error: UnitError) -> Self {
        Self::other(error.to_string())
    }
}

impl SystemdScope<'_> {
    /// Creates the scope and enters it, with all children started from now on.
    pub fn enter_new(&self, limits: &LimitsSpec, version: CgroupVersion) -> Result<()> {
        let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let mut properties = fixed_properties(self, own, version);
        properties.extend(limit_properties(limits, version, Missing::Unlimited));
        let mut systemd = Systemd::connect(&SystemdAddress::default_addresses(), LIMIT)?;
        match systemd.start_transient(self.unit, &properties) {
            // Names are never reused: it is left from an attempt that has just failed.
            Err(UnitError::Exists(_)) => {
                match systemd.stop(self.unit) {
                    Ok(()) | Err(UnitError::Missing(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                systemd.reset_failed(self.unit)?;
                Ok(systemd.start_transient(self.unit, &properties)?)
            }
            outcome => Ok(outcome?),
        }
    }
}

/// Changes limits of an existing scope. Limits that are not set stay.
pub fn change(unit: &str, limits: &LimitsSpec, version: CgroupVersion) -> Result<()> {
    let properties = limit_properties(limits, version, Missing::Unchanged);
    if properties.is_empty() {
        return Ok(());
    }
    let mut systemd = Systemd::connect(&SystemdAddress::default_addresses(), LIMIT)?;
    Ok(systemd.set_properties(unit, &properties)?)
}

fn fixed_properties(
    scope: &SystemdScope<'_>,
    process: u32,
    version: CgroupVersion,
) -> Vec<ScopeProperty> {
    let io = if version == CgroupVersion::V2 { "IOAccounting" } else { "BlockIOAccounting" };
    vec![
        ("Description", PropertyValue::Text(format!("{} of keelson", scope.description))),
        ("Slice", PropertyValue::Text(scope.slice.to_owned())),
        ("PIDs", PropertyValue::Uint32s(vec![process])),
        ("Delegate", PropertyValue::Bool(true)),
        ("MemoryAccounting", PropertyValue::Bool(true)),
        ("CPUAccounting", PropertyValue::Bool(true)),
        (io, PropertyValue::Bool(true)),
        ("TasksAccounting", PropertyValue::Bool(true)),
        // Pods end when their agent stops them, not at the first step of a shutdown.
        ("DefaultDependencies", PropertyValue::Bool(false)),
        ("CollectMode", PropertyValue::Text("inactive-or-failed".to_owned())),
    ]
}

/// What to send for a limit that is not set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Unchanged,
    /// Unlimited, instead of systemd's own default.
    Unlimited,
}

fn limit_properties(
    limits: &LimitsSpec,
    version: CgroupVersion,
    missing: Missing,
) -> Vec<ScopeProperty> {
    let unified = version == CgroupVersion::V2;
    let bytes = |given: i64| PropertyValue::Number(u64::try_from(given).unwrap_or(u64::MAX));
    let mut properties = Vec::new();
    if let Some(shares) = limits.cpu_shares.filter(|shares| *shares > 0) {
        properties.push(if unified {
            ("CPUWeight", PropertyValue::Number(weight_of_shares(shares)))
        } else {
            ("CPUShares", PropertyValue::Number(shares.max(2)))
        });
    }
    if let Some(quota) = limits.cpu_quota.filter(|quota| *quota != 0) {
        let period = limits.cpu_period.filter(|period| *period > 0).unwrap_or(100_000);
        if unified {
            properties.push(("CPUQuotaPeriodUSec", PropertyValue::Number(period)));
        }
        properties.push(("CPUQuotaPerSecUSec", PropertyValue::Number(per_second(quota, period))));
    }
    if let Some(memory) = limits.memory.filter(|memory| *memory != 0) {
        properties.push((if unified { "MemoryMax" } else { "MemoryLimit" }, bytes(memory)));
    }
    let both = limits.memory_and_swap.filter(|both| *both != 0);
    if let (true, Some(both)) = (unified, both) {
        let memory = limits.memory.unwrap_or_default().max(0);
        let swap = if both < 0 { -1 } else { (both - memory).max(0) };
        properties.push(("MemorySwapMax", bytes(swap)));
    }
    match limits.pids {
        Some(pids) if pids > 0 => properties.push(("TasksMax", bytes(pids))),
        None if missing == Missing::Unchanged => {}
        _ => properties.push(("TasksMax", PropertyValue::Number(u64::MAX))),
    }
    if unified {
        for (name, list) in
            [("AllowedCPUs", &limits.cpuset_cpus), ("AllowedMemoryNodes", &limits.cpuset_mems)]
        {
            if let Some(bits) = list.as_deref().and_then(cpu_list_bits) {
                properties.push((name, PropertyValue::Bytes(bits)));
            }
        }
    }
    properties
}

fn per_second(quota: i64, period: u64) -> u64 {
    match u64::try_from(quota) {
        Ok(quota) => (quota.saturating_mul(SECOND) / period).next_multiple_of(QUOTA_STEP),
        Err(_) => u64::MAX,
    }
}

/// A list such as `0-3,8` as a bit set, lowest first. None for an invalid list, which the kernel
/// rejects later when the file is written.
fn cpu_list_bits(list: &str) -> Option<Vec<u8>> {
    let mut bits: Vec<u8> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last >= MAX_CPUS {
            return None;
        }
        for number in first..=last {
            let byte = usize::try_from(number / 8).ok()?;
            if bits.len() <= byte {
                bits.resize(byte + 1, 0);
            }
            bits[byte] |= 1 << (number % 8);
        }
    }
    (!bits.is_empty()).then_some(bits)
}
