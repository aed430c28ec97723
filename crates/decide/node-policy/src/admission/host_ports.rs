//! Host port conflicts.
//!
//! Rule: the same number and protocol conflict on the same address, and every address conflicts with
//! "all addresses".

use pod_model::pod::Pod;
use pod_model::pod::container::ContainerPort;

pub(super) fn conflict(pod: &Pod, others: &[&Pod]) -> bool {
    let taken: Vec<&ContainerPort> = others.iter().copied().flat_map(host_ports).collect();
    host_ports(pod).any(|port| taken.iter().any(|other| same(port, other)))
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = pod.spec.init_containers.iter().filter(|each| each.is_restarted_always());
    let all = pod.spec.containers.iter().chain(sidecars);
    all.flat_map(|container| &container.ports).filter(|port| port.host_port > 0)
}

fn same(one: &ContainerPort, other: &ContainerPort) -> bool {
    let word = |port: &ContainerPort| match port.protocol.as_str() {
        "" => "TCP".to_owned(),
        protocol => protocol.to_owned(),
    };
    let everywhere = |port: &ContainerPort| matches!(&*port.host_ip, "" | "0.0.0.0");
    let address = one.host_ip == other.host_ip || everywhere(one) || everywhere(other);
    one.host_port == other.host_port && word(one) == word(other) && address
}
