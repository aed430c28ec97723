//! Finds a name that two roots both claim. Pure.

use std::fmt;
use std::path::PathBuf;

use crate::{Claim, Holdings};

/// A name that another root has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Such as `the bridge keelson0`.
    pub what: String,
    /// What to do about it.
    pub next_step: &'static str,
    pub owner: Claim,
}

impl std::error::Error for Conflict {}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { holdings, is_alive } = &self.owner;
        let (what, root, step) = (&self.what, holdings.root.display(), self.next_step);
        write!(formatter, "{what} belongs to the root {root} (")?;
        if *is_alive {
            write!(formatter, "pid {}", holdings.pid)?;
        } else {
            formatter.write_str("its process has ended, its pods run")?;
        }
        write!(formatter, "); {step}")
    }
}

impl Conflict {
    /// The whole root belongs to another process.
    pub(crate) fn of_root(owner: Claim) -> Self {
        let what = format!("the root {}", owner.holdings.root.display());
        Self { what, next_step: "stop that process, or use another root", owner }
    }
}

/// The first name of `own` that one of the others has.
pub(crate) fn first(own: &Holdings, others: &[Claim]) -> Option<Conflict> {
    others.iter().find_map(|other| {
        let (what, next_step) = with(own, &other.holdings)?;
        Some(Conflict { what, next_step, owner: other.clone() })
    })
}

fn with(own: &Holdings, other: &Holdings) -> Option<(String, &'static str)> {
    if !own.id.is_empty() && own.id == other.id && own.root != other.root {
        let what = format!("the id {} in {}/names.json", own.id, own.root.display());
        return Some((what, "a copied root needs neither names.json nor the records in runtime/"));
    }
    if let Some(state) = own.state.as_ref().filter(|state| Some(*state) == other.state.as_ref()) {
        let what = format!("the state directory {}", state.display());
        return Some((what, "say another one with --state"));
    }
    for group in &own.cgroups {
        if other.cgroups.iter().any(|taken| is_within(group, taken) || is_within(taken, group)) {
            let what = format!("the cgroup {group}");
            return Some((what, "stop its agent, or choose another cgroup root"));
        }
    }
    for directory in &own.directories {
        let is_taken =
            |taken: &PathBuf| directory.starts_with(taken) || taken.starts_with(directory);
        if other.directories.iter().any(is_taken) {
            let what = format!("the directory {}", directory.display());
            return Some((what, "stop its agent, or choose another directory (podLogsDir)"));
        }
    }
    if own.network_namespace != other.network_namespace {
        return None;
    }
    if !own.bridge.is_empty() && own.bridge == other.bridge {
        let what = format!("the bridge {}", own.bridge);
        return Some((what, "choose another with `network.bridge` of the runtime's settings"));
    }
    for subnet in &own.subnets {
        if other.subnets.iter().any(|taken| subnet.overlaps(taken)) {
            let what = format!("the subnet {subnet} or a part of it");
            return Some((what, "choose another with `network.subnets` of the runtime's settings"));
        }
    }
    for port in &own.ports {
        if other.ports.iter().any(|taken| port.overlaps(taken)) {
            let what = format!("the host port {}", port.number);
            return Some((what, "stop its pod, or choose another host port"));
        }
    }
    None
}

/// Whether `group` is `above` or below it.
fn is_within(group: &str, above: &str) -> bool {
    let (group, above) = (group.trim_matches('/'), above.trim_matches('/'));
    group.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
