//! Port mappings for the runtime.
//!
//! Rule: of ports with the same name in a container only one counts; ports without a name are
//! compared by all their fields. Init containers' ports are left out.
//!
//! upstream: pkg/kubelet/container/helpers.go

use std::collections::BTreeSet;
use std::net::IpAddr;

use pod_model::parse_ip;
use pod_model::pod::container::{ContainerPort, PortProtocol};
use pod_model::pod::{Container, Pod};
use ports::runtime_objects::{PortMapping, Protocol};

#[cfg(test)]
mod tests;

pub fn of_pod(pod: &Pod) -> Vec<PortMapping> {
    pod.spec.containers.iter().flat_map(of_container).collect()
}

fn of_container(container: &Container) -> Vec<PortMapping> {
    let mut names = BTreeSet::new();
    let mut mappings = Vec::new();
    for port in &container.ports {
        if names.insert(name_of(port)) {
            mappings.push(PortMapping {
                protocol: protocol_of(&port.protocol),
                container_port: port.container_port,
                host_port: port.host_port,
                host_ip: port.host_ip.to_string(),
            });
        }
    }
    mappings
}

fn name_of(port: &ContainerPort) -> String {
    if !port.name.is_empty() {
        return port.name.to_string();
    }
    let family = match parse_ip(&port.host_ip) {
        _ if port.host_ip.is_empty() => "any",
        Ok(IpAddr::V6(_)) => "v6",
        _ => "v4",
    };
    let ContainerPort { protocol, host_ip, container_port, host_port, .. } = port;
    format!("{family}-{protocol}-{host_ip}:{container_port}:{host_port}")
}

fn protocol_of(protocol: &PortProtocol) -> Protocol {
    match protocol {
        PortProtocol::Udp => Protocol::Udp,
        PortProtocol::Sctp => Protocol::Sctp,
        PortProtocol::Tcp | PortProtocol::Other(_) => Protocol::Tcp,
    }
}
