//! Rules for what a pod says for all its containers together.

use pod_model::pod::PodSpec;
use pod_model::pod::resources::{
    HUGE_PAGES_PREFIX, ResourceRequirements, ResourceSide, containers_total,
};

use super::ValidationContext;
use super::findings::{FieldPath, PodFindings};
use super::resources::{self, NameRules};

pub(super) fn check(around: &ValidationContext<'_>, findings: &mut PodFindings, path: &FieldPath) {
    let spec = around.spec;
    let Some(requirements) = &spec.resources else { return };
    if !around.gates.pod_level_resources {
        return;
    }
    if spec.is_windows() {
        findings.forbidden(path, "may not be set for a Windows pod");
        return;
    }
    if !requirements.claims.is_empty() {
        findings.forbidden(&path.child("claims"), "claims are for containers");
    }
    resources::check(requirements, NameRules::Pod, Some(&around.claim_names), findings, path);
    check_sums(spec, requirements, findings, path);
}

fn check_sums(
    spec: &PodSpec,
    requirements: &ResourceRequirements,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for (name, sum) in containers_total(spec, ResourceSide::Requests).iter() {
        if let Some(amount) = requirements.requests.get(name).filter(|amount| sum > *amount) {
            let why = format!("expected at least the {sum} that its containers request");
            findings.invalid(&path.child("requests").key(name), amount, why);
        }
    }
    for (name, sum) in containers_total(spec, ResourceSide::Limits).iter() {
        let amount = requirements.limits.get(name).filter(|amount| sum > *amount);
        if let Some(amount) = amount.filter(|_| name.starts_with(HUGE_PAGES_PREFIX)) {
            let why = format!("expected at least the {sum} that its containers may use");
            findings.invalid(&path.child("limits").key(name), amount, why);
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        for (name, limit) in container.resources.limits.iter() {
            if let Some(most) = requirements.limits.get(name).filter(|most| limit > *most) {
                let path = path.child("containers").index(index).key(name).child("limits");
                findings.invalid(
                    &path,
                    limit,
                    format!("expected at most the pod's limit of {most}"),
                );
            }
        }
    }
}
