//! Which kernel parameters a pod may set: the safe ones of this kernel, and those that the
//! administrator allows.
//!
//! Rules: a parameter must belong to a namespace of the pod's own, so one of the network is refused
//! on the host's network and one of IPC on the host's IPC; names may be written with slashes. An
//! allowed pattern ends at its first `*`.
//!
//! upstream: pkg/kubelet/sysctl, component-helpers/node/util/sysctl

use pod_model::pod::Pod;
use pod_model::pod::security::sysctl_name;

#[cfg(test)]
mod tests;

/// Safe parameters, each with the kernel from which on it belongs to a namespace.
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
            return Some(Self::Ipc);
        }
        name.starts_with("net.").then_some(Self::Net)
    }

    /// Its name in the reference's messages.
    fn title(self) -> &'static str {
        match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        }
    }
}

/// An allowed pattern that belongs to no namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sysctls {stem:?} are not known to be namespaced")]
pub struct SysctlPatternError {
    /// The pattern up to its first `*`.
    pub stem: String,
}

/// The parameters that pods of this node may set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedSysctls {
    names: Vec<(String, Namespace)>,
    prefixes: Vec<(String, Namespace)>,
}

impl AllowedSysctls {
    /// The safe ones of a kernel (`None`: not known, so only those of every kernel) and the
    /// patterns of `allowedUnsafeSysctls`. A pattern outside every namespace is an error.
    pub fn new(
        kernel: Option<(u32, u32)>,
        patterns: &[String],
    ) -> Result<Self, SysctlPatternError> {
        let mut allowed = Self::default();
        for (name, since) in SAFE {
            if kernel.unwrap_or((0, 0)) >= *since
                && let Some(namespace) = Namespace::of(name)
            {
                allowed.names.push(((*name).to_owned(), namespace));
            }
        }
        for pattern in patterns {
            let name = sysctl_name(pattern);
            let (stem, is_prefix) = match name.split_once('*') {
                Some((stem, _)) => (stem.to_owned(), true),
                None => (name, false),
            };
            let Some(namespace) = Namespace::of(&stem) else {
                return Err(SysctlPatternError { stem });
            };
            let list = if is_prefix { &mut allowed.prefixes } else { &mut allowed.names };
            list.push((stem, namespace));
        }
        Ok(allowed)
    }

    /// The error for a sysctl that the pod may not set; None where all are allowed.
    pub(super) fn rejection(&self, pod: &Pod) -> Option<String> {
        let sysctls = &pod.spec.security_context.as_ref()?.sysctls;
        sysctls.iter().find_map(|sysctl| self.rejection_of(pod, &sysctl.name))
    }

    fn rejection_of(&self, pod: &Pod, name: &str) -> Option<String> {
        let name = sysctl_name(name);
        let exact = self.names.iter().find(|(allowed, _)| *allowed == name);
        let found =
            exact.or_else(|| self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix)));
        let Some((_, namespace)) = found else {
            return Some(format!("{name:?} not allowlisted"));
        };
        let shared = match namespace {
            Namespace::Ipc => pod.spec.host_ipc,
            Namespace::Net => pod.spec.host_network,
        };
        shared.then(|| format!("{name:?} not allowed with host {} enabled", namespace.title()))
    }
}

/// The first two numbers of a kernel's release, such as `6.8.0-45-generic`.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor.get(..digits)?.parse().ok()?))
}
