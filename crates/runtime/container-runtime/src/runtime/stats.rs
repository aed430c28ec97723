//! Resource usage of containers and pods.
//!
//! Rule: cgroups are read on each request; the size of a container's writable layer is counted at
//! most every ten seconds, because that walks its files. A rate needs two readings: the first
//! response has none.
//!
//! upstream: containerd internal/cri/server/container_stats_list.go, sandbox_stats_linux.go

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cgroup_files::{CgroupStats, CpuStats, MemoryStats, PidsStats, PsiData, PsiStats};
use cri_wire::v1;

use super::Runtime;
use super::container_views::state_of;
use crate::clock::nanoseconds;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::filters;
use crate::network::INSIDE;
use crate::record_store::{Container, Sandbox};
use crate::records::SandboxStage;
use crate::specification::group_of_pod;

const COUNT_AGAIN: Duration = Duration::from_secs(10);
/// Rates over shorter intervals are noise.
const SHORTEST_RATE: Duration = Duration::from_millis(100);

/// Earlier readings.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    written: Mutex<HashMap<String, (Instant, image_store::Usage)>>,
    cpu: Mutex<HashMap<String, CpuReading>>,
}

#[derive(Debug, Clone, Copy)]
struct CpuReading {
    at: Instant,
    nanoseconds: u64,
    rate: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Usage {
    pub(super) fn forget(&self, id: &str) {
        lock(&self.written).remove(id);
        lock(&self.cpu).remove(id);
    }

    /// Nano-cores since the last reading.
    fn rate(&self, id: &str, nanoseconds: u64) -> Option<u64> {
        let now = Instant::now();
        let mut readings = lock(&self.cpu);
        let last = readings.get(id).copied();
        let rate = match last {
            Some(last) if now - last.at < SHORTEST_RATE => return last.rate,
            Some(last) => {
                let passed = (now - last.at).as_nanos();
                let used = u128::from(nanoseconds.saturating_sub(last.nanoseconds));
                u64::try_from(used * 1_000_000_000 / passed.max(1)).ok()
            }
            None => None,
        };
        readings.insert(id.to_owned(), CpuReading { at: now, nanoseconds, rate });
        rate
    }
}

fn value(value: u64) -> v1::UInt64Value {
    v1::UInt64Value { value }
}

fn pressure(pressure: Option<&PsiStats>) -> Option<v1::PsiStats> {
    let line = |line: &PsiData| v1::PsiData {
        total: line.total,
        avg10: line.average_10,
        avg60: line.average_60,
        avg300: line.average_300,
    };
    pressure.map(|all| v1::PsiStats { full: Some(line(&all.full)), some: Some(line(&all.some)) })
}

fn cpu(stats: &CgroupStats, rate: Option<u64>) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: nanoseconds(),
        usage_core_nano_seconds: stats.cpu.usage.map(value),
        usage_nano_cores: rate.map(value),
        psi: pressure(stats.cpu.pressure.as_ref()),
    }
}

fn memory(stats: &CgroupStats) -> v1::MemoryUsage {
    let memory = &stats.memory;
    let available = match (memory.limit, memory.working_set) {
        (Some(limit), Some(used)) => Some(limit.saturating_sub(used)),
        _ => Some(0),
    };
    v1::MemoryUsage {
        timestamp: nanoseconds(),
        working_set_bytes: memory.working_set.map(value),
        available_bytes: available.map(value),
        usage_bytes: memory.usage.map(value),
        rss_bytes: memory.anonymous.map(value),
        page_faults: memory.page_faults.map(value),
        major_page_faults: memory.major_page_faults.map(value),
        psi: pressure(memory.pressure.as_ref()),
    }
}

fn io(stats: &CgroupStats) -> v1::IoUsage {
    v1::IoUsage { timestamp: nanoseconds(), psi: pressure(stats.io_pressure.as_ref()) }
}

