//! The configuration for pods, in the agent's types.
//!
//! Rule: conversion only; the machine's properties come in as a value.

use super::credential_providers;
use super::machine::{self, MachineSize};
use anyhow::{Context, Result, ensure};
use container_setup::allocatable::{self, Reservations, enforced, reported_allocatable};
use container_setup::cgroups::{PIDS, all_pods_limits, reserved_limits};
use container_setup::inputs::{
    MachineProperties, NodeDns, NodeLimits, NodeSecurity, NodeSetupInputs, SetupGates, SwapBehavior,
};
use node_agent::{
    CgroupSettings, ContentChangeStrategy, LogRotation, PodSettings, PullLimits, ReservedCgroup,
};
use node_config::feature_gates::Gate;
use node_config::{KubeletConfiguration, NodeConfig};
use node_policy::admission::{
    AllowedSysctls, DeclaredFeatures, FeatureGates, NodeCapacity, NodeSupport,
};
use node_policy::garbage::DeadContainerLimits;
use node_policy::image_access::Verification;
use node_policy::log_rotation::LogLimits;
use node_policy::user_namespace_ranges::{
    USUAL_LENGTH, UserNamespacePool, UserNamespaceRangeAllocator,
};
use pod_desired::ManifestOptions;
use pod_lifecycle::PodLifecycleSettings;
use pod_manifest::PodGates;
use pod_model::pod::ResourceList;
use pod_model::{CpuSet, GoDuration, LogSizeLimit, Quantity, QuantityFormat, ThresholdValue};
use ports::node_object::ResourceMap;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

const LOG_LOOK: Duration = Duration::from_secs(10);

/// The node with its machine.
#[derive(Debug, Clone)]
pub(super) struct NodeIdentity {
    pub(super) name: String,
    /// The primary one first.
    pub(super) ips: Vec<IpAddr>,
    pub(super) machine: MachineSize,
    pub(super) cgroup_v2: bool,
}

pub(super) fn pod_settings(config: &NodeConfig, node: &NodeIdentity) -> Result<PodSettings> {
    let settings = config.settings();
    let capacity = capacity(&node.machine);
    let reservations = reservations(config, &node.machine)?;
    // The allocatable would be negative, and no limit be set: upstream does not start either.
    allocatable::check(&capacity, &reservations).map_err(anyhow::Error::msg)?;
    let allocatable = reported_allocatable(&capacity, &reservations);
    let setup = setup(config, node, &allocatable);
    let is_enforced = settings.enforce_node_allocatable.iter().any(|word| word == "pods");
    // upstream: cm.internalCapacity: the limit of tasks is enforced, but not reported.
    let mut whole = capacity;
    if let Some(tasks) = node.machine.most_tasks {
        whole.insert(PIDS, Quantity::from_units(tasks, QuantityFormat::DecimalSi));
    }
    let kept = if is_enforced { enforced(&whole, &reservations) } else { whole };
    Ok(PodSettings {
        reading: ManifestOptions { node_name: node.name.clone(), gates: pod_gates(config) },
        lifecycle: lifecycle(config, node),
        resolv_conf: settings.resolv_conf.clone(),
        room: NodeCapacity {
            name: node.name.clone(),
            labels: labels(config, node),
            taints: Vec::new(),
            compares_tolerations: enabled(config, Gate::TaintTolerationComparisonOperators),
            pods: max_pods(settings, &node.machine),
            allocatable,
            waits_for_terminating_pods: false,
        },
        cgroups: CgroupSettings {
            per_qos: settings.cgroups_per_qos,
            root: parts(&settings.cgroup_root),
            enforced: settings.cgroups_per_qos.then(|| all_pods_limits(&kept, &setup)),
            reserved: reserved(settings, &reservations, &setup),
        },
        pulls: PullLimits {
            max_parallel: match (settings.serialize_image_pulls, settings.max_parallel_image_pulls)
            {
                (true, _) => Some(1),
                (false, most) => most.and_then(|most| usize::try_from(most).ok()),
            },
            per_second: u32::try_from(settings.registry_pull_qps).unwrap_or(0),
            burst: u32::try_from(settings.registry_burst).unwrap_or(0),
        },
        content_changes: content_changes(config.settings()),
        credential_providers: credential_providers::providers(config),
        image_verification: image_verification(config)?,
        dead: dead(config),
        root: config.flags().root_dir.clone(),
        abilities: abilities(config, node)?,
        user_namespace_ranges: user_namespace_ranges(settings, &node.machine),
        logs: log_rotation(settings),
        setup,
    })
}

