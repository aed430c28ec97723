//! One row for each combination that matters.

use super::*;

const CALM: StartWishes = StartWishes {
    fail_cgroup_v1: false,
    fail_swap_on: false,
    single_process_oom_kill: None,
    limited_swap: false,
};
const DEFAULTS: StartWishes = StartWishes { fail_cgroup_v1: true, fail_swap_on: true, ..CALM };

type Row<'a> = (Option<bool>, Option<usize>, StartWishes, &'a [Refusal]);

#[test]
fn an_administrator_gets_the_refusals_asked_for() {
    let group_kill = StartWishes { single_process_oom_kill: Some(false), ..CALM };
    let single_kill = StartWishes { single_process_oom_kill: Some(true), ..CALM };
    let limited = StartWishes { limited_swap: true, ..CALM };
    let both = [Refusal::CgroupVersionOne, Refusal::SwapIsOn { areas: 1 }];
    // unified cgroups, swap areas, settings -> errors
    let rows: &[Row] = &[
        (Some(true), Some(0), DEFAULTS, &[]),
        (Some(false), Some(0), DEFAULTS, &[Refusal::CgroupVersionOne]),
        (Some(false), Some(0), StartWishes { fail_cgroup_v1: false, ..DEFAULTS }, &[]),
        (Some(true), Some(2), DEFAULTS, &[Refusal::SwapIsOn { areas: 2 }]),
        (Some(true), Some(2), StartWishes { fail_swap_on: false, ..DEFAULTS }, &[]),
        (Some(false), Some(1), DEFAULTS, &both),
        (None, None, DEFAULTS, &[]),
        (Some(false), None, group_kill, &[Refusal::GroupKillOnVersionOne]),
        (Some(true), None, group_kill, &[]),
        (Some(false), None, single_kill, &[]),
        (Some(false), Some(1), limited, &[Refusal::LimitedSwapOnVersionOne]),
        (Some(true), Some(1), limited, &[]),
    ];
    for (unified_cgroups, swap_areas, wishes, expected) in rows {
        let facts = MachineFacts { unified_cgroups: *unified_cgroups, swap_areas: *swap_areas };
        assert_eq!(refusals(&facts, wishes), *expected, "{facts:?} {wishes:?}");
    }
}

#[test]
fn a_refusal_names_the_setting_and_the_way_out() {
    for (refusal, setting) in [
        (Refusal::CgroupVersionOne, "--fail-cgroupv1"),
        (Refusal::SwapIsOn { areas: 1 }, "--fail-swap-on"),
        (Refusal::GroupKillOnVersionOne, "singleProcessOOMKill"),
        (Refusal::LimitedSwapOnVersionOne, "memorySwap.swapBehavior"),
    ] {
        assert!(refusal.to_string().contains(setting), "{refusal}");
    }
}
