//! Slices owned by systemd, with limits that survive its reloads.
//!
//! Rule: a limit that systemd has a property for is also set in systemd, since it writes its own
//! values again whenever it reloads; the files are written last (upstream: runc's systemd driver).

use std::time::Duration;

use cgroup_files::names::CgroupName;
use ports::pod_host::CgroupLimits;
use systemd_units::{PropertyValue, Systemd, SystemdAddress, UnitError};

use crate::weight;

const CALL_TIMEOUT: Duration = Duration::from_secs(25);

/// Ten milliseconds: systemd rounds quotas to whole percents of a second.
const CPU_QUOTA_STEP: u64 = 10_000;

const MICROSECONDS: u64 = 1_000_000;

/// Starts a slice and its parents.
pub(crate) fn make(
    addresses: &[SystemdAddress],
    name: &CgroupName,
    limits: &CgroupLimits,
    unified: bool,
) -> Result<(), UnitError> {
    let mut systemd = Systemd::connect(addresses, CALL_TIMEOUT)?;
    let mut above = CgroupName::root();
    for (number, component) in name.components().iter().enumerate() {
        let Ok(this) = above.child(component) else { break };
        let last = number + 1 == name.components().len();
        let mut properties = fixed_properties(&this, &above, unified);
        if last {
            properties.extend(limit_properties(limits, unified));
        }
        match systemd.start_transient(&this.slice(), &properties) {
            Ok(()) => {}
            Err(UnitError::Exists(_)) if !last => {}
            Err(UnitError::Exists(_)) => {
                let limits = limit_properties(limits, unified);
                if !limits.is_empty() {
                    systemd.set_properties(&this.slice(), &limits)?;
                }
            }
            Err(error) => return Err(error),
        }
        above = this;
    }
    Ok(())
}

/// Sets limits of an existing slice.
pub(crate) fn limit(
    addresses: &[SystemdAddress],
    name: &CgroupName,
    limits: &CgroupLimits,
    unified: bool,
) -> Result<(), UnitError> {
    let limits = limit_properties(limits, unified);
    if limits.is_empty() {
        return Ok(());
    }
    Systemd::connect(addresses, CALL_TIMEOUT)?.set_properties(&name.slice(), &limits)
}

/// Stops a slice with all that is in it. One that is gone is no error.
pub(crate) fn remove(addresses: &[SystemdAddress], name: &CgroupName) -> Result<(), UnitError> {
    let mut systemd = Systemd::connect(addresses, CALL_TIMEOUT)?;
    match systemd.stop(&name.slice()) {
        Ok(()) | Err(UnitError::Missing(_)) => {}
        Err(error) => return Err(error),
    }
    systemd.reset_failed(&name.slice())
}

type Property = (&'static str, PropertyValue);

fn fixed_properties(this: &CgroupName, above: &CgroupName, unified: bool) -> Vec<Property> {
    let io = if unified { "IOAccounting" } else { "BlockIOAccounting" };
    let mut properties = vec![
        ("Description", PropertyValue::Text(format!("pods of the node agent, {}", this.slice()))),
        ("MemoryAccounting", PropertyValue::Bool(true)),
        ("CPUAccounting", PropertyValue::Bool(true)),
        (io, PropertyValue::Bool(true)),
        ("TasksAccounting", PropertyValue::Bool(true)),
        ("DefaultDependencies", PropertyValue::Bool(false)),
    ];
    if !above.components().is_empty() {
        // A slice is nested by its name; `Wants` keeps its parent up.
        properties.push(("Wants", PropertyValue::Strings(vec![above.slice()])));
    }
    properties
}

fn limit_properties(limits: &CgroupLimits, unified: bool) -> Vec<Property> {
    let mut properties = Vec::new();
    let number = |given: i64| u64::try_from(given).unwrap_or(u64::MAX);
    if let Some(shares) = limits.cpu_shares.filter(|shares| *shares > 0) {
        properties.push(if unified {
            ("CPUWeight", PropertyValue::Number(weight::of_shares(shares)))
        } else {
            ("CPUShares", PropertyValue::Number(shares))
        });
    }
    if let Some(quota) = limits.cpu_quota.filter(|quota| *quota != 0) {
        let period = limits.cpu_period.filter(|period| *period > 0).unwrap_or(100_000);
        properties.push(("CPUQuotaPerSecUSec", PropertyValue::Number(per_second(quota, period))));
    }
    if let Some(memory) = limits.memory_bytes.filter(|memory| *memory != 0) {
        let name = if unified { "MemoryMax" } else { "MemoryLimit" };
        properties.push((name, PropertyValue::Number(number(memory))));
    }
    if let Some(pids) = limits.pids {
        let most = if pids < 1 { u64::MAX } else { number(pids) };
        properties.push(("TasksMax", PropertyValue::Number(most)));
    }
    properties
}

fn per_second(quota: i64, period: u64) -> u64 {
    match u64::try_from(quota) {
        Ok(quota) => (quota.saturating_mul(MICROSECONDS) / period).next_multiple_of(CPU_QUOTA_STEP),
        Err(_) => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_convert_to_systemd_properties() {
        let limits = CgroupLimits {
            cpu_shares: Some(1024),
            cpu_quota: Some(25_500),
            cpu_period: Some(100_000),
            memory_bytes: Some(1 << 20),
            pids: Some(0),
            ..CgroupLimits::default()
        };
        let number = PropertyValue::Number;
        let expected = [
            ("CPUWeight", number(39)),
            ("CPUQuotaPerSecUSec", number(260_000)),
            ("MemoryMax", number(1 << 20)),
            ("TasksMax", number(u64::MAX)),
        ];
        assert_eq!(limit_properties(&limits, true), expected);
        let v1 = limit_properties(&limits, false);
        assert_eq!((v1[0].clone(), v1[2].0), (("CPUShares", number(1024)), "MemoryLimit"));
        let open =
            CgroupLimits { cpu_quota: Some(-1), memory_bytes: Some(-1), ..Default::default() };
        let expected = [("CPUQuotaPerSecUSec", number(u64::MAX)), ("MemoryMax", number(u64::MAX))];
        assert_eq!(limit_properties(&open, true), expected);
        assert!(limit_properties(&CgroupLimits::default(), true).is_empty());
    }

    #[test]
    fn a_slice_has_a_wants_dependency_on_its_parent() {
        let above = CgroupName::root().child("kubepods").unwrap();
        let this = above.child("pod1-2").unwrap();
        let wants_property = ("Wants", PropertyValue::Strings(vec!["kubepods.slice".to_owned()]));
        assert_eq!(fixed_properties(&this, &above, true).last(), Some(&wants_property));
        let top = fixed_properties(&above, &CgroupName::root(), false);
        assert!(top.iter().all(|(name, _)| *name != "Wants"));
        assert!(top.iter().any(|(name, _)| *name == "BlockIOAccounting"));
    }
}
