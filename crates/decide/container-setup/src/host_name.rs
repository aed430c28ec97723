//! The host name of a pod.
//!
//! Rule: a host name has at most 63 bytes (a longer one is truncated) and a name with its domain at
//! most 64, the kernel's limit; a longer one is an error.
//!
//! upstream: pkg/kubelet/kubelet_pods.go, pkg/kubelet/util/util.go

use pod_model::pod::Pod;
use pod_model::{check_dns_label, check_dns_subdomain};

use crate::inputs::NodeSetupInputs;
use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

const LONGEST_NAME: usize = 63;
const LONGEST_WHOLE_NAME: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    pub name: String,
    /// Empty where the pod has no subdomain.
    pub domain: String,
}

/// The short name and the domain, as the hosts file has them.
pub fn of_pod(pod: &Pod, node: &NodeSetupInputs) -> Result<HostName, SetupError> {
    let spec = &pod.spec;
    if let Some(name) = &spec.hostname_override
        && node.gates.hostname_override
    {
        if let Err(diagnostic) = check_dns_subdomain(name) {
            refuse!("pod HostnameOverride {name:?} is not a valid DNS subdomain: {diagnostic}");
        }
        return Ok(HostName { name: shortened(pod, name)?, domain: String::new() });
    }
    let wanted = if spec.hostname.is_empty() { &pod.metadata.name } else { &spec.hostname };
    if !spec.hostname.is_empty()
        && let Err(diagnostic) = check_dns_label(&spec.hostname)
    {
        refuse!("pod Hostname {:?} is not a valid DNS label: {diagnostic}", spec.hostname);
    }
    let name = shortened(pod, wanted)?;
    if spec.subdomain.is_empty() {
        return Ok(HostName { name, domain: String::new() });
    }
    if let Err(diagnostic) = check_dns_label(&spec.subdomain) {
        refuse!("pod Subdomain {:?} is not a valid DNS label: {diagnostic}", spec.subdomain);
    }
    let cluster = &node.dns.cluster_domain;
    let domain = format!("{}.{}.svc.{cluster}", spec.subdomain, pod.metadata.namespace);
    Ok(HostName { name, domain })
}

/// The host name for the kernel; empty on the host's network.
pub fn for_kernel(pod: &Pod, node: &NodeSetupInputs) -> Result<String, SetupError> {
    if pod.spec.host_network {
        return Ok(String::new());
    }
    let HostName { name, domain } = of_pod(pod, node)?;
    if domain.is_empty() || pod.spec.set_hostname_as_fqdn != Some(true) {
        return Ok(name);
    }
    let whole = format!("{name}.{domain}");
    if whole.len() > LONGEST_WHOLE_NAME {
        refuse!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {whole} is too \
             long ({LONGEST_WHOLE_NAME} characters is the max, {} characters requested)",
            whole.len()
        );
    }
    Ok(whole)
}

fn shortened(pod: &Pod, name: &str) -> Result<String, SetupError> {
    if name.len() <= LONGEST_NAME {
        return Ok(name.to_owned());
    }
    let cut = name.get(..name.floor_char_boundary(LONGEST_NAME)).unwrap_or_default();
    let cut = cut.trim_end_matches(['-', '.']);
    if cut.is_empty() {
        refuse!("hostname for pod {:?} was invalid: {name:?}", pod.metadata.name);
    }
    Ok(cut.to_owned())
}
