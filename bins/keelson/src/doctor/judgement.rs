//! What the facts mean for somebody who wants to run pods here.
//!
//! Rule: pure. Every finding says what was found and, where it is not good, the next step to take.

use super::facts::{Cgroups, MachineFacts};
use serde::Serialize;

/// How a part of the machine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Good,
    /// Pods run, but something is less than it could be, or has to be asked for.
    Limited,
    /// Pods cannot run, or not as their makers mean it.
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_step: Option<String>,
}

const SYS_ADMIN: u64 = 1 << 21;
const SYS_RESOURCE: u64 = 1 << 24;
const ENOUGH_INSTANCES: u64 = 128;
const ENOUGH_WATCHES: u64 = 8192;

fn good(name: &'static str, found: impl Into<String>) -> Finding {
    Finding { name, verdict: Verdict::Good, found: found.into(), next_step: None }
}

fn limited(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Finding {
    let next_step = Some(next.into());
    Finding { name, verdict: Verdict::Limited, found: found.into(), next_step }
}

fn missing(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Finding {
    let next_step = Some(next.into());
    Finding { name, verdict: Verdict::Missing, found: found.into(), next_step }
}

/// All findings, in the order in which they are printed.
pub(crate) fn judge(facts: &MachineFacts) -> Vec<Finding> {
    vec![
        kernel(facts),
        privileges(facts),
        cgroup(facts.cgroups.as_ref()),
        namespaces(facts),
        user_namespaces(facts),
        overlay(facts),
        seccomp(facts),
        resource_capability(facts),
        swap(facts),
        inotify(facts),
        nftables(facts),
        runtime(facts),
    ]
}

fn kernel(facts: &MachineFacts) -> Finding {
    let name = "kernel";
    let Some(release) = &facts.kernel_release else {
        return missing(name, "unknown release", "mount /proc");
    };
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    match (next(), next()) {
        version if version >= (5, 12) => good(name, release),
        version if version >= (4, 19) => limited(
            name,
            format!("{release}, without idmapped mounts"),
            "use a kernel from 5.12 on for pods with user namespaces",
        ),
        _ => missing(name, release, "use a kernel from 4.19 on"),
    }
}

fn privileges(facts: &MachineFacts) -> Finding {
    let name = "privileges";
    match facts.effective_capabilities {
        Some(mask) if mask & SYS_ADMIN != 0 => good(name, "CAP_SYS_ADMIN"),
        Some(_) => missing(name, "no CAP_SYS_ADMIN", "run keelson as root"),
        None => missing(name, "unknown capabilities", "mount /proc"),
    }
}

fn cgroup(cgroups: Option<&Cgroups>) -> Finding {
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
        "boot with cgroup version 2, or set failCgroupV1: false in the kubelet's configuration",
    )
}

fn namespaces(facts: &MachineFacts) -> Finding {
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

fn user_namespaces(facts: &MachineFacts) -> Finding {
    let name = "user namespaces";
    match facts.user_namespace_limit {
        Some(0) => limited(
            name,
            "switched off",
            "sysctl user.max_user_namespaces=15000, for pods with hostUsers: false",
        ),
        Some(limit) => good(name, format!("up to {limit}")),
        None => limited(
            name,
            "not in this kernel",
            "use a kernel with user namespaces, for pods with hostUsers: false",
        ),
    }
}

fn overlay(facts: &MachineFacts) -> Finding {
    if facts.file_systems.contains("overlay") {
        return good("overlayfs", "in the kernel");
    }
    missing("overlayfs", "not in the kernel", "modprobe overlay")
}

fn seccomp(facts: &MachineFacts) -> Finding {
    match &facts.seccomp {
        Ok(()) => good("seccomp", "a filter was loaded and did its work"),
        Err(why) => limited(
            "seccomp",
            why,
            "use a kernel with CONFIG_SECCOMP_FILTER; pods that ask for a profile will not start",
        ),
    }
}

fn resource_capability(facts: &MachineFacts) -> Finding {
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

fn swap(facts: &MachineFacts) -> Finding {
    match facts.swap_areas {
        Some(0) => good("swap", "off"),
        Some(count) => limited(
            "swap",
            format!("{count} in use"),
            "swapoff -a, or set failSwapOn: false in the kubelet's configuration",
        ),
        None => good("swap", "not in this kernel"),
    }
}

fn inotify(facts: &MachineFacts) -> Finding {
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

fn nftables(facts: &MachineFacts) -> Finding {
    match &facts.nftables {
        Ok(()) => good("nftables", "answers"),
        Err(why) => limited(
            "nftables",
            why,
            "modprobe nf_tables; without it host ports and network plugins may not work",
        ),
    }
}

fn runtime(facts: &MachineFacts) -> Finding {
    if facts.runtime_sockets.is_empty() {
        return limited(
            "container runtime",
            "no CRI socket in the usual places",
            "start containerd or CRI-O, or name its socket in containerRuntimeEndpoint",
        );
    }
    good("container runtime", facts.runtime_sockets.join(", "))
}