fn abilities(config: &NodeConfig, node: &NodeIdentity) -> Result<NodeSupport> {
    let patterns = &config.settings().allowed_unsafe_sysctls;
    let sysctls = AllowedSysctls::new(node.machine.kernel, patterns);
    Ok(NodeSupport {
        sysctls: sysctls.map_err(anyhow::Error::msg).context("allowedUnsafeSysctls")?,
        app_armor: node.machine.is_app_armor_on,
        // Read from the runtime.
        strict_supplemental_groups: false,
        pod_level_resources: enabled(config, Gate::PodLevelResources),
        declared: declared(config),
    })
}

/// How changes of ConfigMaps and Secrets are noticed; validation knows no other word.
fn content_changes(settings: &KubeletConfiguration) -> ContentChangeStrategy {
    match settings.config_map_and_secret_change_detection_strategy.as_str() {
        "Cache" => ContentChangeStrategy::Cache,
        "Get" => ContentChangeStrategy::Get,
        _ => ContentChangeStrategy::Watch,
    }
}

/// None if the feature gate is off: then nothing is checked or recorded.
fn image_verification(config: &NodeConfig) -> Result<Option<Verification>> {
    if !enabled(config, Gate::KubeletEnsureSecretPulledImages) {
        return Ok(None);
    }
    let settings = config.settings();
    let policy = &settings.image_pull_credentials_verification_policy;
    let patterns = &settings.preloaded_images_verification_allowlist;
    Verification::from_config(policy, patterns).map(Some).map_err(anyhow::Error::msg)
}

/// The runtime is not asked whether it supports user namespaces on the host's network: that gate is
/// off, and a manifest that needs it is refused before.
fn declared(config: &NodeConfig) -> DeclaredFeatures {
    let on = |gate| enabled(config, gate);
    let gates = FeatureGates {
        declared: on(Gate::NodeDeclaredFeatures),
        extend_web_sockets: on(Gate::ExtendWebSocketsToKubelet),
        resize_pod_level: on(Gate::InPlacePodLevelResourcesVerticalScaling),
        resize_init: on(Gate::InPlacePodVerticalScalingInitContainers),
        restart_all: on(Gate::RestartAllContainersOnContainerExits),
        users_on_host_network: on(Gate::UserNamespacesHostNetworkSupport),
    };
    DeclaredFeatures::new(&gates, false)
}

/// The subordinate ids of the user `kubelet`, or else all of the machine's users.
fn user_namespace_ranges(
    settings: &KubeletConfiguration,
    machine: &MachineSize,
) -> Result<UserNamespaceRangeAllocator, String> {
    let configured =
        settings.user_namespaces.as_ref().and_then(|configured| configured.ids_per_pod);
    let length = configured.map_or(Ok(USUAL_LENGTH), u32::try_from);
    let length =
        length.map_err(|_| format!("userNamespaces.idsPerPod: {configured:?} is too large"))?;
    let pool = match &machine.subordinate_users {
        None => UserNamespacePool::whole(length),
        Some(reported_allocatable) => {
            let subids = reported_allocatable.as_ref().map_err(Clone::clone)?;
            UserNamespacePool::parse(subids, length).map_err(|error| error.to_string())?
        }
    };
    let pods = max_pods(settings, machine);
    UserNamespaceRangeAllocator::new(pool, pods).map_err(|error| error.to_string())
}

/// None if the size is negative: logs are not rotated.
fn log_rotation(settings: &KubeletConfiguration) -> Option<LogRotation> {
    let Ok(LogSizeLimit::Bytes(size)) = LogSizeLimit::parse(&settings.container_log_max_size)
    else {
        return None;
    };
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    Some(LogRotation {
        limits: LogLimits { size, files: count(settings.container_log_max_files) },
        workers: count(settings.container_log_max_workers),
        interval: settings.container_log_monitor_interval.as_std().unwrap_or(LOG_LOOK),
    })
}

/// The cgroups of other services that `enforceNodeAllocatable` names, with what is reserved in
/// them.
fn reserved(
    settings: &KubeletConfiguration,
    reservations: &Reservations,
    setup: &NodeSetupInputs,
) -> Vec<ReservedCgroup> {
    let levels = settings.enforce_node_allocatable.iter().filter_map(|level| {
        let (side, only_compressible) = match level.strip_suffix("-compressible") {
            Some(side) => (side, true),
            None => (level.as_str(), false),
        };
        let (path, amounts) = match side {
            "system-reserved" => (&settings.system_reserved_cgroup, &reservations.system),
            "kube-reserved" => (&settings.kube_reserved_cgroup, &reservations.kube),
            _ => return None,
        };
        Some(ReservedCgroup {
            level: level.clone(),
            path: path.clone(),
            limits: reserved_limits(amounts, only_compressible, setup),
        })
    });
    levels.collect()
}

