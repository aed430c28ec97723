//! One row for each combination that matters.

use super::*;

#[test]
fn an_administrator_gets_the_refusals_asked_for() {
    let rows: &[(Option<bool>, Option<usize>, bool, bool, &[Refusal])] = &[
        // unified cgroups, swap areas, failCgroupV1, failSwapOn -> refusals
        (Some(true), Some(0), true, true, &[]),
        (Some(false), Some(0), true, true, &[Refusal::CgroupVersionOne]),
        (Some(false), Some(0), false, true, &[]),
        (Some(true), Some(2), true, true, &[Refusal::SwapIsOn { areas: 2 }]),
        (Some(true), Some(2), true, false, &[]),
        (
            Some(false),
            Some(1),
            true,
            true,
            &[Refusal::CgroupVersionOne, Refusal::SwapIsOn { areas: 1 }],
        ),
        (None, None, true, true, &[]),
    ];
    for (unified_cgroups, swap_areas, fail_cgroup_v1, fail_swap_on, expected) in rows {
        let facts = MachineFacts { unified_cgroups: *unified_cgroups, swap_areas: *swap_areas };
        let wishes = StartWishes { fail_cgroup_v1: *fail_cgroup_v1, fail_swap_on: *fail_swap_on };
        assert_eq!(refusals(&facts, &wishes), *expected, "{facts:?} {wishes:?}");
    }
}

#[test]
fn a_refusal_names_the_setting_and_the_way_out() {
    for (refusal, flag) in [
        (Refusal::CgroupVersionOne, "--fail-cgroupv1"),
        (Refusal::SwapIsOn { areas: 1 }, "--fail-swap-on"),
    ] {
        assert!(refusal.to_string().contains(flag), "{refusal}");
    }
}