/// The sum of CRI's stats. Unknown if one part is unknown; 0 without parts.
fn sum(parts: &[CgroupStats]) -> CgroupStats {
    let of = |field: fn(&CgroupStats) -> Option<u64>| parts.iter().map(field).sum::<Option<u64>>();
    CgroupStats {
        cpu: CpuStats { usage: of(|one| one.cpu.usage), ..CpuStats::default() },
        memory: MemoryStats {
            usage: of(|one| one.memory.usage),
            working_set: of(|one| one.memory.working_set),
            anonymous: of(|one| one.memory.anonymous),
            page_faults: of(|one| one.memory.page_faults),
            major_page_faults: of(|one| one.memory.major_page_faults),
            ..MemoryStats::default()
        },
        pids: PidsStats { current: of(|one| one.pids.current), limit: None },
        ..CgroupStats::default()
    }
}

impl Runtime {
    pub async fn container_stats(&self, id: &str) -> Result<v1::ContainerStats> {
        let container = self.record_store.container(id).doing("failed to find container")?;
        self.stats_of(&container).await
    }

    pub async fn list_container_stats(
        &self,
        filter: Option<v1::ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>> {
        let filter = filter.unwrap_or_default();
        let id =
            self.record_store.container(&filter.id).map_or(filter.id.clone(), |it| it.id.clone());
        let sandbox = self
            .record_store
            .sandbox(&filter.pod_sandbox_id)
            .map_or(filter.pod_sandbox_id.clone(), |it| it.id.clone());
        let mut all = Vec::new();
        for container in self.record_store.containers() {
            let record = container.record();
            let labels = record.config.as_ref().map(|config| &config.labels);
            let wanted = (id.is_empty() || container.id == id)
                && (sandbox.is_empty() || container.sandbox_id == sandbox)
                && labels
                    .is_none_or(|labels| filters::labels_match(labels, &filter.label_selector));
            if wanted && state_of(&record) == v1::ContainerState::ContainerRunning {
                // A container that has just ended is left out.
                all.extend(self.stats_of(&container).await.ok());
            }
        }
        Ok(all)
    }

    async fn stats_of(&self, container: &Container) -> Result<v1::ContainerStats> {
        let record = container.record();
        let config = record.config.unwrap_or_default();
        let attributes = v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        };
        let written = self.written(&container.id).await?;
        let writable_layer = v1::FilesystemUsage {
            timestamp: nanoseconds(),
            fs_id: Some(v1::FilesystemIdentifier {
                mountpoint: self.images.root().display().to_string(),
            }),
            used_bytes: Some(value(written.bytes)),
            inodes_used: Some(value(written.inodes)),
        };
        let stats = self.group_stats(&record.cgroup).await?;
        let rate = stats.cpu.usage.and_then(|usage| self.usage.rate(&container.id, usage));
        let swap = v1::SwapUsage {
            timestamp: nanoseconds(),
            swap_available_bytes: stats
                .memory
                .swap_limit
                .map(|limit| value(limit.saturating_sub(stats.memory.swap.unwrap_or_default()))),
            swap_usage_bytes: stats.memory.swap.map(value),
        };
        Ok(v1::ContainerStats {
            attributes: Some(attributes),
            cpu: Some(cpu(&stats, rate)),
            memory: Some(memory(&stats)),
            writable_layer: Some(writable_layer),
            swap: Some(swap),
            io: Some(io(&stats)),
        })
    }

    /// The usage of a pod without a cgroup of its own.
    async fn sum_of_containers(&self, sandbox: &str) -> CgroupStats {
        let mut all = Vec::new();
        for container in self.record_store.containers_of(sandbox) {
            let record = container.record();
            if state_of(&record) == v1::ContainerState::ContainerRunning {
                // A container that has just ended is left out.
                all.extend(self.group_stats(&record.cgroup).await.ok());
            }
        }
        sum(&all)
    }

