//! The feature gates that affect validation of pods.
//!
//! A gate is a field here, never a global; the defaults are those of Kubernetes 1.36.

/// What is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodGates {
    pub cluster_trust_bundle_projection: bool,
    pub container_restart_rules: bool,
    pub container_stop_signals: bool,
    pub env_files: bool,
    pub generic_workload: bool,
    pub hostname_override: bool,
    pub match_label_keys_merge: bool,
    pub pod_certificate_request: bool,
    pub pod_level_resources: bool,
    pub prevent_static_pod_api_references: bool,
    pub restart_all_containers: bool,
    pub se_linux_mount: bool,
    pub strict_ip_validation: bool,
    pub toleration_comparison: bool,
    pub user_namespaces_host_network: bool,
    /// Not a gate but the switch of the same kind: whether containers may be privileged.
    pub allow_privileged: bool,
    /// ConfigMaps and Secrets come with the manifests, so that static pods may refer to them.
    pub contents_come_with_manifests: bool,
}

impl Default for PodGates {
    fn default() -> Self {
        Self {
            cluster_trust_bundle_projection: false,
            container_restart_rules: true,
            container_stop_signals: false,
            env_files: true,
            generic_workload: false,
            hostname_override: true,
            match_label_keys_merge: true,
            pod_certificate_request: false,
            pod_level_resources: true,
            prevent_static_pod_api_references: true,
            restart_all_containers: true,
            se_linux_mount: false,
            strict_ip_validation: true,
            toleration_comparison: false,
            user_namespaces_host_network: false,
            allow_privileged: true,
            contents_come_with_manifests: false,
        }
    }
}
