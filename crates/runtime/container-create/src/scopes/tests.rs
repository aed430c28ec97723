//! The properties that systemd gets.

use super::*;

fn named(properties: &[Property], name: &str) -> Option<Value> {
    properties.iter().find(|(one, _)| *one == name).map(|(_, value)| value.clone())
}

#[test]
fn every_limit_that_systemd_knows_is_told() {
    let limits = LimitsSpec {
        cpu_shares: Some(1024),
        cpu_quota: Some(12_345),
        cpu_period: Some(50_000),
        memory: Some(1 << 20),
        memory_and_swap: Some(3 << 20),
        cpuset_cpus: Some("0-1,9".to_owned()),
        ..LimitsSpec::default()
    };
    let told = limit_properties(&limits, Version::V2, Missing::Open);
    for (name, value) in [
        ("CPUWeight", Value::Number(100)),
        ("CPUQuotaPeriodUSec", Value::Number(50_000)),
        // 24.69 % of a CPU.
        ("CPUQuotaPerSecUSec", Value::Number(250_000)),
        ("MemoryMax", Value::Number(1 << 20)),
        ("MemorySwapMax", Value::Number(2 << 20)),
        ("TasksMax", Value::Number(u64::MAX)),
        ("AllowedCPUs", Value::Bytes(vec![3, 2])),
    ] {
        assert_eq!(named(&told, name), Some(value), "{name}");
    }
    assert_eq!(named(&told, "AllowedMemoryNodes"), None);
    let old = limit_properties(&limits, Version::V1, Missing::Open);
    assert_eq!(named(&old, "MemoryLimit"), Some(Value::Number(1 << 20)));
    assert_eq!(named(&old, "MemorySwapMax"), None);
}

#[test]
fn a_change_leaves_alone_what_it_does_not_name() {
    assert!(
        limit_properties(&LimitsSpec::default(), Version::V2, Missing::AsItIs).is_empty(),
        "nothing is asked for"
    );
    let open = LimitsSpec {
        cpu_quota: Some(-1),
        memory: Some(-1),
        memory_and_swap: Some(-1),
        pids: Some(0),
        ..LimitsSpec::default()
    };
    let told = limit_properties(&open, Version::V2, Missing::AsItIs);
    for name in ["CPUQuotaPerSecUSec", "MemoryMax", "MemorySwapMax", "TasksMax"] {
        assert_eq!(named(&told, name), Some(Value::Number(u64::MAX)), "{name}");
    }
}

#[test]
fn lists_of_cpus_become_bits() {
    assert_eq!(bits("0"), Some(vec![1]));
    assert_eq!(bits("7-8"), Some(vec![128, 1]));
    assert_eq!(bits(" 1 , 3 "), Some(vec![10]));
    for odd in ["", "3-1", "x", "-1", "0-4294967295"] {
        assert_eq!(bits(odd), None, "{odd:?}");
    }
}
