//! Judges whether pods can run on a machine with these facts.
//!
//! Rule: pure. Every finding names what was found and, if it is not good, the next step.

use super::facts::{Cgroups, Confinement, Limit, MachineFacts};
use serde::Serialize;

/// How a part of the machine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MachineVerdict {
    Good,
    /// Pods run, but a feature is reduced or must be requested.
    Limited,
    /// Pods cannot run, or not as specified.
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineFinding {
    pub(crate) name: &'static str,
    pub(crate) verdict: MachineVerdict,
    pub(crate) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_step: Option<String>,
}

const SYS_ADMIN: u64 = 1 << 21;
const SYS_RESOURCE: u64 = 1 << 24;
const ENOUGH_INSTANCES: u64 = 128;
const ENOUGH_WATCHES: u64 = 8192;
/// A few for each container of a full node, twice over.
const ENOUGH_FILES: u64 = 65_536;
const ENOUGH_PROCESSES: u64 = 32_768;
/// The first kernel with mount_setattr(2), which the embedded runtime needs for containers' mounts.
const EMBEDDED_SINCE: (u32, u32) = (5, 12);
const OLDEST: (u32, u32) = (4, 19);

fn good(name: &'static str, found: impl Into<String>) -> MachineFinding {
    MachineFinding { name, verdict: MachineVerdict::Good, found: found.into(), next_step: None }
}

fn limited(
    name: &'static str,
    found: impl Into<String>,
    next: impl Into<String>,
) -> MachineFinding {
    let next_step = Some(next.into());
    MachineFinding { name, verdict: MachineVerdict::Limited, found: found.into(), next_step }
}

fn missing(
    name: &'static str,
    found: impl Into<String>,
    next: impl Into<String>,
) -> MachineFinding {
    let next_step = Some(next.into());
    MachineFinding { name, verdict: MachineVerdict::Missing, found: found.into(), next_step }
}

/// All findings, in the order in which they are printed.
pub(crate) fn findings_of(facts: &MachineFacts) -> Vec<MachineFinding> {
    vec![
        kernel(facts),
        privileges(facts),
        cgroup(facts.cgroups.as_ref()),
        namespaces(facts),
        user_namespaces(facts),
        recursive_read_only(facts),
        overlay(facts),
        seccomp(facts),
        confinement(facts),
        resource_capability(facts),
        swap(facts),
        inotify(facts),
        open_files(facts),
        process_ids(facts),
        nftables(facts),
        pod_network(facts),
        runtime(facts),
    ]
}

fn kernel(facts: &MachineFacts) -> MachineFinding {
    let name = "kernel";
    let Some(release) = &facts.kernel_release else {
        return missing(name, "unknown release", "mount /proc");
    };
    match version_of(release) {
        version if version >= EMBEDDED_SINCE => good(name, release),
        version if version >= OLDEST => limited(
            name,
            format!("{release}, without mount_setattr and idmapped mounts"),
            "use a kernel from 5.12 on for the embedded runtime and for pods with user namespaces",
        ),
        _ => missing(name, release, "use a kernel from 4.19 on"),
    }
}

fn version_of(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    (next(), next())
}

fn privileges(facts: &MachineFacts) -> MachineFinding {
    let name = "privileges";
    match facts.effective_capabilities {
        Some(mask) if mask & SYS_ADMIN != 0 => good(name, "CAP_SYS_ADMIN"),
        Some(_) => missing(name, "no CAP_SYS_ADMIN", "run keelson as root"),
        None => missing(name, "unknown capabilities", "mount /proc"),
    }
}

fn cgroup(cgroups: Option<&Cgroups>) -> MachineFinding {
    let name = "cgroups";
    let Some(cgroups) = cgroups else {
        return missing(name, "no cgroup hierarchy", "mount cgroup2 on /sys/fs/cgroup");
    };
    let lacking: Vec<&str> = ["cpu", "cpuset", "memory", "pids"]
        .into_iter()
        .filter(|controller| !cgroups.controllers.contains(*controller))
        .collect();
    let version = if cgroups.unified { "version 2" } else { "version 1" };
    let all: Vec<&str> = cgroups.controllers.iter().map(String::as_str).collect();
    let found = format!("{version} with {}", all.join(", "));
    if !lacking.is_empty() {
        return missing(
            name,
            format!("{found}; without {}", lacking.join(", ")),
            "enable these controllers on the kernel's command line or in the parent cgroup",
        );
    }
    if cgroups.unified {
        return good(name, found);
    }
    limited(
        name,
        found,
        "boot with cgroup version 2, or set failCgroupV1: false in the kubelet's configuration; \
         keelson run takes it as it is",
    )
}

