//! The adapters of the ports that running pods needs.
//!
//! Rule: wiring only. A source that is not usable reports that itself, and the others serve.

use super::cluster::{ApiConnection, cluster_dependencies};
use super::credential_providers;
use super::fixed_metrics::FixedMetrics;
use super::host_addresses::MachineAddresses;
use super::host_texts::MachineTexts;
use super::machine;
use super::plugins::plugin_dependencies;
use super::pod_settings::{NodeIdentity, pod_settings};
use super::port::kubelet_port;
use crate::doctor::facts;
use crate::idle_memory::IdleMemory;
use anyhow::{Context, Result};
use apiserver_client::{ApiContents, NoApiServer, ProxyEnvironment, RequestMetrics};
use cri_client::CriClient;
use host_cgroups::{CgroupManager, CgroupSetup, HostCgroups, KernelLog, KernelLogStart};
use host_files::{HostPodDirs, HostPullRecords, HostRecords};
use host_process::process_metrics::ProcessMetrics;
use host_volumes::{HostVolumes, StepProgram};
use network_probe::HostNetworkProber;
use node_agent::{ClusterDependencies, PodDependencies, PodPorts};
use node_api::{HealthCheckCounts, KubeletPort};
use node_config::{KubeletConfiguration, NodeConfig};
use pod_model::GoDuration;
use pod_sources::{FileSource, UrlSource};
use ports::pod_host::OomKillLog;
use ports::pod_sources::ManifestSource;
use ports::{EventSink, KubeletEndpoint, MetricSource, PodContents};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// The directory that log shippers read.
const LOG_LINKS: &str = "/var/log/containers";
const DEFAULT_CHECK: Duration = Duration::from_secs(20);

pub(crate) async fn pod_dependencies(
    config: &NodeConfig,
    runtime: &Arc<CriClient>,
    idle_memory: &IdleMemory,
    proxies: &ProxyEnvironment,
    health_counts: &Arc<HealthCheckCounts>,
) -> Result<PodDependencies> {
    let settings = config.settings();
    let root = Path::new(&config.flags().root_dir);
    let dirs = HostPodDirs::new(root, Path::new(&settings.pod_logs_dir), Path::new(LOG_LINKS));
    let dirs = Arc::new(dirs);
    let cgroups = CgroupSetup::detect(configured_driver(settings));
    let cgroups = Arc::new(HostCgroups::new(cgroups.context("cgroups of this machine")?));
    let ports = PodPorts {
        runtime: runtime.clone(),
        dirs: dirs.clone(),
        cgroups: cgroups.clone(),
        volumes: Arc::new(HostVolumes::new(root, Some(step_program()))),
        records: Arc::new(HostRecords::new(root)),
        prober: Arc::new(HostNetworkProber::new()),
        texts: Arc::new(MachineTexts::default()),
        addresses: Arc::new(MachineAddresses::new(configured_addresses(config))),
        logs: dirs,
        credential_programs: Arc::new(credential_providers::programs(config)),
        pull_records: Arc::new(HostPullRecords::new(root)),
        contents: Arc::new(NoApiServer),
        periodic_tasks: Arc::new(idle_memory.clone()),
    };
    let node = node(config).await;
    let requests = Arc::new(RequestMetrics::default());
    let connection = ApiConnection { proxies, metrics: requests.clone() };
    let cluster = cluster_dependencies(config, &node.name, &node.machine, &connection)?;
    let reviews = cluster.as_ref().map(|cluster| cluster.api.clone());
    let port = kubelet_port(config, &node.name, reviews, runtime)?;
    let port = port.map(|port| port.with_health_counts(health_counts.clone()));
    let mut metric_sources: Vec<Arc<dyn MetricSource>> =
        vec![runtime.clone(), cgroups, Arc::new(ProcessMetrics::default())];
    metric_sources.push(Arc::new(FixedMetrics::new(config)));
    metric_sources.push(requests);
    metric_sources.extend(port.as_ref().map(KubeletPort::metrics));
    let port = port.map(|port| Arc::new(port) as Arc<dyn KubeletEndpoint>);
    let ports = PodPorts { contents: contents(cluster.as_ref()), ..ports };
    if cluster.is_none() {
        info!(node = node.name, addresses = ?node.ips, "Running pods as a standalone node");
    }
    Ok(PodDependencies {
        ports,
        settings: pod_settings(config, &node)?,
        sources: sources(settings, idle_memory),
        oom_kills: oom_kills(),
        events: cluster.as_ref().map(|cluster| cluster.events.clone() as Arc<dyn EventSink>),
        metric_sources,
        local: None,
        port,
        cluster,
        plugins: Some(plugin_dependencies(config)),
        kill_now: watch::Sender::new(false).subscribe(),
    })
}

