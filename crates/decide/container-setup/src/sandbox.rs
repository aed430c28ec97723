//! The configuration with which the runtime creates a pod's sandbox.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_sandbox.go

use pod_model::pod::Pod;
use ports::runtime_objects::SandboxConfig;

use crate::inputs::{NodeSetupInputs, PodSetupInputs, SetupWarning};
use crate::{
    SetupError, dns, host_name, identity, log_paths, port_mappings, resources, security, sysctls,
};

#[cfg(test)]
mod tests;

/// The configuration, with warnings.
pub fn config(
    pod: &Pod,
    node: &NodeSetupInputs,
    facts: &PodSetupInputs,
    attempt: u32,
) -> Result<(SandboxConfig, Vec<SetupWarning>), SetupError> {
    let (dns, warnings) = dns::of_pod(pod, node);
    let config = SandboxConfig {
        name: pod.metadata.name.to_string(),
        namespace: pod.metadata.namespace.to_string(),
        uid: pod.metadata.uid.to_string(),
        attempt,
        hostname: host_name::for_kernel(pod, node)?,
        log_directory: log_paths::pod_directory(&node.pod_logs_directory, pod),
        dns: Some(dns),
        port_mappings: port_mappings::of_pod(pod),
        labels: identity::sandbox_labels(pod),
        annotations: identity::sandbox_annotations(pod),
        cgroup_parent: facts.cgroup_parent.clone(),
        sysctls: sysctls::of_pod(pod),
        overhead: Some(resources::of_overhead(pod, node)),
        resources: Some(resources::of_sandbox(pod, node, facts)),
        security: security::of_sandbox(pod, facts)?,
        runtime_handler: facts.handler.name.clone(),
    };
    Ok((config, warnings))
}

/// The sandbox configuration for an image pull, without the parts that need files of the host: no
/// runtime uses those for a pull.
pub fn for_pull(
    pod: &Pod,
    pod_logs_directory: &str,
    cgroup_parent: String,
    attempt: u32,
) -> SandboxConfig {
    SandboxConfig {
        name: pod.metadata.name.to_string(),
        namespace: pod.metadata.namespace.to_string(),
        uid: pod.metadata.uid.to_string(),
        attempt,
        log_directory: log_paths::pod_directory(pod_logs_directory, pod),
        labels: identity::sandbox_labels(pod),
        annotations: identity::sandbox_annotations(pod),
        cgroup_parent,
        ..SandboxConfig::default()
    }
}
