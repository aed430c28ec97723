//! ListMetricDescriptors and ListPodSandboxMetrics: container metrics under the names that
//! dashboards use.
//!
//! Rule: names and meanings are those of cAdvisor, from which kubelets took them before runtimes
//! did; labels are the same for every series and always as many as its descriptor has, because a
//! kubelet drops a series otherwise. Values that the kernel does not provide are left out, never 0.
//!
//! upstream: containerd internal/cri/server/list_metric_descriptors_linux.go (the set),
//! pkg/kubelet/metrics/collectors/cri_metrics.go (how an agent reads it)

use std::path::Path;

use cgroup_files::{Cgroup, CgroupStats};
use cri_wire::v1;

use super::Runtime;
use super::container_views::state_of;
use crate::clock::nanoseconds;
use crate::failure::{CriError, Result, blocking};
use crate::record_store::{Container, Sandbox};
use crate::records::SandboxStage;
use crate::specification::group_of_pod;

mod table;

use table::{LABELS, METRICS};

const SECOND: u64 = 1_000_000_000;
const SECTOR: u64 = 512;

/// The label values of one container's or pod's series.
#[derive(Debug, Clone, Default)]
struct MetricLabels([String; LABELS.len()]);

/// Series being collected.
#[derive(Debug)]
struct MetricSeries {
    labels: MetricLabels,
    at: i64,
    all: Vec<v1::Metric>,
}

impl MetricSeries {
    fn new(labels: MetricLabels) -> Self {
        Self { labels, at: nanoseconds(), all: Vec::new() }
    }

    fn add(&mut self, name: &str, value: Option<u64>) {
        self.add_of(name, &[], value);
    }

    /// Adds a series with additional label values.
    fn add_of(&mut self, name: &str, extra_labels: &[&str], value: Option<u64>) {
        let known = METRICS.iter().find(|metric| metric.name == name);
        let (Some(value), Some(metric)) = (value, known) else { return };
        if metric.extra_labels.len() != extra_labels.len() {
            return;
        }
        let own = self.labels.0.iter().cloned();
        self.all.push(v1::Metric {
            name: name.to_owned(),
            timestamp: self.at,
            metric_type: metric.kind.into(),
            label_values: own.chain(extra_labels.iter().map(|one| (*one).to_owned())).collect(),
            value: Some(v1::UInt64Value { value }),
        });
    }

    /// The times of the reading and of the start (from the record), in nanoseconds.
    fn times(&mut self, started: i64) {
        let seconds = |time: i64| u64::try_from(time).ok().map(|time| time / SECOND);
        self.add("container_last_seen", seconds(self.at));
        self.add("container_start_time_seconds", seconds(started));
    }

    /// The container's writable layer, and the file system it is on.
    fn layer(&mut self, root: &Path, written: u64) {
        let disk = rustix::fs::statvfs(root).ok();
        let device = root.display().to_string();
        for (name, value) in [
            ("container_fs_usage_bytes", Some(written)),
            ("container_fs_limit_bytes", disk.as_ref().map(|disk| disk.f_blocks * disk.f_frsize)),
            ("container_fs_inodes_total", disk.as_ref().map(|disk| disk.f_files)),
            ("container_fs_inodes_free", disk.as_ref().map(|disk| disk.f_ffree)),
        ] {
            self.add_of(name, &[&device], value);
        }
    }

    fn cpu(&mut self, stats: &CgroupStats) {
        let seconds = |nanoseconds: Option<u64>| nanoseconds.map(|time| time / SECOND);
        let cpu = &stats.cpu;
        self.add("container_cpu_usage_seconds_total", seconds(cpu.usage));
        self.add("container_cpu_user_seconds_total", seconds(cpu.user));
        self.add("container_cpu_system_seconds_total", seconds(cpu.system));
        self.add("container_cpu_cfs_periods_total", cpu.periods);
        self.add("container_cpu_cfs_throttled_periods_total", cpu.throttled_periods);
        self.add("container_cpu_cfs_throttled_seconds_total", seconds(cpu.throttled));
    }