fn namespaces(facts: &MachineFacts) -> MachineFinding {
    let name = "namespaces";
    if facts.missing_namespaces.is_empty() {
        return good(name, "cgroup, ipc, mnt, net, pid, user, uts");
    }
    missing(
        name,
        format!("without {}", facts.missing_namespaces.join(", ")),
        "use a kernel that was built with these namespaces",
    )
}

fn user_namespaces(facts: &MachineFacts) -> MachineFinding {
    let name = "user namespaces";
    match facts.user_namespace_limit {
        Some(0) => limited(
            name,
            "switched off",
            "sysctl user.max_user_namespaces=15000, for pods with hostUsers: false",
        ),
        Some(limit) => match &facts.tried.user_namespaces {
            Ok(()) => good(name, format!("up to {limit}, with an overlay that shows their ids")),
            Err(why) => limited(
                name,
                why,
                "use a kernel from 5.19 on and a file system with idmapped mounts for \
                 /var/lib/keelson, for pods with hostUsers: false",
            ),
        },
        None => limited(
            name,
            "not in this kernel",
            "use a kernel with user namespaces, for pods with hostUsers: false",
        ),
    }
}

fn recursive_read_only(facts: &MachineFacts) -> MachineFinding {
    let name = "recursive read-only";
    match &facts.tried.recursive_read_only {
        Ok(()) => good(name, "mounts were made so, with those beneath"),
        Err(why) => limited(
            name,
            why,
            "use a kernel from 5.12 on; mounts with recursiveReadOnly: Enabled are refused",
        ),
    }
}

fn overlay(facts: &MachineFacts) -> MachineFinding {
    if facts.file_systems.contains("overlay") {
        return good("overlayfs", "in the kernel");
    }
    missing("overlayfs", "not in the kernel", "modprobe overlay")
}

fn seccomp(facts: &MachineFacts) -> MachineFinding {
    match &facts.tried.seccomp {
        Ok(()) => good("seccomp", "a filter was loaded and did its work"),
        Err(why) => limited(
            "seccomp",
            why,
            "use a kernel with CONFIG_SECCOMP_FILTER; pods that ask for a profile will not start",
        ),
    }
}

/// For pods that request what is not there: an AppArmor profile is refused, an SELinux label left
/// out.
fn confinement(facts: &MachineFacts) -> MachineFinding {
    let name = "confinement";
    match facts.confinement {
        Confinement::AppArmor { parser: true } => good(name, "AppArmor (no SELinux)"),
        Confinement::AppArmor { parser: false } => limited(
            name,
            "AppArmor (no SELinux), without apparmor_parser: containers have no default profile",
            "install the package apparmor",
        ),
        Confinement::Selinux { enforcing: true } => good(name, "SELinux, enforcing (no AppArmor)"),
        Confinement::Selinux { enforcing: false } => limited(
            name,
            "SELinux (no AppArmor), permissive: it writes down what it would refuse",
            "run setenforce 1 once its log is clean",
        ),
        Confinement::Nothing => limited(
            name,
            "neither AppArmor nor SELinux",
            "boot a kernel that has one of them; AppArmor profiles of pods are refused here, SELinux \
             options left out",
        ),
    }
}

fn resource_capability(facts: &MachineFacts) -> MachineFinding {
    let name = "CAP_SYS_RESOURCE";
    if facts.effective_capabilities.is_some_and(|mask| mask & SYS_RESOURCE != 0) {
        return good(name, "held");
    }
    limited(
        name,
        "not held: oom_score_adj cannot go down and hard limits cannot go up",
        "give the service CAP_SYS_RESOURCE, or live with the warnings",
    )
}

fn swap(facts: &MachineFacts) -> MachineFinding {
    match facts.swap_areas {
        Some(0) => good("swap", "off"),
        Some(count) => limited(
            "swap",
            format!("{count} in use"),
            "swapoff -a, or set failSwapOn: false in the kubelet's configuration; keelson run takes \
             it as it is",
        ),
        None => good("swap", "not in this kernel"),
    }
}