fn enabled(config: &NodeConfig, gate: Gate) -> bool {
    config.gates().enabled(gate)
}

fn pod_gates(config: &NodeConfig) -> PodGates {
    let on = |gate| enabled(config, gate);
    PodGates {
        cluster_trust_bundle_projection: on(Gate::ClusterTrustBundleProjection),
        container_restart_rules: on(Gate::ContainerRestartRules),
        container_stop_signals: on(Gate::ContainerStopSignals),
        env_files: on(Gate::EnvFiles),
        hostname_override: on(Gate::HostnameOverride),
        pod_certificate_request: on(Gate::PodCertificateRequest),
        pod_level_resources: on(Gate::PodLevelResources),
        prevent_static_pod_api_references: on(Gate::PreventStaticPodAPIReferences),
        restart_all_containers: on(Gate::RestartAllContainersOnContainerExits),
        se_linux_mount: on(Gate::SELinuxMount),
        ..PodGates::default()
    }
}

fn lifecycle(config: &NodeConfig, node: &NodeIdentity) -> PodLifecycleSettings {
    let default = PodLifecycleSettings::default();
    let configured = config.settings().crash_loop_back_off.max_container_restart_period;
    let longest = configured.and_then(GoDuration::as_std);
    let longest = longest.filter(|_| enabled(config, Gate::KubeletCrashLoopBackOffMax));
    let (first, longest_otherwise) = if enabled(config, Gate::ReduceDefaultCrashLoopBackOffDecay) {
        (Duration::from_secs(1), Duration::from_secs(60))
    } else {
        (default.base_restart_period, default.max_restart_period)
    };
    let max_restart_period = longest.unwrap_or(longest_otherwise);
    PodLifecycleSettings {
        node_name: node.name.clone(),
        max_restart_period,
        base_restart_period: first.min(max_restart_period),
        prefers_ipv6: node.ips.first().is_some_and(IpAddr::is_ipv6),
        restart_rules: enabled(config, Gate::ContainerRestartRules),
        restart_all: enabled(config, Gate::RestartAllContainersOnContainerExits),
        ..default
    }
}

fn setup(config: &NodeConfig, node: &NodeIdentity, allocatable: &ResourceList) -> NodeSetupInputs {
    let settings = config.settings();
    let flags = config.flags();
    let machine = &node.machine;
    let default = NodeLimits::default();
    let period = settings.cpu_cfs_quota_period.as_std().map(|period| period.as_micros());
    NodeSetupInputs {
        node_ips: node.ips.clone(),
        pod_logs_directory: settings.pod_logs_dir.clone(),
        dns: NodeDns {
            cluster_servers: settings.cluster_dns.iter().filter_map(|ip| ip.parse().ok()).collect(),
            cluster_domain: settings.cluster_domain.clone(),
            resolver: None,
        },
        security: NodeSecurity {
            seccomp_root: format!("{}/seccomp", flags.root_dir.trim_end_matches('/')),
            seccomp_default: settings.seccomp_default || flags.seccomp_default,
            selinux_enabled: machine.is_selinux_on,
            thermal_throttle_paths: machine.thermal_throttle_paths.clone(),
        },
        machine: MachineProperties {
            cgroup_v2: node.cgroup_v2,
            memory_bytes: machine.memory_bytes,
            swap_bytes: machine.swap_bytes,
            swap_controller: machine.can_limit_swap,
            page_bytes: machine.page_bytes,
            huge_page_sizes: machine.huge_page_sizes.clone(),
        },
        limits: NodeLimits {
            cpu_quota: settings.cpu_cfs_quota,
            cpu_period: period.and_then(|it| i64::try_from(it).ok()).unwrap_or(default.cpu_period),
            pod_pids: settings.pod_pids_limit,
            // upstream: kubelet.go NewMainKubelet: version 1 cannot kill a whole container at once.
            single_process_oom_kill: settings.single_process_oom_kill.unwrap_or(!node.cgroup_v2),
            swap: match settings.memory_swap.swap_behavior.as_str() {
                "LimitedSwap" => SwapBehavior::LimitedSwap,
                _ => SwapBehavior::NoSwap,
            },
            memory_throttling_factor: settings
                .memory_throttling_factor
                .unwrap_or(default.memory_throttling_factor),
            tiered_memory_reservation: settings.memory_reservation_policy == "TieredReservation",
        },
        allocatable: allocatable.clone(),
        gates: SetupGates {
            pod_level_resources: enabled(config, Gate::PodLevelResources),
            memory_qos: enabled(config, Gate::MemoryQoS),
            hostname_override: enabled(config, Gate::HostnameOverride),
            container_stop_signals: enabled(config, Gate::ContainerStopSignals),
            image_volume: enabled(config, Gate::ImageVolume),
            env_files: enabled(config, Gate::EnvFiles),
            custom_cpu_period: enabled(config, Gate::CustomCPUCFSQuotaPeriod),
        },
    }
}

