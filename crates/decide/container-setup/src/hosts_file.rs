//! The content of a pod's `/etc/hosts`.
//!
//! Rule: byte for byte the reference's. On the host's network it is the host's own file with the
//! pod's aliases; otherwise the well-known names, the pod's own, and its aliases.
//!
//! upstream: pkg/kubelet/kubelet_pods.go

use pod_model::pod::Pod;

use crate::host_name::HostName;

#[cfg(test)]
mod tests;

/// The file's name in the pod's directory.
pub const FILE_NAME: &str = "etc-hosts";
pub const FILE_MODE: u32 = 0o644;
/// Its path in containers.
pub const CONTAINER_PATH: &str = "/etc/hosts";

const MANAGED: &str = "# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";
const FROM_HOST: &str = "# Kubernetes-managed hosts file (host network).\n";

/// Whether a pod has such a file: it needs addresses, or the host's network.
pub fn is_wanted(pod: &Pod, pod_ips: &[String]) -> bool {
    pod.spec.host_network || !pod_ips.is_empty()
}

/// For a pod on a network of its own.
pub fn managed(pod: &Pod, name: &HostName, pod_ips: &[String]) -> Vec<u8> {
    let mut content = MANAGED.to_owned();
    for ip in pod_ips {
        let HostName { name, domain } = name;
        content += &match domain.as_str() {
            "" => format!("{ip}\t{name}\n"),
            domain => format!("{ip}\t{name}.{domain}\t{name}\n"),
        };
    }
    content += &aliases(pod);
    content.into_bytes()
}

/// For a pod on the host's network; `host_file` is the content of the host's.
pub fn from_host(pod: &Pod, host_file: &[u8]) -> Vec<u8> {
    [FROM_HOST.as_bytes(), host_file, aliases(pod).as_bytes()].concat()
}

fn aliases(pod: &Pod) -> String {
    if pod.spec.host_aliases.is_empty() {
        return String::new();
    }
    let lines = pod.spec.host_aliases.iter();
    let lines: String =
        lines.map(|alias| format!("{}\t{}\n", alias.ip, alias.hostnames.join("\t"))).collect();
    format!("\n# Entries added by HostAliases.\n{lines}")
}
