//! The settings that exist as flags only: they belong to one node, not to a shared file.
//!
//! The rule it keeps: a field is named as its flag is, and its default is the flag's. It neither
//! parses nor validates.

use std::collections::BTreeMap;
use std::fmt;

use pod_model::GoDuration;

use crate::diagnostic::MASK;

/// Everything on a command line that is not in `KubeletConfiguration`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagSettings {
    /// The file of `KubeletConfiguration`; empty for none.
    pub config: String,
    /// The directory of drop-ins; empty for none.
    pub config_dir: String,
    /// How to reach the API server; empty for a standalone agent.
    pub kubeconfig: String,
    pub bootstrap_kubeconfig: String,
    pub hostname_override: String,
    /// One address, or two of different families separated by a comma; empty to detect them.
    pub node_ip: String,
    pub cert_dir: String,
    pub cloud_provider: String,
    pub root_dir: String,
    /// Either this or the field `seccompDefault` is enough: they are joined by "or", so that
    /// `--seccomp-default=false` does not take back what the file says.
    pub seccomp_default: bool,
    pub node_labels: BTreeMap<String, String>,
    pub lock_file: String,
    pub exit_on_lock_contention: bool,
    pub runtime_cgroups: String,
    pub image_credential_provider_config: String,
    pub image_credential_provider_bin_dir: String,
    pub minimum_container_ttl_duration: GoDuration,
    pub maximum_dead_containers_per_container: i32,
    /// Negative for no limit.
    pub maximum_dead_containers: i32,
    pub experimental_mounter_path: String,
    pub experimental_allocatable_ignore_eviction: bool,
    pub cadvisor: CadvisorSettings,
    /// The version that `--version=v…` asks to report in place of our own.
    pub reported_version: Option<String>,
}

impl FlagSettings {
    /// Whether containers without a seccomp profile get the runtime's default one.
    pub fn seccomp_default_with(&self, configured: bool) -> bool {
        self.seccomp_default || configured
    }
}

impl Default for FlagSettings {
    fn default() -> Self {
        Self {
            config: String::new(),
            config_dir: String::new(),
            kubeconfig: String::new(),
            bootstrap_kubeconfig: String::new(),
            hostname_override: String::new(),
            node_ip: String::new(),
            cert_dir: "/var/lib/kubelet/pki".to_owned(),
            cloud_provider: String::new(),
            root_dir: "/var/lib/kubelet".to_owned(),
            seccomp_default: false,
            node_labels: BTreeMap::new(),
            lock_file: String::new(),
            exit_on_lock_contention: false,
            runtime_cgroups: String::new(),
            image_credential_provider_config: String::new(),
            image_credential_provider_bin_dir: String::new(),
            minimum_container_ttl_duration: GoDuration::ZERO,
            maximum_dead_containers_per_container: 1,
            maximum_dead_containers: -1,
            experimental_mounter_path: String::new(),
            experimental_allocatable_ignore_eviction: false,
            cadvisor: CadvisorSettings::default(),
            reported_version: None,
        }
    }
}

/// Flags of the statistics library inside the reference kubelet. All but the first are accepted
/// only so that old unit files keep working.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CadvisorSettings {
    pub housekeeping_interval: GoDuration,
    pub global_housekeeping_interval: GoDuration,
    pub application_metrics_count_limit: i64,
    pub boot_id_file: String,
    pub machine_id_file: String,
    pub container_hints: String,
    pub containerd: String,
    pub containerd_namespace: String,
    pub enable_load_reader: bool,
    pub event_storage_age_limit: String,
    pub event_storage_event_limit: String,
    pub log_cadvisor_usage: bool,
    pub storage_driver_buffer_duration: GoDuration,
    pub storage_driver_db: String,
    pub storage_driver_host: String,
    pub storage_driver_password: MaskedText,
    pub storage_driver_secure: bool,
    pub storage_driver_table: String,
    pub storage_driver_user: String,
}

impl Default for CadvisorSettings {
    fn default() -> Self {
        Self {
            housekeeping_interval: GoDuration::from_secs(10),
            global_housekeeping_interval: GoDuration::from_secs(60),
            application_metrics_count_limit: 100,
            boot_id_file: "/proc/sys/kernel/random/boot_id".to_owned(),
            machine_id_file: "/etc/machine-id,/var/lib/dbus/machine-id".to_owned(),
            container_hints: "/etc/cadvisor/container_hints.json".to_owned(),
            containerd: "/run/containerd/containerd.sock".to_owned(),
            containerd_namespace: "k8s.io".to_owned(),
            enable_load_reader: false,
            event_storage_age_limit: "default=0".to_owned(),
            event_storage_event_limit: "default=0".to_owned(),
            log_cadvisor_usage: false,
            storage_driver_buffer_duration: GoDuration::from_secs(60),
            storage_driver_db: "cadvisor".to_owned(),
            storage_driver_host: "localhost:8086".to_owned(),
            storage_driver_password: MaskedText("root".to_owned()),
            storage_driver_secure: false,
            storage_driver_table: "stats".to_owned(),
            storage_driver_user: "root".to_owned(),
        }
    }
}

/// A text that must not show up in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct MaskedText(pub String);

impl fmt::Debug for MaskedText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(MASK)
    }
}
