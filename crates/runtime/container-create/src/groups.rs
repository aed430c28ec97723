//! The container's cgroup: created, limited, and restricted to its devices.
//!
//! Rule: the limits and the device rules are in force before a process of the container enters the
//! cgroup. Does not choose limits.

use cgroup_files::{
    Cgroup, CgroupHierarchies, CgroupProcsFiles, CgroupResources, CgroupVersion, Controller,
    DeviceAccess, DeviceKind, DeviceRule, HugePageLimit,
};

use crate::device_filter;
use crate::error::{CreateError, During, Result};
use crate::scopes::SystemdScope;
use crate::spec::{CgroupSpec, DeviceRuleSpec, LimitsSpec};

#[cfg(test)]
mod tests;

impl LimitsSpec {
    pub fn to_limits(&self) -> CgroupResources {
        CgroupResources {
            cpu_shares: self.cpu_shares,
            cpu_quota: self.cpu_quota,
            cpu_period: self.cpu_period,
            cpu_idle: self.cpu_idle,
            cpuset_cpus: self.cpuset_cpus.clone(),
            cpuset_mems: self.cpuset_mems.clone(),
            memory: self.memory,
            memory_and_swap: self.memory_and_swap,
            memory_reservation: self.memory_reservation,
            pids: self.pids,
            huge_pages: self
                .huge_pages
                .iter()
                .map(|(size, bytes)| HugePageLimit { page_size: size.clone(), bytes: *bytes })
                .collect(),
            unified: self.unified.clone(),
            devices: Vec::new(),
        }
    }
}

/// Device rules of every container: mknod of any device, use of those in its `/dev`.
fn default_device_rules() -> Vec<DeviceRule> {
    let node = DeviceAccess { read: false, write: false, make_node: true };
    let any = |kind| DeviceRule { allow: true, kind, major: None, minor: None, access: node };
    let mut rules = vec![any(DeviceKind::Character), any(DeviceKind::Block)];
    let numbers: &[(u32, Option<u32>)] = &[
        (1, Some(3)),
        (1, Some(5)),
        (1, Some(7)),
        (1, Some(8)),
        (1, Some(9)),
        (5, Some(0)),
        (5, Some(1)),
        (5, Some(2)),
        (136, None),
    ];
    rules.extend(numbers.iter().map(|(major, minor)| DeviceRule {
        allow: true,
        kind: DeviceKind::Character,
        major: Some(*major),
        minor: *minor,
        access: DeviceAccess::ALL,
    }));
    rules
}

/// All rules in order; the first one always denies everything.
pub(crate) fn device_rules(spec: &CgroupSpec) -> Result<Vec<DeviceRule>> {
    let everything = |allow| DeviceRule {
        allow,
        kind: DeviceKind::All,
        major: None,
        minor: None,
        access: DeviceAccess::ALL,
    };
    if spec.all_devices {
        return Ok(vec![everything(true)]);
    }
    let mut rules = vec![everything(false)];
    rules.extend(default_device_rules());
    for rule in &spec.device_rules {
        rules.push(device_rule(rule)?);
    }
    Ok(rules)
}

fn device_rule(rule: &DeviceRuleSpec) -> Result<DeviceRule> {
    let kind = match rule.kind.as_str() {
        "a" => DeviceKind::All,
        "c" => DeviceKind::Character,
        "b" => DeviceKind::Block,
        other => {
            return Err(CreateError::invalid_spec(format!(
                "{other:?} is no kind of device rule; expected a, b or c"
            )));
        }
    };
    let access = DeviceAccess::parse(&rule.access).ok_or_else(|| {
        CreateError::invalid_spec(format!("{:?} is no device access; expected of rwm", rule.access))
    })?;
    Ok(DeviceRule { allow: rule.allow, kind, major: rule.major, minor: rule.minor, access })
}

/// Runs as the host's root.
pub(crate) fn make(hierarchy: &CgroupHierarchies, spec: &CgroupSpec) -> Result<Cgroup> {
    let group = hierarchy.group(&spec.path)?;
    if !spec.systemd_unit.is_empty() {
        // From here on this process is in the scope, and its children start there.
        let scope = SystemdScope {
            unit: &spec.systemd_unit,
            slice: &spec.systemd_slice,
            description: "a container",
        };
        scope.enter_new(&spec.limits.clone().unwrap_or_default(), hierarchy.version())?;
    }
    group.create()?;
    limit(&group, spec)?;
    Ok(group)
}

/// Sets limits and device rules of an existing cgroup.
pub(crate) fn limit(group: &Cgroup, spec: &CgroupSpec) -> Result<()> {
    if let Some(limits) = &spec.limits {
        group.apply(&limits.to_limits())?;
    }
    let rules = device_rules(spec)?;
    match group.hierarchy().version() {
        CgroupVersion::V2 => {
            let dir = group
                .dir(Controller::Devices)
                .ok_or_else(|| CreateError::other("there are no control groups"))?;
            device_filter::attach(&dir, &rules)
                .during(format_args!("closing {} to devices", dir.display()))
        }
        CgroupVersion::V1 if group.dir(Controller::Devices).is_some() => {
            let limits = CgroupResources { devices: rules, ..CgroupResources::default() };
            group.apply(&limits).map_err(CreateError::from)
        }
        // A host with version 1 and without the devices controller cannot restrict devices.
        CgroupVersion::V1 if spec.all_devices => Ok(()),
        CgroupVersion::V1 => {
            Err(CreateError::invalid_spec("this machine has no devices controller"))
        }
    }
}

/// Open cgroup files by which processes of an exec enter the container's cgroup.
pub(crate) struct ExecDoors {
    /// Moves another process; always open.
    pub for_others: CgroupProcsFiles,
    /// Moves the caller itself, where the kernel supports it. Not open when the cgroup is at its
    /// PID limit: nothing can be cloned inside then.
    pub for_caller: Option<CgroupProcsFiles>,
}

/// An exec with a deadline is in the container's own cgroup for every controller, and in a cgroup
/// below it by which its process tree can be found and killed.
pub(crate) fn exec_doors(group: &Cgroup, exec: Option<&Cgroup>) -> Result<ExecDoors> {
    if let Some(exec) = exec {
        create_plain_cgroup(exec)?;
    }
    let for_others = match (exec, group.hierarchy().version()) {
        (None, _) => group.procs_files()?,
        (Some(exec), CgroupVersion::V2) => exec.procs_files()?,
        (Some(exec), CgroupVersion::V1) => {
            group.procs_files()?.and(exec.procs_files_of(Controller::Freezer)?)
        }
    };
    Ok(ExecDoors { for_others, for_caller: group.task_files_for_caller(exec)? })
}

/// Creates the directory alone: no controllers are enabled in the container's cgroup, which may
/// therefore keep processes (version 2). On version 1 only the freezer has it.
fn create_plain_cgroup(exec: &Cgroup) -> Result<()> {
    let dir = exec.dir(Controller::Freezer).ok_or_else(|| {
        CreateError::invalid_spec("an exec with a deadline needs the freezer controller")
    })?;
    std::fs::create_dir(&dir).during(format_args!("making the control group {}", dir.display()))
}
