//! Capabilities by name and as bits. Pure.
//!
//! upstream: containerd internal/cri/opts/spec_opts.go, pkg/oci/spec.go (default set)

use container_create::capability_names::CAPABILITIES;
use container_create::spec::CapabilitySpec;
use cri_wire::v1;

#[cfg(test)]
mod tests;

const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

fn bit(name: &str) -> Option<u64> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    CAPABILITIES.iter().position(|known| *known == name).map(|number| 1 << number)
}

/// Whether a set contains the capability of that name.
pub(crate) fn has(set: u64, name: &str) -> bool {
    bit(name).is_some_and(|bit| set & bit != 0)
}

fn default_set() -> u64 {
    DEFAULT.iter().filter_map(|name| bit(name)).sum()
}

/// The capabilities of a container. `all` is the server's own bounding set.
pub(super) fn of(security: &v1::LinuxContainerSecurityContext, all: u64) -> CapabilitySpec {
    let mut set = default_set();
    let mut ambient = 0;
    if security.privileged {
        set = all;
    } else if let Some(wanted) = &security.capabilities {
        let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
        if wanted.add_capabilities.iter().any(is_all) {
            set = all;
        }
        if wanted.drop_capabilities.iter().any(is_all) {
            set = 0;
        }
        set |= bits("add", wanted.add_capabilities.iter().filter(|name| !is_all(name)));
        ambient = bits("ambient", wanted.add_ambient_capabilities.iter());
        set |= ambient;
        let dropped = bits("drop", wanted.drop_capabilities.iter().filter(|name| !is_all(name)));
        set &= !dropped;
        ambient &= !dropped;
    }
    CapabilitySpec {
        bounding: set,
        effective: set,
        permitted: set,
        // Inheritable ones would come back through files (CVE-2022-24769); ambient ones need them.
        inheritable: ambient,
        ambient,
    }
}

/// Unknown names are left out and logged, as in containerd: a newer kernel has newer ones, and a
/// pod that worked must go on working.
fn bits<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> u64 {
    let mut set = 0;
    for name in names {
        match bit(name) {
            Some(bit) => set |= bit,
            None => tracing::warn!(name, what, "an unknown capability is ignored"),
        }
    }
    set
}

/// The bounding set of this process, from `/proc/self/status`.
pub(crate) fn own_bounding_set(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_else(default_set)
}
