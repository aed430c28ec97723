//! CRI's limits as cgroup limits. Pure.
//!
//! upstream: containerd internal/cri/opts/spec_linux_opts.go (WithResources)

use container_create::spec::LimitsSpec;
use cri_wire::v1;

#[cfg(test)]
mod tests;

/// What the host's cgroups support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelFeatures {
    /// Swap can be limited.
    pub swap: bool,
    pub huge_pages: bool,
}

/// The `oom_score_adj` of a container: 0 unless requested otherwise, and no lower than permitted.
pub(crate) fn oom_score(resources: Option<&v1::LinuxContainerResources>, lowest: i32) -> i32 {
    let asked = resources.map_or(0, |resources| resources.oom_score_adj);
    i32::try_from(asked).unwrap_or_default().clamp(lowest, 1000)
}

/// Zero and empty mean unchanged.
pub(crate) fn limits(
    resources: &v1::LinuxContainerResources,
    kernel_features: KernelFeatures,
) -> LimitsSpec {
    let unsigned = |value: i64| u64::try_from(value).ok().filter(|value| *value != 0);
    let text = |value: &String| (!value.is_empty()).then(|| value.clone());
    let number = |value: i64| (value != 0).then_some(value);
    let memory = number(resources.memory_limit_in_bytes);
    // Without a swap limit, the memory limit applies to memory and swap together.
    let both = number(resources.memory_swap_limit_in_bytes).or(memory);
    LimitsSpec {
        cpu_shares: unsigned(resources.cpu_shares),
        cpu_quota: number(resources.cpu_quota),
        cpu_period: unsigned(resources.cpu_period),
        cpuset_cpus: text(&resources.cpuset_cpus),
        cpuset_mems: text(&resources.cpuset_mems),
        memory,
        memory_and_swap: both.filter(|_| kernel_features.swap),
        memory_reservation: None,
        pids: None,
        huge_pages: if kernel_features.huge_pages {
            let pairs = resources.hugepage_limits.iter();
            pairs.map(|limit| (limit.page_size.clone(), limit.limit)).collect()
        } else {
            Default::default()
        },
        unified: resources.unified.clone(),
        cpu_idle: None,
    }
}

/// Resources after an update: fields that the update does not set are unchanged.
pub(crate) fn merged(
    old: Option<&v1::LinuxContainerResources>,
    update: &v1::LinuxContainerResources,
) -> v1::LinuxContainerResources {
    let mut all = old.cloned().unwrap_or_default();
    let mut take = |from: i64, to: fn(&mut v1::LinuxContainerResources) -> &mut i64| {
        if from != 0 {
            *to(&mut all) = from;
        }
    };
    take(update.cpu_period, |all| &mut all.cpu_period);
    take(update.cpu_quota, |all| &mut all.cpu_quota);
    take(update.cpu_shares, |all| &mut all.cpu_shares);
    take(update.memory_limit_in_bytes, |all| &mut all.memory_limit_in_bytes);
    take(update.memory_swap_limit_in_bytes, |all| &mut all.memory_swap_limit_in_bytes);
    take(update.oom_score_adj, |all| &mut all.oom_score_adj);
    if !update.cpuset_cpus.is_empty() {
        all.cpuset_cpus.clone_from(&update.cpuset_cpus);
    }
    if !update.cpuset_mems.is_empty() {
        all.cpuset_mems.clone_from(&update.cpuset_mems);
    }
    if !update.hugepage_limits.is_empty() {
        all.hugepage_limits.clone_from(&update.hugepage_limits);
    }
    all.unified.extend(update.unified.iter().map(|(key, value)| (key.clone(), value.clone())));
    all
}
