//! Limits that are set, and limits that are not.

use super::*;

const ALL: KernelFeatures = KernelFeatures { swap: true, huge_pages: true };

#[test]
fn unset_resources_set_no_limits() {
    assert_eq!(limits(&v1::LinuxContainerResources::default(), ALL), LimitsSpec::default());
}

#[test]
fn a_limit_on_memory_alone_allows_no_swap() {
    let resources =
        v1::LinuxContainerResources { memory_limit_in_bytes: 1 << 20, ..Default::default() };
    assert_eq!(limits(&resources, ALL).memory_and_swap, Some(1 << 20));
    let without = KernelFeatures { swap: false, huge_pages: false };
    assert_eq!(limits(&resources, without).memory_and_swap, None);
    let resources = v1::LinuxContainerResources {
        memory_swap_limit_in_bytes: 3 << 20,
        hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".into(), limit: 5 }],
        ..resources
    };
    assert_eq!(limits(&resources, ALL).memory_and_swap, Some(3 << 20));
    assert_eq!(limits(&resources, ALL).huge_pages["2MB"], 5);
    assert!(limits(&resources, without).huge_pages.is_empty());
}

#[test]
fn an_update_keeps_unset_resources() {
    let old = v1::LinuxContainerResources {
        cpu_shares: 100,
        cpu_quota: 5000,
        cpuset_cpus: "0".into(),
        ..Default::default()
    };
    let update = v1::LinuxContainerResources { cpu_quota: -1, ..Default::default() };
    let all = merged(Some(&old), &update);
    assert_eq!((all.cpu_shares, all.cpu_quota, &*all.cpuset_cpus), (100, -1, "0"));
    assert_eq!(merged(None, &update), update);
}

#[test]
fn an_unset_oom_score_is_zero() {
    let asked = |oom_score_adj| v1::LinuxContainerResources { oom_score_adj, ..Default::default() };
    for (resources, lowest, expected) in [
        // Without resources the supervisor's own score would be inherited.
        (None, -1000, 0),
        (Some(asked(0)), -1000, 0),
        (Some(asked(-997)), -1000, -997),
        (Some(asked(1000)), -1000, 1000),
        (Some(asked(5000)), -1000, 1000),
        (Some(asked(i64::MAX)), -1000, 0),
        // The lowest score that this host permits.
        (Some(asked(-997)), 5, 5),
        (None, 5, 5),
    ] {
        assert_eq!(oom_score(resources.as_ref(), lowest), expected, "{resources:?} {lowest}");
    }
}
