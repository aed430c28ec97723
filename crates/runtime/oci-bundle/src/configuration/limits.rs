//! Limits of the container's cgroup, and devices.

use container_create::spec::{CgroupSpec, DeviceNode, LimitsSpec};

use crate::json::{Json, Members};

/// The first device rule is always "deny all", unless all are allowed; the runtime adds the default
/// devices.
pub(super) fn resources(cgroup: &CgroupSpec) -> Members {
    let mut all = Members::default();
    let mut first = Members::default();
    first.put("allow", cgroup.all_devices);
    first.put("access", "rwm");
    let mut devices = vec![Json::from(first)];
    if !cgroup.all_devices {
        devices.extend(cgroup.device_rules.iter().map(|rule| {
            let mut one = Members::default();
            one.put("allow", rule.allow);
            one.put("type", &rule.kind);
            one.put_some("major", rule.major);
            one.put_some("minor", rule.minor);
            one.put("access", &rule.access);
            one.into()
        }));
    }
    all.put("devices", Json::List(devices));
    if let Some(limits) = &cgroup.limits {
        put_limits(&mut all, limits);
    }
    all
}

fn put_limits(all: &mut Members, limits: &LimitsSpec) {
    let mut memory = Members::default();
    memory.put_some("limit", limits.memory);
    memory.put_some("swap", limits.memory_and_swap);
    memory.put_some("reservation", limits.memory_reservation);
    all.put_members("memory", memory);
    let mut cpu = Members::default();
    cpu.put_some("shares", limits.cpu_shares);
    cpu.put_some("quota", limits.cpu_quota);
    cpu.put_some("period", limits.cpu_period);
    cpu.put_some("cpus", limits.cpuset_cpus.as_ref());
    cpu.put_some("mems", limits.cpuset_mems.as_ref());
    cpu.put_some("idle", limits.cpu_idle.map(i64::from));
    all.put_members("cpu", cpu);
    let mut pids = Members::default();
    pids.put_some("limit", limits.pids);
    all.put_members("pids", pids);
    if !limits.huge_pages.is_empty() {
        let list = limits.huge_pages.iter().map(|(size, bytes)| {
            let mut one = Members::default();
            one.put("pageSize", size);
            one.put("limit", *bytes);
            Json::from(one)
        });
        all.put("hugepageLimits", Json::List(list.collect()));
    }
    let mut unified = Members::default();
    for (file, value) in &limits.unified {
        unified.put(file, value);
    }
    all.put_members("unified", unified);
}

pub(super) fn device(node: &DeviceNode) -> Json {
    let mut all = Members::default();
    all.put("path", &node.path);
    all.put("type", &node.kind);
    all.put("major", node.major);
    all.put("minor", node.minor);
    all.put("fileMode", node.mode);
    all.put("uid", node.uid);
    all.put("gid", node.gid);
    all.into()
}
