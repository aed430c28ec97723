//! Series agree with their descriptors; numbers are read from the right columns.

use std::collections::BTreeSet;

use cgroup_files::{CgroupHierarchies, CpuStats, DeviceIo, MemoryStats, PidsStats};

use super::*;

fn value_of<'a>(series: &'a MetricSeries, name: &str) -> Option<&'a v1::Metric> {
    series.all.iter().find(|metric| metric.name == name)
}

#[test]
fn every_series_has_the_labels_of_its_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cgroup.controllers"), "cpu memory").unwrap();
    let group = CgroupHierarchies::unified(dir.path()).unwrap().group("/a").unwrap();
    let mut stats = CgroupStats::default();
    stats.cpu.usage = Some(3_999_999_999);
    stats.memory.peak = Some(7);
    stats.memory.page_faults = Some(5);
    stats.io.push(DeviceIo { major: 4000, minor: 1, read_bytes: 1024, ..DeviceIo::default() });
    let mut series =
        MetricSeries::new(MetricLabels(["c", "g", "i", "n", "ns", "p"].map(str::to_owned)));
    series.cpu(&stats);
    series.memory(&stats);
    series.disks(&stats);
    series.processes(&stats, &group);
    series.limits(&v1::LinuxContainerResources { cpu_shares: 2, ..Default::default() });
    series.links(
        "eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    );
    let descriptors = table::descriptors();
    for metric in &series.all {
        let known = descriptors.iter().find(|one| one.name == metric.name).unwrap();
        assert_eq!(metric.label_values.len(), known.label_keys.len(), "{}", metric.name);
        assert_eq!(metric.label_values[..6], series.labels.0, "{}", metric.name);
    }
    let number = |name: &str| value_of(&series, name).and_then(|metric| Some(metric.value?.value));
    assert_eq!(number("container_cpu_usage_seconds_total"), Some(3));
    assert_eq!(number("container_cpu_user_seconds_total"), None, "not told, so left out");
    assert_eq!(number("container_memory_max_usage_bytes"), Some(7));
    assert_eq!(number("container_fs_sector_reads_total"), Some(2));
    assert_eq!(number("container_network_receive_packets_dropped_total"), Some(4));
    assert_eq!(number("container_network_transmit_errors_total"), Some(11));
    assert_eq!(number("container_spec_cpu_shares"), Some(2));
    let device = value_of(&series, "container_fs_reads_total").unwrap();
    assert_eq!(device.label_values[6], "4000:1", "a disk without a name");
    let links = series.all.iter().filter(|metric| metric.name.contains("_receive_bytes_"));
    assert_eq!(links.count(), 1, "loopback is nobody's traffic");
}

/// Every descriptor must have a series.
#[test]
fn every_descriptor_has_a_series_when_all_kernel_values_exist() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cgroup.controllers"), "cpu memory").unwrap();
    let group = CgroupHierarchies::unified(dir.path()).unwrap().group("/a").unwrap();
    let some = Some(1);
    let stats = CgroupStats {
        cpu: CpuStats {
            usage: some,
            user: some,
            system: some,
            periods: some,
            throttled_periods: some,
            throttled: some,
            pressure: None,
        },
        memory: MemoryStats {
            usage: some,
            peak: some,
            working_set: some,
            anonymous: some,
            file: some,
            mapped_file: some,
            inactive_file: some,
            active_file: some,
            kernel: some,
            page_faults: some,
            major_page_faults: some,
            swap: some,
            failures: some,
            ..MemoryStats::default()
        },
        pids: PidsStats { current: some, limit: some },
        io: vec![DeviceIo { major: 4000, minor: 1, ..DeviceIo::default() }],
        ..CgroupStats::default()
    };
    let mut series = MetricSeries::new(MetricLabels::default());
    series.times(1);
    series.layer(dir.path(), 1);
    series.kills(some);
    series.cpu(&stats);
    series.memory(&stats);
    series.disks(&stats);
    series.processes(&stats, &group);
    series.limits(&v1::LinuxContainerResources {
        cpu_period: 1,
        cpu_shares: 2,
        memory_limit_in_bytes: 1,
        memory_swap_limit_in_bytes: 1,
        ..Default::default()
    });
    series.links("eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n");
    let given: BTreeSet<&str> = series.all.iter().map(|metric| metric.name.as_str()).collect();
    let described: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(given, described);
}

#[test]
fn metric_names_are_unique() {
    let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len());
}
