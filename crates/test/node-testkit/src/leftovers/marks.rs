//! What belongs to beds and parts, and what is other people's: pure rules over names.
//!
//! Rule: when in doubt it counts, except for what a machine does by itself.

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

/// Whether a program of this name is one of the parts, or ours.
pub(super) fn is_part(program: &str) -> bool {
    PROGRAMS.contains(&program)
        || program.starts_with("containerd-shim")
        || program.starts_with("kube-")
        || program.starts_with("e2e_node")
}

/// The identity of the bed whose cgroup this path is, or is in; also of a whole list of cgroups.
pub(super) fn bed_in(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once(crate::bed::CGROUP_PREFIX)?;
    rest.split(['/', '\n']).next()
}

/// Whether a cgroup came from something other than tests: a unit that systemd made, or a neighbour
/// of the judge's own cgroup (whatever runs jobs on this machine makes one for each).
pub(super) fn is_foreign_cgroup(path: &str, own: &str) -> bool {
    if path.contains(crate::bed::CGROUP_PREFIX) || path.contains("kube") || path.contains("cri-") {
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

/// Whether an entry of the temp folder would be a part's or ours.
pub(super) fn is_ours_in_temp(name: &str) -> bool {
    ["keelson", "bed-", "containerd", "runc", "etcd", "cni", "kubelet", "kube-apiserver"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}
