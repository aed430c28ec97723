//! A sandbox's configuration as a CRI message.
//!
//! Rule: every field is translated, and no field of CRI's is filled with a guess.

use cri_wire::v1;
use ports::runtime_objects::{DnsConfig, PortMapping, Protocol, SandboxConfig, SandboxSecurity};

use super::security::{
    groups_policy_to_wire, namespaces_to_wire, number_to_wire, profile_to_wire, resources_to_wire,
    selinux_to_wire,
};

#[cfg(test)]
mod tests;

pub(super) fn to_wire(config: &SandboxConfig) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: config.name.clone(),
            uid: config.uid.clone(),
            namespace: config.namespace.clone(),
            attempt: config.attempt,
        }),
        hostname: config.hostname.clone(),
        log_directory: config.log_directory.clone(),
        dns_config: config.dns.as_ref().map(dns_to_wire),
        port_mappings: config.port_mappings.iter().map(port_to_wire).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: config.cgroup_parent.clone(),
            security_context: Some(security_to_wire(&config.security)),
            sysctls: config.sysctls.clone(),
            overhead: config.overhead.as_ref().map(resources_to_wire),
            resources: config.resources.as_ref().map(resources_to_wire),
        }),
        windows: None,
    }
}

fn dns_to_wire(dns: &DnsConfig) -> v1::DnsConfig {
    v1::DnsConfig {
        servers: dns.servers.clone(),
        searches: dns.searches.clone(),
        options: dns.options.clone(),
    }
}

fn port_to_wire(port: &PortMapping) -> v1::PortMapping {
    let protocol = match port.protocol {
        Protocol::Tcp => v1::Protocol::Tcp,
        Protocol::Udp => v1::Protocol::Udp,
        Protocol::Sctp => v1::Protocol::Sctp,
    };
    v1::PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip.clone(),
    }
}

fn security_to_wire(security: &SandboxSecurity) -> v1::LinuxSandboxSecurityContext {
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces_to_wire(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux_to_wire),
        run_as_user: security.run_as_user.map(number_to_wire),
        run_as_group: security.run_as_group.map(number_to_wire),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy_to_wire(security.supplemental_groups_policy),
        privileged: security.privileged,
        seccomp: security.seccomp.as_ref().map(profile_to_wire),
        apparmor: security.apparmor.as_ref().map(profile_to_wire),
        ..Default::default()
    }
}