    async fn group_stats(&self, path: &str) -> Result<CgroupStats> {
        let group =
            self.hierarchy.group(path).map_err(|error| CriError::plain(error.to_string()))?;
        blocking(move || {
            if !group.exists_in_any_hierarchy() {
                return Err(CriError::not_found(format!("the group {} is gone", group.path())));
            }
            group.stats().map_err(|error| CriError::plain(error.to_string()))
        })
        .await
    }

    /// The size of a container's writable layer, counted recently.
    pub(super) async fn written(&self, id: &str) -> Result<image_store::Usage> {
        if let Some((at, usage)) = lock(&self.usage.written).get(id)
            && at.elapsed() < COUNT_AGAIN
        {
            return Ok(*usage);
        }
        let name = id.to_owned();
        let usage = self.images.with_store(move |store| Ok(store.view_usage(&name)?)).await?;
        lock(&self.usage.written).insert(id.to_owned(), (Instant::now(), usage));
        Ok(usage)
    }

    pub async fn pod_sandbox_stats(&self, id: &str) -> Result<v1::PodSandboxStats> {
        let sandbox = self
            .record_store
            .sandbox(id)
            .doing(format!("an error occurred when trying to find sandbox {id}"))?;
        self.stats_of_pod(&sandbox).await
    }

    pub async fn list_pod_sandbox_stats(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>> {
        let filter = filter.unwrap_or_default();
        let id =
            self.record_store.sandbox(&filter.id).map_or(filter.id.clone(), |it| it.id.clone());
        let mut all = Vec::new();
        for sandbox in self.record_store.sandboxes() {
            let record = sandbox.record();
            let labels = record.config.as_ref().map(|config| &config.labels);
            let wanted = (id.is_empty() || sandbox.id == id)
                && labels
                    .is_none_or(|labels| filters::labels_match(labels, &filter.label_selector));
            if wanted && record.stage() == SandboxStage::Ready {
                all.extend(self.stats_of_pod(&sandbox).await.ok());
            }
        }
        Ok(all)
    }

    async fn stats_of_pod(&self, sandbox: &Sandbox) -> Result<v1::PodSandboxStats> {
        let record = sandbox.record();
        if record.stage() != SandboxStage::Ready {
            return Err(CriError::plain(format!(
                "failed to decode sandbox container metrics for sandbox {:?}: it is not ready",
                sandbox.id
            )));
        }
        let config = record.config.clone().unwrap_or_default();
        let stats = match group_of_pod(&config) {
            Some(path) => self.group_stats(&path).await.unwrap_or_default(),
            None => self.sum_of_containers(&sandbox.id).await,
        };
        let rate = stats.cpu.usage.and_then(|usage| self.usage.rate(&sandbox.id, usage));
        let mut containers = Vec::new();
        for container in self.record_store.containers_of(&sandbox.id) {
            if state_of(&container.record()) == v1::ContainerState::ContainerRunning {
                containers.extend(self.stats_of(&container).await.ok());
            }
        }
        let network = match &record.network {
            Some(network) if !network.closed => self.network_usage(&network.namespace).await.ok(),
            _ => None,
        };
        Ok(v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes {
                id: sandbox.id.clone(),
                metadata: config.metadata,
                labels: config.labels,
                annotations: config.annotations,
            }),
            linux: Some(v1::LinuxPodSandboxStats {
                cpu: Some(cpu(&stats, rate)),
                memory: Some(memory(&stats)),
                network,
                process: Some(v1::ProcessUsage {
                    timestamp: nanoseconds(),
                    process_count: stats.pids.current.map(value),
                }),
                containers,
                io: Some(io(&stats)),
            }),
            windows: None,
        })
    }

    async fn network_usage(&self, namespace: &str) -> Result<v1::NetworkUsage> {
        Ok(links(&self.link_table(namespace).await?))
    }

    /// The kernel's table of links in a pod's namespace.
    pub(super) async fn link_table(&self, namespace: &str) -> Result<String> {
        let path = namespace.to_owned();
        blocking(move || {
            use std::os::fd::AsFd as _;
            let file = std::fs::File::open(&path).doing(format!("opening {path}"))?;
            Ok(netlink::in_namespace(file.as_fd(), || {
                // A pod may name a link by any bytes.
                let table = std::fs::read("/proc/thread-self/net/dev").unwrap_or_default();
                Ok(String::from_utf8_lossy(&table).into_owned())
            })?)
        })
        .await
    }
}

