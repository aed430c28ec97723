//! Page sizes and their limits.

use super::*;
use crate::testing::{amounts, first, pod, texts};

fn machine() -> MachineProperties {
    MachineProperties { huge_page_sizes: texts(&["2MB", "1GB"]), ..MachineProperties::default() }
}

fn shown(limits: &[(String, u64)]) -> String {
    let shown: Vec<String> = limits.iter().map(|(size, bytes)| format!("{size}:{bytes}")).collect();
    shown.join(" ")
}

#[test]
fn sizes_have_the_kernels_names() {
    for (bytes, name) in [
        (2 << 20, Some("2MB")),
        (1 << 30, Some("1GB")),
        (64 << 10, Some("64KB")),
        (512 << 20, Some("512MB")),
        (16 << 30, Some("16GB")),
        (1023, Some("1023B")),
        (1024, Some("1KB")),
        (1025, None),
        (1 << 60, Some("1024PB")),
        (1 << 61, None),
        (-1024, None),
        (2000 << 20, None),
        (0, None),
        (-1, None),
    ] {
        assert_eq!(size_name(bytes).as_deref(), name, "{bytes}");
    }
}

#[test]
fn every_size_is_limited() {
    for (of_pod, own, expected) in [
        ("", "", "2MB:0 1GB:0"),
        ("", "hugepages-2Mi: 4Mi", "2MB:4194304 1GB:0"),
        ("", "hugepages-1Gi: 1Gi, hugepages-2Mi: 2Mi", "2MB:2097152 1GB:1073741824"),
        ("hugepages-2Mi: 8Mi", "", "2MB:8388608 1GB:0"),
        ("hugepages-2Mi: 8Mi", "hugepages-2Mi: 4Mi", "2MB:4194304 1GB:0"),
        ("", "hugepages-64Ki: 64Ki", "2MB:0 1GB:0"),
        ("", "memory: 1Gi", "2MB:0 1GB:0"),
    ] {
        let pod = pod(&format!(
            "{{resources: {{limits: {{{of_pod}}}}}, containers: [{{name: a, image: i, resources: {{limits: {{{own}}}}}}}]}}"
        ));
        let limits = of_container(&pod, first(&pod), &machine(), &SetupGates::default());
        assert_eq!(shown(&limits), expected, "{of_pod} {own}");
    }
}

#[test]
fn limits_above_containers() {
    let asked = amounts(&[("hugepages-2Mi", "6Mi"), ("cpu", "1")]);
    assert_eq!(shown(&of_requests(&asked, &machine())), "2MB:6291456 1GB:0");
    assert_eq!(shown(&unbounded(&machine())), "2MB:4611686018427387904 1GB:4611686018427387904");
    assert_eq!(of_requests(&asked, &MachineProperties::default()), []);
}
