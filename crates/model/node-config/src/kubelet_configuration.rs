//! The values of a `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1) once defaults, files and
//! flags are settled: plain values, no "unset" left except where unset itself means something.
//!
//! The field names on the wire are upstream's. This file holds declarations only: types and
//! defaults of the document are in the schema, rules between fields in the validation.

use std::collections::BTreeMap;

use pod_model::{GoDuration, Quantity};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletConfiguration {
    pub enable_server: bool,
    pub static_pod_path: String,
    pub pod_logs_dir: String,
    pub sync_frequency: GoDuration,
    pub file_check_frequency: GoDuration,
    pub http_check_frequency: GoDuration,
    #[serde(rename = "staticPodURL")]
    pub static_pod_url: String,
    #[serde(rename = "staticPodURLHeader")]
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    pub address: String,
    pub port: i32,
    pub read_only_port: i32,
    pub tls_cert_file: String,
    pub tls_private_key_file: String,
    pub tls_cipher_suites: Vec<String>,
    pub tls_curve_preferences: Vec<i32>,
    pub tls_min_version: String,
    pub rotate_certificates: bool,
    #[serde(rename = "serverTLSBootstrap")]
    pub server_tls_bootstrap: bool,
    pub authentication: Authentication,
    pub authorization: Authorization,
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    pub registry_burst: i32,
    pub image_pull_credentials_verification_policy: String,
    pub preloaded_images_verification_allowlist: Vec<String>,
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    pub event_burst: i32,
    pub enable_debugging_handlers: bool,
    pub enable_contention_profiling: bool,
    pub healthz_port: i32,
    pub healthz_bind_address: String,
    pub oom_score_adj: i32,
    pub cluster_domain: String,
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Vec<String>,
    pub streaming_connection_idle_timeout: GoDuration,
    pub node_status_update_frequency: GoDuration,
    pub node_status_report_frequency: GoDuration,
    pub node_lease_duration_seconds: i32,
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: GoDuration,
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: GoDuration,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    pub volume_stats_agg_period: GoDuration,
    pub kubelet_cgroups: String,
    pub system_cgroups: String,
    pub cgroup_root: String,
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    pub cgroup_driver: String,
    pub cpu_manager_policy: String,
    #[serde(rename = "singleProcessOOMKill")]
    pub single_process_oom_kill: Option<bool>,
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    pub cpu_manager_reconcile_period: GoDuration,
    pub memory_manager_policy: String,
    pub topology_manager_policy: String,
    pub topology_manager_scope: String,
    pub topology_manager_policy_options: BTreeMap<String, String>,
    pub qos_reserved: BTreeMap<String, String>,
    pub runtime_request_timeout: GoDuration,
    pub hairpin_mode: String,
    pub max_pods: i32,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    pub pod_pids_limit: i64,
    pub resolv_conf: String,
    pub run_once: bool,
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: GoDuration,
    pub node_status_max_images: i32,
    pub max_open_files: i64,
    pub content_type: String,
    #[serde(rename = "kubeAPIQPS")]
    pub kube_apiqps: i32,
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: i32,
    pub serialize_image_pulls: bool,
    pub max_parallel_image_pulls: Option<i32>,
    pub eviction_hard: BTreeMap<String, String>,
    pub eviction_soft: BTreeMap<String, String>,
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    pub eviction_pressure_transition_period: GoDuration,
    pub eviction_max_pod_grace_period: i32,
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    pub merge_default_eviction_settings: bool,
    pub pods_per_core: i32,
    pub enable_controller_attach_detach: bool,
    pub protect_kernel_defaults: bool,
    #[serde(rename = "makeIPTablesUtilChains")]
    pub make_ip_tables_util_chains: bool,
    pub iptables_masquerade_bit: i32,
    pub iptables_drop_bit: i32,
    pub feature_gates: BTreeMap<String, bool>,
    pub fail_swap_on: bool,
    pub memory_swap: MemorySwap,
    pub container_log_max_size: String,
    pub container_log_max_files: i32,
    pub container_log_max_workers: i32,
    pub container_log_monitor_interval: GoDuration,
    pub config_map_and_secret_change_detection_strategy: String,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cp_us: String,
    pub show_hidden_metrics_for_version: String,
    pub system_reserved_cgroup: String,
    pub kube_reserved_cgroup: String,
    pub enforce_node_allocatable: Vec<String>,
    pub allowed_unsafe_sysctls: Vec<String>,
    pub volume_plugin_dir: String,
    #[serde(rename = "providerID")]
    pub provider_id: String,
    pub kernel_memcg_notification: bool,
    pub logging: Logging,
    pub enable_system_log_handler: bool,
    pub enable_system_log_query: bool,
    pub shutdown_grace_period: GoDuration,
    pub shutdown_grace_period_critical_pods: GoDuration,
    pub shutdown_grace_period_by_pod_priority: Vec<PriorityGracePeriod>,
    pub crash_loop_back_off: CrashLoopBackOff,
    pub reserved_memory: Vec<MemoryReservation>,
    pub enable_profiling_handler: bool,
    pub enable_debug_flags_handler: bool,
    pub seccomp_default: bool,
    pub memory_throttling_factor: Option<f64>,
    pub memory_reservation_policy: String,
    pub register_with_taints: Vec<Taint>,
    pub register_node: bool,
    pub tracing: Option<Tracing>,
    pub local_storage_capacity_isolation: bool,
    pub container_runtime_endpoint: String,
    pub image_service_endpoint: String,
    pub fail_cgroup_v1: bool,
    pub user_namespaces: Option<UserNamespaces>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Authentication {
    pub x509: X509Authentication,
    pub webhook: WebhookAuthentication,
    pub anonymous: AnonymousAuthentication,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct X509Authentication {
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WebhookAuthentication {
    pub enabled: bool,
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: GoDuration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnonymousAuthentication {
    pub enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Authorization {
    pub mode: String,
    pub webhook: WebhookAuthorization,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WebhookAuthorization {
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: GoDuration,
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: GoDuration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemorySwap {
    pub swap_behavior: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrashLoopBackOff {
    pub max_container_restart_period: Option<GoDuration>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriorityGracePeriod {
    pub priority: i32,
    pub shutdown_grace_period_seconds: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReservation {
    pub numa_node: i32,
    pub limits: BTreeMap<String, Quantity>,
}

/// A taint that the node registers with. `time_added` is kept only so that validation can reject
/// it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Logging {
    pub format: String,
    pub flush_frequency: GoDuration,
    pub verbosity: u32,
    pub vmodule: Vec<ModuleVerbosity>,
    pub options: LoggingOptions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleVerbosity {
    pub file_pattern: String,
    pub verbosity: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggingOptions {
    pub text: OutputRouting,
    pub json: OutputRouting,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputRouting {
    pub split_stream: bool,
    pub info_buffer_size: Quantity,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracing {
    pub endpoint: Option<String>,
    pub sampling_rate_per_million: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserNamespaces {
    pub ids_per_pod: Option<i64>,
}
