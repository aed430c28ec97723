//! The settings of flags and file, before validation.
//!
//! The rule it keeps: one field per setting, with upstream's default where upstream has the
//! setting. Nothing here is checked beyond its form.

use std::collections::BTreeMap;

use pod_model::GoDuration;

/// Name of the leader election lease of our instances: not upstream's, so that both may run, each
/// with its own controllers.
pub(crate) const LEASE_NAME: &str = "keelson-node-controller";
/// The socket on which `explain` reaches the running controller.
pub(crate) const LOCAL_SOCKET: &str = "/run/keelson/node-controller.sock";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ControllerSettings {
    pub(crate) config: String,
    pub(crate) local_socket: String,
    pub(crate) kubeconfig: String,
    pub(crate) master: String,
    pub(crate) kube_api_qps: f32,
    pub(crate) kube_api_burst: i32,
    pub(crate) controllers: Vec<String>,
    pub(crate) controller_shutdown_timeout: GoDuration,
    pub(crate) feature_gates: BTreeMap<String, bool>,

    pub(crate) leader_elect: bool,
    pub(crate) leader_elect_lease_duration: GoDuration,
    pub(crate) leader_elect_renew_deadline: GoDuration,
    pub(crate) leader_elect_retry_period: GoDuration,
    pub(crate) leader_elect_resource_lock: String,
    pub(crate) leader_elect_resource_name: String,
    pub(crate) leader_elect_resource_namespace: String,

    pub(crate) node_monitor_period: GoDuration,
    pub(crate) node_monitor_grace_period: GoDuration,
    pub(crate) node_startup_grace_period: GoDuration,
    pub(crate) node_eviction_rate: f32,
    pub(crate) secondary_node_eviction_rate: f32,
    pub(crate) large_cluster_size_threshold: i32,
    pub(crate) unhealthy_zone_threshold: f32,
    pub(crate) terminated_pod_gc_threshold: i32,

    pub(crate) allocate_node_cidrs: bool,
    pub(crate) cidr_allocator_type: String,
    pub(crate) cluster_cidr: String,
    pub(crate) service_cluster_ip_range: String,
    /// The file has the second service range in a field of its own.
    pub(crate) secondary_service_range: String,
    pub(crate) node_cidr_mask_size: i32,
    pub(crate) node_cidr_mask_size_ipv4: i32,
    pub(crate) node_cidr_mask_size_ipv6: i32,

    pub(crate) cloud_provider: String,
    pub(crate) cloud_config: String,

    pub(crate) bind_address: String,
    pub(crate) secure_port: i64,
    pub(crate) cert_dir: String,
    pub(crate) tls_cert_file: String,
    pub(crate) tls_private_key_file: String,
    pub(crate) tls_min_version: String,
    pub(crate) tls_cipher_suites: Vec<String>,
    pub(crate) client_ca_file: String,
    pub(crate) authentication_kubeconfig: String,
    pub(crate) authentication_skip_lookup: bool,
    pub(crate) authentication_token_webhook_cache_ttl: GoDuration,
    pub(crate) authorization_kubeconfig: String,
    pub(crate) authorization_always_allow_paths: Vec<String>,
    pub(crate) authorization_webhook_cache_authorized_ttl: GoDuration,
    pub(crate) authorization_webhook_cache_unauthorized_ttl: GoDuration,

    pub(crate) logging_format: String,
    pub(crate) log_json_split_stream: bool,
    pub(crate) log_text_split_stream: bool,
    pub(crate) verbosity: i64,
    pub(crate) vmodule: Vec<(String, u32)>,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        let seconds = GoDuration::from_secs;
        let text = str::to_owned;
        Self {
            config: String::new(),
            local_socket: text(LOCAL_SOCKET),
            kubeconfig: String::new(),
            master: String::new(),
            kube_api_qps: 20.0,
            kube_api_burst: 30,
            controllers: vec![text("*")],
            controller_shutdown_timeout: seconds(10),
            feature_gates: BTreeMap::new(),
            leader_elect: true,
            leader_elect_lease_duration: seconds(15),
            leader_elect_renew_deadline: seconds(10),
            leader_elect_retry_period: seconds(2),
            leader_elect_resource_lock: text("leases"),
            leader_elect_resource_name: text(LEASE_NAME),
            leader_elect_resource_namespace: text("kube-system"),
            node_monitor_period: seconds(5),
            node_monitor_grace_period: seconds(50),
            node_startup_grace_period: seconds(60),
            node_eviction_rate: 0.1,
            secondary_node_eviction_rate: 0.01,
            large_cluster_size_threshold: 50,
            unhealthy_zone_threshold: 0.55,
            terminated_pod_gc_threshold: 12_500,
            allocate_node_cidrs: false,
            cidr_allocator_type: text("RangeAllocator"),
            cluster_cidr: String::new(),
            service_cluster_ip_range: String::new(),
            secondary_service_range: String::new(),
            node_cidr_mask_size: 0,
            node_cidr_mask_size_ipv4: 0,
            node_cidr_mask_size_ipv6: 0,
            cloud_provider: String::new(),
            cloud_config: String::new(),
            bind_address: text("0.0.0.0"),
            secure_port: 10_257,
            cert_dir: String::new(),
            tls_cert_file: String::new(),
            tls_private_key_file: String::new(),
            tls_min_version: String::new(),
            tls_cipher_suites: Vec::new(),
            client_ca_file: String::new(),
            authentication_kubeconfig: String::new(),
            authentication_skip_lookup: false,
            authentication_token_webhook_cache_ttl: seconds(10),
            authorization_kubeconfig: String::new(),
            authorization_always_allow_paths: ["/healthz", "/readyz", "/livez"].map(text).to_vec(),
            authorization_webhook_cache_authorized_ttl: seconds(10),
            authorization_webhook_cache_unauthorized_ttl: seconds(10),
            logging_format: text("text"),
            log_json_split_stream: false,
            log_text_split_stream: false,
            verbosity: 0,
            vmodule: Vec::new(),
        }
    }
}