fn capacity(machine: &MachineSize) -> ResourceList {
    let bytes = |amount| Quantity::from_units(amount, QuantityFormat::BinarySi);
    let mut capacity: ResourceList = [
        ("cpu", Quantity::from_units(machine.processors, QuantityFormat::DecimalSi)),
        ("memory", bytes(machine.memory_bytes)),
    ]
    .into_iter()
    .collect();
    if let Some(storage) = machine.storage_bytes {
        capacity.insert("ephemeral-storage", bytes(storage));
    }
    for (size, all) in &machine.huge_pages {
        capacity.insert(&format!("hugepages-{}", bytes(*size)), bytes(*all));
    }
    capacity
}

/// Amounts were validated when the configuration was read.
fn amounts(configured: &BTreeMap<String, String>) -> ResourceList {
    let parsed =
        configured.iter().filter_map(|(name, text)| Some((name, Quantity::parse(text).ok()?)));
    parsed.collect()
}

/// What is reserved from pods. CPUs that are reserved by number count as the system's alone.
/// upstream: cmd/kubelet/app/server.go
fn reservations(config: &NodeConfig, machine: &MachineSize) -> Result<Reservations> {
    let settings = config.settings();
    let counts_eviction = !config.flags().experimental_allocatable_ignore_eviction;
    let threshold = |signal: &str| {
        let text = settings.eviction_hard.get(signal).filter(|_| counts_eviction)?;
        ThresholdValue::parse_threshold(text).ok().flatten()
    };
    let (mut system, mut kube) = (settings.system_reserved.clone(), settings.kube_reserved.clone());
    let configured = &settings.reserved_system_cp_us;
    let named =
        CpuSet::parse(configured).with_context(|| format!("reservedSystemCPUs: {configured:?}"))?;
    if !named.is_empty() {
        let online = &machine.online;
        ensure!(
            online.is_empty() || named.is_subset(online),
            "reserved-cpus: {named} is not a subset of online-cpus: {online}"
        );
        kube.remove("cpu");
        system.insert("cpu".to_owned(), named.len().to_string());
    }
    Ok(Reservations {
        system: amounts(&system),
        kube: amounts(&kube),
        eviction_memory: threshold("memory.available"),
        eviction_storage: threshold("nodefs.available"),
    })
}

fn max_pods(settings: &KubeletConfiguration, machine: &MachineSize) -> i64 {
    let most = i64::from(settings.max_pods);
    match i64::from(settings.pods_per_core) {
        per_core if per_core > 0 => most.min(per_core.saturating_mul(machine.processors)),
        _ => most,
    }
}

/// What is reserved from pods, by resource.
pub(super) fn reservation(config: &NodeConfig, machine: &MachineSize) -> Result<ResourceMap> {
    let (capacity, reservations) = (capacity(machine), reservations(config, machine)?);
    let reserved = allocatable::reserved(&capacity, &reservations);
    Ok(reserved.iter().map(|(name, amount)| (name.to_owned(), *amount)).collect())
}

/// The names that the node's status declares.
pub(super) fn declared_features(config: &NodeConfig) -> Vec<String> {
    declared(config).names().map(str::to_owned).collect()
}

fn labels(config: &NodeConfig, node: &NodeIdentity) -> BTreeMap<String, String> {
    let architecture = machine::architecture();
    let mut labels = config.flags().node_labels.clone();
    for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
        labels.insert(format!("{prefix}/os"), "linux".to_owned());
        labels.insert(format!("{prefix}/arch"), architecture.to_owned());
    }
    labels.insert("kubernetes.io/hostname".to_owned(), node.name.clone());
    labels
}

fn dead(config: &NodeConfig) -> DeadContainerLimits {
    let flags = config.flags();
    DeadContainerLimits {
        min_age: flags.minimum_container_ttl_duration.as_std().unwrap_or_default(),
        max_per_container: usize::try_from(flags.maximum_dead_containers_per_container).ok(),
        max_total: usize::try_from(flags.maximum_dead_containers).ok(),
    }
}

/// `/a/b` as a list of names.
fn parts(path: &str) -> Vec<String> {
    path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
