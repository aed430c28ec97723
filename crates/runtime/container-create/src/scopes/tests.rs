//! The properties that systemd gets.

use super::*;

fn named(properties: &[ScopeProperty], name: &str) -> Option<PropertyValue> {
    properties.iter().find(|(one, _)| *one == name).map(|(_, value)| value.clone())
}

#[test]
fn every_limit_that_systemd_knows_becomes_a_property() {
    let limits = LimitsSpec {
        cpu_shares: Some(1024),
        cpu_quota: Some(12_345),
        cpu_period: Some(50_000),
        memory: Some(1 << 20),
        memory_and_swap: Some(3 << 20),
        cpuset_cpus: Some("0-1,9".to_owned()),
        ..LimitsSpec::default()
    };
    let properties = limit_properties(&limits, CgroupVersion::V2, Missing::Unlimited);
    for (name, value) in [
        ("CPUWeight", PropertyValue::Number(100)),
        ("CPUQuotaPeriodUSec", PropertyValue::Number(50_000)),
        // 24.69 % of a CPU.
        ("CPUQuotaPerSecUSec", PropertyValue::Number(250_000)),
        ("MemoryMax", PropertyValue::Number(1 << 20)),
        ("MemorySwapMax", PropertyValue::Number(2 << 20)),
        ("TasksMax", PropertyValue::Number(u64::MAX)),
        ("AllowedCPUs", PropertyValue::Bytes(vec![3, 2])),
    ] {
        assert_eq!(named(&properties, name), Some(value), "{name}");
    }
    assert_eq!(named(&properties, "AllowedMemoryNodes"), None);
    let old = limit_properties(&limits, CgroupVersion::V1, Missing::Unlimited);
    assert_eq!(named(&old, "MemoryLimit"), Some(PropertyValue::Number(1 << 20)));
    assert_eq!(named(&old, "MemorySwapMax"), None);
}

#[test]
fn an_update_leaves_unset_limits_unchanged() {
    assert!(
        limit_properties(&LimitsSpec::default(), CgroupVersion::V2, Missing::Unchanged).is_empty(),
        "nothing is asked for"
    );
    let open = LimitsSpec {
        cpu_quota: Some(-1),
        memory: Some(-1),
        memory_and_swap: Some(-1),
        pids: Some(0),
        ..LimitsSpec::default()
    };
    let properties = limit_properties(&open, CgroupVersion::V2, Missing::Unchanged);
    for name in ["CPUQuotaPerSecUSec", "MemoryMax", "MemorySwapMax", "TasksMax"] {
        assert_eq!(named(&properties, name), Some(PropertyValue::Number(u64::MAX)), "{name}");
    }
}

#[test]
fn lists_of_cpus_become_bits() {
    assert_eq!(cpu_list_bits("0"), Some(vec![1]));
    assert_eq!(cpu_list_bits("7-8"), Some(vec![128, 1]));
    assert_eq!(cpu_list_bits(" 1 , 3 "), Some(vec![10]));
    for odd in ["", "3-1", "x", "-1", "0-4294967295"] {
        assert_eq!(cpu_list_bits(odd), None, "{odd:?}");
    }
}
