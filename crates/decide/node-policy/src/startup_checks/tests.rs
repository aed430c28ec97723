//! One row for each combination that matters.

use super::*;

const CALM: StartupRequirements = StartupRequirements {
    fail_cgroup_v1: false,
    fail_swap_on: false,
    single_process_oom_kill: None,
    limited_swap: false,
};
const DEFAULTS: StartupRequirements =
    StartupRequirements { fail_cgroup_v1: true, fail_swap_on: true, ..CALM };

type StartupRow<'a> = (Option<bool>, Option<usize>, StartupRequirements, &'a [StartupError]);

#[test]
fn enabled_startup_checks_fail() {
    let group_kill = StartupRequirements { single_process_oom_kill: Some(false), ..CALM };
    let single_kill = StartupRequirements { single_process_oom_kill: Some(true), ..CALM };
    let limited = StartupRequirements { limited_swap: true, ..CALM };
    let both = [StartupError::CgroupVersionOne, StartupError::SwapIsOn { areas: 1 }];
    // unified cgroups, swap areas, settings -> errors
    let rows: &[StartupRow] = &[
        (Some(true), Some(0), DEFAULTS, &[]),
        (Some(false), Some(0), DEFAULTS, &[StartupError::CgroupVersionOne]),
        (Some(false), Some(0), StartupRequirements { fail_cgroup_v1: false, ..DEFAULTS }, &[]),
        (Some(true), Some(2), DEFAULTS, &[StartupError::SwapIsOn { areas: 2 }]),
        (Some(true), Some(2), StartupRequirements { fail_swap_on: false, ..DEFAULTS }, &[]),
        (Some(false), Some(1), DEFAULTS, &both),
        (None, None, DEFAULTS, &[]),
        (Some(false), None, group_kill, &[StartupError::GroupKillOnVersionOne]),
        (Some(true), None, group_kill, &[]),
        (Some(false), None, single_kill, &[]),
        (Some(false), Some(1), limited, &[StartupError::LimitedSwapOnVersionOne]),
        (Some(true), Some(1), limited, &[]),
    ];
    for (unified_cgroups, swap_areas, requirements, expected) in rows {
        let facts = StartupFacts { unified_cgroups: *unified_cgroups, swap_areas: *swap_areas };
        assert_eq!(startup_errors(&facts, requirements), *expected, "{facts:?} {requirements:?}");
    }
}

#[test]
fn a_startup_error_names_the_setting_and_the_remedy() {
    for (rejection, setting) in [
        (StartupError::CgroupVersionOne, "--fail-cgroupv1"),
        (StartupError::SwapIsOn { areas: 1 }, "--fail-swap-on"),
        (StartupError::GroupKillOnVersionOne, "singleProcessOOMKill"),
        (StartupError::LimitedSwapOnVersionOne, "memorySwap.swapBehavior"),
    ] {
        assert!(rejection.to_string().contains(setting), "{rejection}");
    }
}
