//! Finds a name that two roots both claim. Pure.

use std::fmt;
use std::path::PathBuf;

use crate::{Claim, ClaimedResources};

/// A name that another root has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimConflict {
    /// Such as `the bridge keelson0`.
    pub resource: String,
    /// What to do about it.
    pub next_step: &'static str,
    pub owner: Claim,
}

impl std::error::Error for ClaimConflict {}

impl fmt::Display for ClaimConflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { resources, is_alive } = &self.owner;
        let (resource, root, step) = (&self.resource, resources.root.display(), self.next_step);
        write!(formatter, "{resource} belongs to the root {root} (")?;
        if *is_alive {
            write!(formatter, "pid {}", resources.pid)?;
        } else {
            formatter.write_str("its process has ended, its pods run")?;
        }
        write!(formatter, "); {step}")
    }
}

impl ClaimConflict {
    /// The whole root belongs to another process.
    pub(crate) fn for_root(owner: Claim) -> Self {
        let resource = format!("the root {}", owner.resources.root.display());
        Self { resource, next_step: "stop that process, or use another root", owner }
    }
}

/// The first name of `own` that one of the others has.
pub(crate) fn first_conflict(own: &ClaimedResources, others: &[Claim]) -> Option<ClaimConflict> {
    others.iter().find_map(|other| {
        let (resource, next_step) = conflicting_resource(own, &other.resources)?;
        Some(ClaimConflict { resource, next_step, owner: other.clone() })
    })
}

fn conflicting_resource(
    own: &ClaimedResources,
    other: &ClaimedResources,
) -> Option<(String, &'static str)> {
    if !own.id.is_empty() && own.id == other.id && own.root != other.root {
        let resource = format!("the id {} in {}/names.json", own.id, own.root.display());
        return Some((
            resource,
            "a copied root needs neither names.json nor the records in runtime/",
        ));
    }
    if let Some(state) = own.state.as_ref().filter(|state| Some(*state) == other.state.as_ref()) {
        let resource = format!("the state directory {}", state.display());
        return Some((resource, "say another one with --state"));
    }
    for group in &own.cgroups {
        if other.cgroups.iter().any(|taken| is_within(group, taken) || is_within(taken, group)) {
            let resource = format!("the cgroup {group}");
            return Some((resource, "stop its agent, or choose another cgroup root"));
        }
    }
    for directory in &own.directories {
        let is_taken =
            |taken: &PathBuf| directory.starts_with(taken) || taken.starts_with(directory);
        if other.directories.iter().any(is_taken) {
            let resource = format!("the directory {}", directory.display());
            return Some((resource, "stop its agent, or choose another directory (podLogsDir)"));
        }
    }
    if own.network_namespace != other.network_namespace {
        return None;
    }
    if !own.bridge.is_empty() && own.bridge == other.bridge {
        let resource = format!("the bridge {}", own.bridge);
        return Some((resource, "choose another with `network.bridge` of the runtime's settings"));
    }
    for subnet in &own.subnets {
        if other.subnets.iter().any(|taken| subnet.overlaps(taken)) {
            let resource = format!("the subnet {subnet} or a part of it");
            return Some((
                resource,
                "choose another with `network.subnets` of the runtime's settings",
            ));
        }
    }
    for port in &own.ports {
        if other.ports.iter().any(|taken| port.overlaps(taken)) {
            let resource = format!("the host port {}", port.number);
            return Some((resource, "stop its pod, or choose another host port"));
        }
    }
    None
}

/// Whether `group` is `above` or below it.
fn is_within(group: &str, above: &str) -> bool {
    let (group, above) = (group.trim_matches('/'), above.trim_matches('/'));
    group.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
