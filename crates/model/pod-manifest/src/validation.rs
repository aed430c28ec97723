//! Whether an API server would take a pod for creation.
//!
//! The rule it keeps: the same result as the reference, all findings at once, each with the value
//! and the field path that the reference gives it. It expects a pod with its defaults filled in.
//! The messages are our own.
//!
//! upstream: pkg/apis/core/validation/validation.go (ValidatePodCreate)

use std::collections::{BTreeMap, BTreeSet};

use document::diagnostic::Diagnostic;
use pod_model::pod::{Pod, PodSpec, VolumeSource};

use crate::PodGates;

mod claims;
mod container;
mod environment;
mod findings;
pub(crate) mod formats;
mod handlers;
mod metadata;
mod mounts;
mod network_volumes;
mod operating_system;
mod pod_resources;
mod projected;
mod resources;
mod scheduling;
mod security;
mod selectors;
mod spec;
mod volumes;
mod windows_options;

#[cfg(test)]
pub(crate) mod tests;

use findings::PodFindings;

pub(crate) use metadata::{APP_ARMOR_ANNOTATION_PREFIX, LOCALHOST_PREFIX};
pub(crate) use resources::is_overcommit_allowed;

/// The pod context that the rules for containers need.
struct ValidationContext<'pod> {
    spec: &'pod PodSpec,
    gates: &'pod PodGates,
    /// Volumes without findings, by name: only those may be mounted.
    volumes: BTreeMap<&'pod str, &'pod VolumeSource>,
    claim_names: BTreeSet<&'pod str>,
}

/// Validates a pod that is to be created.
pub fn validate(pod: &Pod, gates: &PodGates) -> Vec<Diagnostic> {
    let mut findings = PodFindings::default();
    metadata::check(pod, &mut findings);
    spec::check(pod, gates, &mut findings);
    metadata::check_agreement(pod, &mut findings);
    findings.into_diagnostics()
}
