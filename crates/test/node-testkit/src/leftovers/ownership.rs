//! What belongs to beds and parts, and what is other programs': pure rules over names.
//!
//! Rule: inside a bed everything is the bed's, so there a thing counts when in doubt. On the host
//! other programs run pods and parts too, with other roots, so there only what carries a bed's mark
//! counts.

use std::path::Path;

use crate::bed::{CGROUP_PREFIX, DIR};

/// Programs that only a test starts on a machine that has no cluster of its own.
const PROGRAMS: [&str; 11] = [
    "containerd",
    "ctr",
    "runc",
    "etcd",
    "registry",
    "kubelet",
    "kubectl",
    "csi-sanity",
    "ginkgo",
    "agnhost",
    "keelson",
];

/// Where the check runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchScope {
    /// Inside a bed, whose namespaces hold nothing else.
    Bed,
    /// On the host, where other roots have pods, and other programs are parts.
    Host,
}

impl SearchScope {
    /// Detected by the bed's host name and directory.
    pub(super) fn here() -> Self {
        let name = rustix::system::uname();
        let is_bed = name.nodename().to_bytes().starts_with(b"bed-") && Path::new(DIR).is_dir();
        if is_bed { Self::Bed } else { Self::Host }
    }
}

/// Directories that parts write to.
const PARTS_DIRS: [&str; 11] = [
    "/run/containerd",
    "/run/runc",
    "/run/cni",
    "/run/bed",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/pods",
    "/var/log/containers",
    "/etc/cni",
    "/usr/libexec/kubernetes",
];

/// The directory of named network namespaces; any program may create them, so their names decide.
pub(super) const NETWORK_NAMESPACES: &str = "/run/netns";

/// Bridges that other programs make, whose ports are theirs too.
const FOREIGN_BRIDGES: [&str; 7] =
    ["docker", "br-", "virbr", "podman", "cni-podman", "lxcbr", "lxdbr"];

/// Directories whose entries count; on the host only a bed's own.
pub(super) fn parts_dirs(scope: SearchScope) -> &'static [&'static str] {
    match scope {
        SearchScope::Bed => &PARTS_DIRS,
        SearchScope::Host => &[DIR],
    }
}

/// Whether a process is a part's, ours or a container's by its program and list of cgroups alone.
pub(super) fn is_our_process(scope: SearchScope, program: &str, cgroups: &str) -> bool {
    scope == SearchScope::Bed && (is_part(program) || is_of_a_pod(cgroups))
}

/// Whether a program of this name is one of the parts, or ours.
fn is_part(program: &str) -> bool {
    PROGRAMS.contains(&program)
        || program.starts_with("containerd-shim")
        || program.starts_with("kube-")
        || program.starts_with("e2e_node")
}

/// The identity of the bed whose cgroup this path is, or is in; also of a whole list of cgroups.
pub(super) fn bed_in(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once(CGROUP_PREFIX)?;
    rest.split(['/', '\n']).next()
}

/// Whether a process with this list of cgroups is a container's, whatever its program.
fn is_of_a_pod(cgroups: &str) -> bool {
    cgroups.lines().any(|line| line.contains("/kubepods"))
}

/// Whether a cgroup came from something other than tests: a unit that systemd made, or a neighbour
/// of the judge's own cgroup (whatever runs jobs on this machine makes one for each).
pub(super) fn is_foreign_cgroup(scope: SearchScope, path: &str, own: &str) -> bool {
    if path.contains(CGROUP_PREFIX) {
        return false;
    }
    if scope == SearchScope::Host {
        return true;
    }
    if path.contains("kube") || path.contains("cri-") {
        return false;
    }
    let units = [".service", ".scope", ".slice", ".mount", ".socket", ".swap"];
    if path.split('/').any(|step| units.iter().any(|unit| step.ends_with(unit))) {
        return true;
    }
    // A judge at the root has no neighbours: everything there counts.
    let Some((parent, _)) = own.rsplit_once('/') else { return false };
    !parent.is_empty() && path.starts_with(&format!("{parent}/"))
}

/// Whether an entry of the temporary directory is a part's or ours.
pub(super) fn is_ours_in_temp(scope: SearchScope, name: &str) -> bool {
    let names: &[&str] = match scope {
        SearchScope::Bed => {
            &["keelson", "bed-", "containerd", "runc", "etcd", "cni", "kubelet", "kube-apiserver"]
        }
        SearchScope::Host => &["bed-"],
    };
    names.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a link was made by a bed (`bed0`, `pods0`), a CNI plugin, a kube program or our runtime
/// (`keelson0`, `keel-ID`, `keelSANDBOX`). The other end of a pod's link has an arbitrary name, so every
/// `veth` counts that is not on a foreign bridge.
pub(super) fn is_our_link(scope: SearchScope, name: &str, master: Option<&str>) -> bool {
    let foreign = |name: &str| FOREIGN_BRIDGES.iter().any(|bridge| name.starts_with(bridge));
    if foreign(name) || master.is_some_and(foreign) {
        return false;
    }
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    numbered("bed")
        || numbered("pods")
        || scope == SearchScope::Bed
            && ["cni", "veth", "kube-", "keel"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a named network namespace is a pod's (`cni-UUID`, as runtimes call them) or ours.
pub(super) fn is_our_network_namespace(scope: SearchScope, name: &str) -> bool {
    name.starts_with("bed-")
        || scope == SearchScope::Bed
            && ["cni-", "keelson"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether an nftables table or chain is one that CNI plugins, kube programs or we make. Names of
/// old chains are in capitals (`KUBE-FIREWALL`, `CNI-HOSTPORT-DNAT`).
pub(super) fn is_our_rule_set(scope: SearchScope, name: &str) -> bool {
    if scope == SearchScope::Host {
        return false;
    }
    let name = name.to_ascii_lowercase();
    ["cni-", "cni_", "kube-", "kube_", "keelson"].iter().any(|prefix| name.starts_with(prefix))
}