fn inotify(facts: &MachineFacts) -> MachineFinding {
    let name = "inotify";
    let (Some(instances), Some(watches)) = (facts.inotify_instances, facts.inotify_watches) else {
        return limited(name, "limits unknown", "use a kernel with inotify, and mount /proc");
    };
    let found = format!("{instances} instances and {watches} watches per user");
    if instances >= ENOUGH_INSTANCES && watches >= ENOUGH_WATCHES {
        return good(name, found);
    }
    limited(
        name,
        found,
        format!(
            "sysctl fs.inotify.max_user_instances={ENOUGH_INSTANCES} \
             fs.inotify.max_user_watches={ENOUGH_WATCHES}, or more"
        ),
    )
}

fn nftables(facts: &MachineFacts) -> MachineFinding {
    match &facts.tried.nftables {
        Ok(()) => good("nftables", "answers"),
        Err(why) => limited(
            "nftables",
            why,
            "modprobe nf_tables; without it the built-in network, host ports and network plugins \
             may not work",
        ),
    }
}

fn open_files(facts: &MachineFacts) -> MachineFinding {
    let name = "open files";
    let next = format!("set LimitNOFILE={ENOUGH_FILES} in the service, or ulimit -Hn; or more");
    match facts.open_files {
        Some(Limit::None) => good(name, "without a limit"),
        Some(Limit::At(most)) if most >= ENOUGH_FILES => good(name, format!("up to {most}")),
        Some(Limit::At(most)) => limited(name, format!("up to {most} in a process"), next),
        None => limited(name, "limit unknown", "mount /proc"),
    }
}

fn process_ids(facts: &MachineFacts) -> MachineFinding {
    let name = "process ids";
    match facts.process_ids {
        Some(most) if most >= ENOUGH_PROCESSES => good(name, format!("up to {most}")),
        Some(most) => limited(
            name,
            format!("up to {most} on the machine"),
            format!("sysctl kernel.pid_max={ENOUGH_PROCESSES}, or more"),
        ),
        None => limited(name, "limit unknown", "mount /proc"),
    }
}

/// For pods with their own network; pods on the host network need nothing.
fn pod_network(facts: &MachineFacts) -> MachineFinding {
    let name = "pod network";
    match (&facts.tried.pod_network, facts.network_configurations) {
        (_, 1..) => good(name, "by plugins: a configuration is in /etc/cni/net.d"),
        (Ok(()), 0) => good(name, "built in: a bridge, links and rules were made and are gone"),
        (Err(why), 0) => limited(
            name,
            format!("built in: {why}"),
            "modprobe bridge veth nf_tables nft_nat nft_masq, or put a configuration of network \
             plugins into /etc/cni/net.d; pods with hostNetwork: true run without",
        ),
    }
}

/// What the embedded runtime requires and this machine lacks.
fn embedded_lacks(facts: &MachineFacts) -> Vec<&'static str> {
    let release = facts.kernel_release.as_deref().unwrap_or_default();
    let mask = facts.effective_capabilities.unwrap_or(0);
    [
        (version_of(release) < EMBEDDED_SINCE, "a kernel from 5.12 on"),
        (mask & SYS_ADMIN == 0, "CAP_SYS_ADMIN"),
        (!facts.file_systems.contains("overlay"), "overlayfs"),
        (!facts.missing_namespaces.is_empty(), "all kinds of namespaces"),
        (facts.cgroups.is_none(), "a cgroup hierarchy"),
    ]
    .into_iter()
    .filter_map(|(lacks, what)| lacks.then_some(what))
    .collect()
}

fn runtime(facts: &MachineFacts) -> MachineFinding {
    let name = "container runtime";
    let sockets = facts.runtime_sockets.join(", ");
    let lacks = embedded_lacks(facts).join(", ");
    match (sockets.is_empty(), lacks.is_empty()) {
        (true, true) => good(name, "the embedded one, by keelson run and keelson cri"),
        (false, true) => good(name, format!("{sockets}; and the embedded one")),
        (false, false) => good(name, format!("{sockets}; not the embedded one, without {lacks}")),
        (true, false) => missing(
            name,
            format!("no CRI socket in the usual places; the embedded one lacks {lacks}"),
            "give the embedded one what it lacks, or start containerd or CRI-O and name its socket \
             in containerRuntimeEndpoint",
        ),
    }
}