/// What pods take from the API server, if there is one.
fn contents(cluster: Option<&ClusterDependencies>) -> Arc<dyn PodContents> {
    match cluster {
        Some(cluster) => Arc::new(ApiContents::new(cluster.api.clone())),
        None => Arc::new(NoApiServer),
    }
}

/// This very program, even after its file was replaced by a newer one.
fn step_program() -> StepProgram {
    StepProgram {
        program: PathBuf::from("/proc/self/exe"),
        arguments: vec![crate::HOST_VOLUME_STEP.into()],
    }
}

/// The cgroup driver for a runtime that does not report its own.
fn configured_driver(settings: &KubeletConfiguration) -> CgroupManager {
    if settings.cgroup_driver == "systemd" {
        CgroupManager::Systemd
    } else {
        CgroupManager::CgroupFs
    }
}

/// Without the kernel log, OOM kills are still counted per container, without the killed process.
fn oom_kills() -> Option<Box<dyn OomKillLog>> {
    match KernelLog::open(KernelLogStart::Oldest) {
        Ok(log) => Some(Box::new(log)),
        Err(error) => {
            warn!(err = %error, "Processes that the kernel kills for memory will not be named");
            None
        }
    }
}

/// The addresses of `--node-ip`.
fn configured_addresses(config: &NodeConfig) -> Vec<IpAddr> {
    let configured = config.flags().node_ip.split(',').filter_map(|ip| ip.trim().parse().ok());
    configured.filter(|ip: &IpAddr| !ip.is_unspecified()).collect()
}

async fn node(config: &NodeConfig) -> NodeIdentity {
    let flags = config.flags();
    let here = Path::new("/");
    let configured = configured_addresses(config);
    NodeIdentity {
        name: machine::node_name(&flags.hostname_override),
        ips: if configured.is_empty() { machine::addresses() } else { configured },
        machine: machine::MachineSize {
            storage_bytes: machine::storage_bytes(Path::new(&flags.root_dir)),
            subordinate_users: machine::subordinate_users(here).await,
            ..machine::read(here)
        },
        cgroup_v2: facts::for_start(here).unified_cgroups == Some(true),
    }
}

fn sources(
    settings: &KubeletConfiguration,
    idle_memory: &IdleMemory,
) -> Vec<Box<dyn ManifestSource>> {
    let check = |period: GoDuration| period.as_std().unwrap_or(DEFAULT_CHECK);
    let mut sources: Vec<Box<dyn ManifestSource>> = Vec::new();
    if !settings.static_pod_path.is_empty() {
        let path = Path::new(&settings.static_pod_path);
        info!(path = %path.display(), "Adding static pod path");
        let source = FileSource::new(path, check(settings.file_check_frequency));
        let idle_memory = idle_memory.clone();
        sources.push(Box::new(source.on_unchanged(move || idle_memory.on_periodic_work())));
    }
    if !settings.static_pod_url.is_empty() {
        let headers = settings.static_pod_url_header.iter();
        let headers = headers.flat_map(|(name, values)| {
            values.iter().map(move |value| (name.clone(), value.clone()))
        });
        let url = &settings.static_pod_url;
        let period = check(settings.http_check_frequency);
        sources.push(Box::new(UrlSource::new(url, headers.collect(), period)));
    }
    sources
}
