//! Whether the agent may start on this machine. It normally starts degraded; these are the cases in
//! which the configuration asks it not to start (the kubelet's defaults ask for the first two), or
//! for something that cgroup version 1 does not support.
//! upstream: pkg/kubelet/apis/config/validation/validation_linux.go,
//! pkg/kubelet/cm/container_manager_linux.go, cmd/kubelet/app/server.go

#[cfg(test)]
mod tests;

/// Facts of the machine; `None` where one could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartupFacts {
    pub unified_cgroups: Option<bool>,
    pub swap_areas: Option<usize>,
}

/// What the configuration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartupRequirements {
    pub fail_cgroup_v1: bool,
    pub fail_swap_on: bool,
    /// `Some(false)`: an out-of-memory kill ends the whole container.
    pub single_process_oom_kill: Option<bool>,
    /// Containers may swap in proportion to their memory requests.
    pub limited_swap: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartupError {
    CgroupVersionOne,
    SwapIsOn { areas: usize },
    GroupKillOnVersionOne,
    LimitedSwapOnVersionOne,
}

/// Every reason not to start. A fact that could not be read is no reason.
#[must_use]
pub fn startup_errors(
    facts: &StartupFacts,
    requirements: &StartupRequirements,
) -> Vec<StartupError> {
    let mut found = Vec::new();
    if facts.unified_cgroups == Some(false) {
        let asked = [
            (requirements.fail_cgroup_v1, StartupError::CgroupVersionOne),
            (
                requirements.single_process_oom_kill == Some(false),
                StartupError::GroupKillOnVersionOne,
            ),
            (requirements.limited_swap, StartupError::LimitedSwapOnVersionOne),
        ];
        found.extend(asked.into_iter().filter(|(asked, _)| *asked).map(|(_, rejection)| rejection));
    }
    if let Some(areas) = facts.swap_areas.filter(|areas| requirements.fail_swap_on && *areas > 0) {
        found.push(StartupError::SwapIsOn { areas });
    }
    found
}

impl std::fmt::Display for StartupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartupError::CgroupVersionOne => f.write_str(
                "failCgroupV1: true, and this machine has cgroup version 1; \
                 boot it with version 2, or set failCgroupV1 (--fail-cgroupv1) to false",
            ),
            StartupError::GroupKillOnVersionOne => f.write_str(
                "singleProcessOOMKill: false, which cgroup version 1 cannot do; \
                 leave it unset or set it to true",
            ),
            StartupError::LimitedSwapOnVersionOne => f.write_str(
                "memorySwap.swapBehavior: LimitedSwap, which cgroup version 1 cannot do; \
                 set it to NoSwap",
            ),
            StartupError::SwapIsOn { areas } => write!(
                f,
                "failSwapOn: true, and {areas} swap area(s) are on; \
                 turn swap off, or set failSwapOn (--fail-swap-on) to false"
            ),
        }
    }
}