    fn memory(&mut self, stats: &CgroupStats) {
        let memory = &stats.memory;
        for (name, value) in [
            ("container_memory_usage_bytes", memory.usage),
            ("container_memory_max_usage_bytes", memory.peak),
            ("container_memory_working_set_bytes", memory.working_set),
            ("container_memory_rss", memory.anonymous),
            ("container_memory_cache", memory.file),
            ("container_memory_kernel_usage", memory.kernel),
            ("container_memory_mapped_file", memory.mapped_file),
            ("container_memory_swap", memory.swap),
            ("container_memory_failcnt", memory.failures),
            ("container_memory_total_active_file_bytes", memory.active_file),
            ("container_memory_total_inactive_file_bytes", memory.inactive_file),
        ] {
            self.add(name, value);
        }
        let failures = "container_memory_failures_total";
        self.add_of(failures, &["pgfault", "container"], memory.page_faults);
        self.add_of(failures, &["pgmajfault", "container"], memory.major_page_faults);
    }

    fn kills(&mut self, count: Option<u64>) {
        self.add("container_oom_events_total", count);
    }

    fn disks(&mut self, stats: &CgroupStats) {
        for io in &stats.io {
            let (major, minor) = (io.major.to_string(), io.minor.to_string());
            let device = device_name(&major, &minor);
            for (name, value) in [
                ("container_fs_reads_bytes_total", io.read_bytes),
                ("container_fs_reads_total", io.reads),
                ("container_fs_sector_reads_total", io.read_bytes / SECTOR),
                ("container_fs_writes_bytes_total", io.write_bytes),
                ("container_fs_writes_total", io.writes),
                ("container_fs_sector_writes_total", io.write_bytes / SECTOR),
            ] {
                self.add_of(name, &[&device], Some(value));
            }
            for (operation, value) in [("read", io.read_bytes), ("write", io.write_bytes)] {
                let labels = [device.as_str(), &major, &minor, operation];
                self.add_of("container_blkio_device_usage_total", &labels, Some(value));
            }
        }
    }

    fn processes(&mut self, stats: &CgroupStats, group: &Cgroup) {
        let processes = group.processes_beneath().unwrap_or_default();
        let (descriptors, sockets) = open_files(&processes);
        self.add("container_processes", u64::try_from(processes.len()).ok());
        self.add("container_threads", stats.pids.current);
        self.add("container_threads_max", Some(stats.pids.limit.unwrap_or_default()));
        self.add("container_file_descriptors", Some(descriptors));
        self.add("container_sockets", Some(sockets));
    }

    fn limits(&mut self, resources: &v1::LinuxContainerResources) {
        let set = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
        self.add("container_spec_cpu_period", set(resources.cpu_period));
        self.add("container_spec_cpu_shares", set(resources.cpu_shares));
        let memory = u64::try_from(resources.memory_limit_in_bytes).unwrap_or_default();
        self.add("container_spec_memory_limit_bytes", Some(memory));
        let swap = set(resources.memory_swap_limit_in_bytes);
        self.add("container_spec_memory_swap_limit_bytes", swap);
    }

    /// From the kernel's table of links: eight numbers received, eight sent.
    fn links(&mut self, text: &str) {
        for line in text.lines() {
            let Some((link, numbers)) = line.split_once(':') else { continue };
            let numbers: Vec<u64> =
                numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            let link = link.trim();
            if link == "lo" || numbers.len() < 16 {
                continue;
            }
            for (name, at) in [
                ("container_network_receive_bytes_total", 0),
                ("container_network_receive_packets_total", 1),
                ("container_network_receive_errors_total", 2),
                ("container_network_receive_packets_dropped_total", 3),
                ("container_network_transmit_bytes_total", 8),
                ("container_network_transmit_packets_total", 9),
                ("container_network_transmit_errors_total", 10),
                ("container_network_transmit_packets_dropped_total", 11),
            ] {
                self.add_of(name, &[link], numbers.get(at).copied());
            }
        }
    }
}