/// Parses the kernel's table of link counters.
fn links(text: &str) -> v1::NetworkUsage {
    let mut usage = v1::NetworkUsage { timestamp: nanoseconds(), ..Default::default() };
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> =
            numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let (name, at) = (name.trim(), |index: usize| numbers.get(index).copied().map(value));
        if name == "lo" || numbers.len() < 16 {
            continue;
        }
        let link = v1::NetworkInterfaceUsage {
            name: name.to_owned(),
            rx_bytes: at(0),
            rx_errors: at(2),
            tx_bytes: at(8),
            tx_errors: at(10),
        };
        if name == INSIDE {
            usage.default_interface = Some(link);
        } else {
            usage.interfaces.push(link);
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_counters_are_read_by_column() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            \x20 eth0: 100 2 3 4 5 6 7 8 900 10 11 12 13 14 15 16\n";
        let usage = links(text);
        let link = usage.default_interface.unwrap();
        assert_eq!((link.rx_bytes, link.rx_errors), (Some(value(100)), Some(value(3))));
        assert_eq!((link.tx_bytes, link.tx_errors), (Some(value(900)), Some(value(11))));
        assert!(usage.interfaces.is_empty());
    }

    #[test]
    fn pressure_is_reported_where_the_kernel_has_it() {
        assert_eq!(io(&CgroupStats::default()).psi, None);
        let some = PsiData { average_10: 1.5, total: 77, ..PsiData::default() };
        let pressure = PsiStats { some, ..PsiStats::default() };
        let stats = CgroupStats { io_pressure: Some(pressure), ..CgroupStats::default() };
        let shown = io(&stats).psi.unwrap();
        let some = shown.some.unwrap();
        assert_eq!((some.avg10, some.total), (1.5, 77));
        assert_eq!(shown.full.unwrap().total, 0);
        assert_eq!((cpu(&stats, None).psi, memory(&stats).psi), (None, None));
    }

    #[test]
    fn usage_of_a_pod_without_a_cgroup_is_the_sum_of_its_containers() {
        let of = |cpu, memory, pids| CgroupStats {
            cpu: CpuStats { usage: Some(cpu), ..CpuStats::default() },
            memory: MemoryStats {
                usage: Some(memory + 3),
                working_set: Some(memory),
                anonymous: Some(memory + 1),
                page_faults: Some(memory + 2),
                major_page_faults: Some(1),
                ..MemoryStats::default()
            },
            pids: PidsStats { current: Some(pids), limit: Some(9) },
            ..CgroupStats::default()
        };
        assert_eq!(sum(&[of(5, 100, 1), of(7, 200, 2)]), {
            let mut sum = of(12, 300, 3);
            sum.memory.usage = Some(306);
            sum.memory.anonymous = Some(302);
            sum.memory.page_faults = Some(304);
            sum.memory.major_page_faults = Some(2);
            sum.pids.limit = None;
            sum
        });
        assert_eq!(sum(&[]).memory.working_set, Some(0));
        let unknown = sum(&[of(5, 100, 1), CgroupStats::default()]);
        assert_eq!((unknown.cpu.usage, unknown.pids.current), (None, None));
    }

    #[test]
    fn a_cpu_rate_needs_two_readings() {
        let usage = Usage::default();
        let begun = Instant::now();
        assert_eq!(usage.rate("a", 0), None);
        assert_eq!(usage.rate("a", 5), None, "too soon");
        std::thread::sleep(Duration::from_millis(120));
        let rate = usage.rate("a", 60_000_000).unwrap();
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap();
        let least = 60_000_000 * 1_000_000_000 / took;
        assert!((least..=600_000_000).contains(&rate), "{rate} of at least {least}");
    }
}
