//! Sysctls of a pod's namespaces.
//!
//! Rule: only those of a namespace that the pod owns; any other would change the host. Names may
//! have dots or slashes.

use std::collections::BTreeMap;

use crate::error::{CreateError, Result};
use crate::process_files::ProcessFiles;

#[cfg(test)]
mod tests;

const OF_IPC: &[&str] = &[
    "kernel/msgmax",
    "kernel/msgmnb",
    "kernel/msgmni",
    "kernel/sem",
    "kernel/shmall",
    "kernel/shmmax",
    "kernel/shmmni",
    "kernel/shm_rmid_forced",
];

/// Which namespaces are the pod's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnNamespaces {
    pub(crate) network: bool,
    pub(crate) ipc: bool,
    pub(crate) uts: bool,
}

/// The path beneath `/proc/sys`, if the sysctl belongs to one of these namespaces.
fn path(name: &str, own: OwnNamespaces) -> Result<String> {
    // With dots: a dot inside a part (a link's name) is written as a slash, and the other way
    // round.
    let first = name.find(['.', '/']);
    let swapped: String = match first.and_then(|at| name.as_bytes().get(at)) {
        Some(b'.') => name
            .chars()
            .map(|letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    };
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    if swapped.split('/').any(odd) {
        return Err(CreateError::invalid_spec(format!("{name:?} is no sysctl")));
    }
    let (kind, has) = if swapped.starts_with("net/") {
        ("network", own.network)
    } else if swapped.starts_with("fs/mqueue/") || OF_IPC.contains(&swapped.as_str()) {
        ("IPC", own.ipc)
    } else if swapped == "kernel/domainname" {
        ("UTS", own.uts)
    } else {
        return Err(CreateError::invalid_spec(format!(
            "the sysctl {name:?} does not belong to a namespace"
        )));
    };
    if !has {
        return Err(CreateError::invalid_spec(format!(
            "the sysctl {name:?} belongs to the {kind} namespace, and this is the machine's"
        )));
    }
    Ok(swapped)
}

/// Runs in the namespaces concerned.
pub(crate) fn apply(
    process: &ProcessFiles,
    sysctls: &BTreeMap<String, String>,
    own: OwnNamespaces,
) -> Result<()> {
    for (name, value) in sysctls {
        process.write(&format!("sys/{}", path(name, own)?), value)?;
    }
    Ok(())
}

/// Whether all of them can be applied.
pub(crate) fn check(sysctls: &BTreeMap<String, String>, own: OwnNamespaces) -> Result<()> {
    sysctls.keys().try_for_each(|name| path(name, own).map(drop))
}
