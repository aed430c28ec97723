//! Every metric by name: its help text, its type, and its labels beside the common ones.

use cri_wire::v1::{MetricDescriptor, MetricType};

/// Labels of every series, in this order: the container's name, its cgroup, its image, its id, its
/// pod's namespace and name. Metrics of a whole pod have no container and no image.
pub(super) const LABELS: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];

#[derive(Debug)]
pub(super) struct MetricSpec {
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    pub(super) extra_labels: &'static [&'static str],
    pub(super) help: &'static str,
}

const fn counter(
    name: &'static str,
    extra_labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind: MetricType::Counter, extra_labels, help }
}

const fn gauge(
    name: &'static str,
    extra_labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind: MetricType::Gauge, extra_labels, help }
}

pub(super) fn descriptors() -> Vec<MetricDescriptor> {
    let describe = |metric: &MetricSpec| MetricDescriptor {
        name: metric.name.to_owned(),
        help: metric.help.to_owned(),
        label_keys: LABELS
            .iter()
            .chain(metric.extra_labels)
            .map(|label| (*label).to_owned())
            .collect(),
    };
    METRICS.iter().map(describe).collect()
}

pub(super) const METRICS: &[MetricSpec] = &[
    counter("container_cpu_usage_seconds_total", &[], "CPU time used, in seconds"),
    counter(
        "container_cpu_user_seconds_total",
        &[],
        "CPU time used outside the kernel, in seconds",
    ),
    counter("container_cpu_system_seconds_total", &[], "CPU time used in the kernel, in seconds"),
    counter("container_cpu_cfs_periods_total", &[], "Periods in which the CPU limit was counted"),
    counter(
        "container_cpu_cfs_throttled_periods_total",
        &[],
        "Periods in which the CPU limit was reached",
    ),
    counter(
        "container_cpu_cfs_throttled_seconds_total",
        &[],
        "Time held back by the CPU limit, in seconds",
    ),
    gauge("container_memory_usage_bytes", &[], "Memory in use, file pages included"),
    gauge("container_memory_max_usage_bytes", &[], "The most memory that was in use"),
    gauge(
        "container_memory_working_set_bytes",
        &[],
        "Memory in use without file pages that can go",
    ),
    gauge("container_memory_rss", &[], "Memory that no file backs"),
    gauge("container_memory_cache", &[], "File pages in memory"),
    gauge("container_memory_kernel_usage", &[], "Memory that the kernel uses for it"),
    gauge("container_memory_mapped_file", &[], "File pages that are mapped"),
    gauge("container_memory_swap", &[], "Memory in swap"),
    counter("container_memory_failcnt", &[], "How often the memory limit was reached"),
    gauge("container_memory_total_active_file_bytes", &[], "File pages that were used lately"),
    gauge(
        "container_memory_total_inactive_file_bytes",
        &[],
        "File pages that were not used lately",
    ),
    counter("container_memory_failures_total", &["failure_type", "scope"], "Page faults, by kind"),
    counter("container_oom_events_total", &[], "Processes killed for want of memory"),
    counter("container_network_receive_bytes_total", &["interface"], "Bytes received"),
    counter("container_network_receive_packets_total", &["interface"], "Packets received"),
    counter(
        "container_network_receive_packets_dropped_total",
        &["interface"],
        "Packets dropped on receipt",
    ),
    counter("container_network_receive_errors_total", &["interface"], "Errors on receipt"),
    counter("container_network_transmit_bytes_total", &["interface"], "Bytes sent"),
    counter("container_network_transmit_packets_total", &["interface"], "Packets sent"),
    counter(
        "container_network_transmit_packets_dropped_total",
        &["interface"],
        "Packets dropped before they were sent",
    ),
    counter("container_network_transmit_errors_total", &["interface"], "Errors on sending"),
    gauge("container_fs_usage_bytes", &["device"], "Bytes written to its own layer"),
    gauge("container_fs_limit_bytes", &["device"], "Size of the file system of its layer"),
    gauge("container_fs_inodes_total", &["device"], "Inodes of that file system"),
    gauge("container_fs_inodes_free", &["device"], "Inodes of that file system that are free"),
    counter("container_fs_reads_bytes_total", &["device"], "Bytes read from disks"),
    counter("container_fs_reads_total", &["device"], "Reads from disks"),
    counter("container_fs_sector_reads_total", &["device"], "Sectors read from disks"),
    counter("container_fs_writes_bytes_total", &["device"], "Bytes written to disks"),
    counter("container_fs_writes_total", &["device"], "Writes to disks"),
    counter("container_fs_sector_writes_total", &["device"], "Sectors written to disks"),
    counter(
        "container_blkio_device_usage_total",
        &["device", "major", "minor", "operation"],
        "Bytes moved by disks, by operation",
    ),
    gauge("container_processes", &[], "Processes"),
    gauge("container_threads", &[], "Threads"),
    gauge("container_threads_max", &[], "The most threads allowed; 0 for no limit"),
    gauge("container_file_descriptors", &[], "Open descriptors"),
    gauge("container_sockets", &[], "Open sockets"),
    gauge("container_last_seen", &[], "When this was read, in seconds since 1970"),
    gauge("container_start_time_seconds", &[], "When it was started, in seconds since 1970"),
    gauge("container_spec_cpu_period", &[], "The CPU limit's period, in microseconds"),
    gauge("container_spec_cpu_shares", &[], "Its shares of CPU time"),
    gauge("container_spec_memory_limit_bytes", &[], "Its memory limit; 0 for none"),
    gauge("container_spec_memory_swap_limit_bytes", &[], "Its limit on memory and swap together"),
];
