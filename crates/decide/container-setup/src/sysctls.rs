//! Which kernel settings a pod may change for itself.
//!
//! Rule: the safe ones that this kernel keeps apart for each pod, and those that the node's
//! administrator allows besides; and none that would change the host, because the pod shares the
//! namespace with it.
//!
//! upstream: pkg/kubelet/sysctl, component-helpers node/util/sysctl

use std::collections::BTreeMap;

use pod_model::pod::Pod;
use ports::runtime_objects::Labels;

use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

/// The reason with which a pod is refused.
pub const FORBIDDEN: &str = "SysctlForbidden";

/// Each with the first kernel that keeps it apart for each network namespace.
const SAFE: &[(&str, (u32, u32))] = &[
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

const IPC_NAMES: &[&str] = &[
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

impl Namespace {
    fn of(name: &str) -> Option<Self> {
        if IPC_NAMES.contains(&name) || name.starts_with("fs.mqueue.") {
            Some(Self::Ipc)
        } else if name.starts_with("net.") {
            Some(Self::Net)
        } else {
            None
        }
    }
}

/// What this node allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SysctlPolicy {
    names: BTreeMap<String, Namespace>,
    prefixes: BTreeMap<String, Namespace>,
}

impl SysctlPolicy {
    /// From the kernel's version (none: unknown) and `allowedUnsafeSysctls`.
    pub fn new(kernel: Option<(u32, u32)>, allowed: &[String]) -> Result<Self, SetupError> {
        let kernel = kernel.unwrap_or((0, 0));
        let safe = SAFE.iter().filter(|(_, first)| kernel >= *first).map(|(name, _)| *name);
        let mut policy = Self::default();
        for pattern in safe.chain(allowed.iter().map(String::as_str)) {
            let dotted = normal_name(pattern);
            let (name, is_prefix) = match dotted.split_once('*') {
                Some((prefix, _)) => (prefix, true),
                None => (dotted.as_str(), false),
            };
            let Some(namespace) = Namespace::of(name) else {
                refuse!("the sysctls {name:?} are not known to be namespaced");
            };
            let list = if is_prefix { &mut policy.prefixes } else { &mut policy.names };
            list.insert(name.to_owned(), namespace);
        }
        Ok(policy)
    }

    /// Whether the pod may have what it asks for; the message is the one of the refusal
    /// [`FORBIDDEN`].
    pub fn check(&self, pod: &Pod) -> Result<(), SetupError> {
        let shared = pod.spec.security_context.as_deref();
        for sysctl in shared.into_iter().flat_map(|it| &it.sysctls) {
            let name = normal_name(&sysctl.name);
            let namespace = self.names.get(&name).or_else(|| {
                let mut prefixes = self.prefixes.iter();
                prefixes.find(|(prefix, _)| name.starts_with(*prefix)).map(|(_, found)| found)
            });
            let shared_with_host = match namespace {
                None => refuse!("forbidden sysctl: {name:?} not allowlisted"),
                Some(Namespace::Ipc) if pod.spec.host_ipc => "IPC",
                Some(Namespace::Net) if pod.spec.host_network => "Net",
                Some(_) => continue,
            };
            refuse!("forbidden sysctl: {name:?} not allowed with host {shared_with_host} enabled");
        }
        Ok(())
    }
}

/// With dots between the parts: where the first separator is a slash, the two change places.
pub fn normal_name(name: &str) -> String {
    if name.find(['.', '/']).and_then(|at| name.as_bytes().get(at)) != Some(&b'/') {
        return name.to_owned();
    }
    let swapped = |character| match character {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swapped).collect()
}

/// What the runtime is told to set.
pub fn of_pod(pod: &Pod) -> Labels {
    let shared = pod.spec.security_context.as_deref();
    let sysctls = shared.into_iter().flat_map(|it| &it.sysctls);
    sysctls.map(|sysctl| (normal_name(&sysctl.name), sysctl.value.to_string())).collect()
}

/// The first two numbers of a kernel's release, such as `6.8.0-45-generic`.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|character: char| !character.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor.get(..digits)?.parse().ok()?))
}