/// `/dev/vda` for the numbers of a disk; the numbers if it has no name.
fn device_name(major: &str, minor: &str) -> String {
    let numbers = format!("{major}:{minor}");
    let link = std::fs::read_link(format!("/sys/dev/block/{numbers}")).ok();
    let name = link.as_ref().and_then(|link| link.file_name()?.to_str());
    name.map_or(numbers, |name| format!("/dev/{name}"))
}

/// Numbers of descriptors and, among them, sockets. A process that has ended has none.
fn open_files(processes: &[u32]) -> (u64, u64) {
    let (mut all, mut sockets) = (0, 0);
    for process in processes {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fd")) else { continue };
        for entry in entries.flatten() {
            all += 1;
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
        }
    }
    (all, sockets)
}

impl Runtime {
    pub fn list_metric_descriptors(&self) -> Vec<v1::MetricDescriptor> {
        table::descriptors()
    }

    /// Metrics of every ready pod.
    pub async fn list_pod_sandbox_metrics(&self) -> Vec<v1::PodSandboxMetrics> {
        let mut all = Vec::new();
        for sandbox in self.record_store.sandboxes() {
            if sandbox.record().stage() == SandboxStage::Ready {
                all.push(self.metrics_of_pod(&sandbox).await);
            }
        }
        all
    }

    async fn metrics_of_pod(&self, sandbox: &Sandbox) -> v1::PodSandboxMetrics {
        let record = sandbox.record();
        let config = record.config.unwrap_or_default();
        let metadata = config.metadata.clone().unwrap_or_default();
        let mut series = MetricSeries::new(MetricLabels([
            String::new(),
            group_of_pod(&config).unwrap_or_default(),
            String::new(),
            sandbox.id.clone(),
            metadata.namespace.clone(),
            metadata.name.clone(),
        ]));
        if let Some(network) = record.network.filter(|network| !network.closed)
            && let Ok(text) = self.link_table(&network.namespace).await
        {
            series.links(&text);
        }
        let mut container_metrics = Vec::new();
        for container in self.record_store.containers_of(&sandbox.id) {
            if state_of(&container.record()) == v1::ContainerState::ContainerRunning {
                // A container that has just ended is left out.
                container_metrics
                    .extend(self.metrics_of_container(&container, &metadata).await.ok());
            }
        }
        v1::PodSandboxMetrics {
            pod_sandbox_id: sandbox.id.clone(),
            metrics: series.all,
            container_metrics,
        }
    }

    async fn metrics_of_container(
        &self,
        container: &Container,
        pod: &v1::PodSandboxMetadata,
    ) -> Result<v1::ContainerMetrics> {
        let record = container.record();
        let config = record.config.unwrap_or_default();
        let mut series = MetricSeries::new(MetricLabels([
            config.metadata.unwrap_or_default().name,
            record.cgroup.clone(),
            config.image.unwrap_or_default().image,
            container.id.clone(),
            pod.namespace.clone(),
            pod.name.clone(),
        ]));
        series.times(record.started_at);
        if let Some(resources) = &record.resources {
            series.limits(resources);
        }
        let written = self.written(&container.id).await?;
        series.layer(self.images.root(), written.bytes);
        let group = self
            .hierarchy
            .group(&record.cgroup)
            .map_err(|error| CriError::plain(error.to_string()))?;
        let metrics = blocking(move || {
            let stats = group.stats().map_err(|error| CriError::plain(error.to_string()))?;
            series.cpu(&stats);
            series.memory(&stats);
            series.kills(group.oom_kill_count().ok());
            series.disks(&stats);
            series.processes(&stats, &group);
            Ok(series.all)
        })
        .await?;
        Ok(v1::ContainerMetrics { container_id: container.id.clone(), metrics })
    }
}

#[cfg(test)]
mod tests;
