//! Whether the node supports what a pod asks for: sysctls, AppArmor, strict supplemental groups,
//! pod-level resources, declared features.
//!
//! Rules: the order is the reference's: sysctls before resources, the others after; AppArmor is
//! checked only before a pod has run. The first that fails gives reason and message. No pod is
//! preempted for one that is rejected for something else (the reference preempts first and rejects
//! then).
//!
//! upstream: pkg/kubelet/lifecycle/handlers.go, pkg/kubelet/lifecycle/predicate.go,
//! pkg/security/apparmor/validate.go

use pod_model::pod::security::{ProfileType, SecurityProfile, SupplementalGroupsPolicy};
use pod_model::pod::spec::PodPhase;
use pod_model::pod::{Container, Pod};

use super::declared_features::DeclaredFeatures;
use super::sysctls::AllowedSysctls;
use super::{AdmissionDecision, NodeCapacity, admit, rejected};

#[cfg(test)]
mod tests;

/// The annotation for profiles from before there was a field.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Features of this node and its runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSupport {
    pub sysctls: AllowedSysctls,
    /// Whether the kernel enforces AppArmor profiles.
    pub app_armor: bool,
    /// Whether the runtime knows the policy `Strict` of supplemental groups.
    pub strict_supplemental_groups: bool,
    /// The gate `PodLevelResources`.
    pub pod_level_resources: bool,
    pub declared: DeclaredFeatures,
}

/// Every check, in the reference's order.
pub fn check_all(
    pod: &Pod,
    node_capacity: &NodeCapacity,
    node_support: &NodeSupport,
    others: &[&Pod],
) -> AdmissionDecision {
    if let Some(rejection) = node_support.sysctls.rejection(pod) {
        return rejected("SysctlForbidden", format!("forbidden sysctl: {rejection}"));
    }
    let decision = admit(pod, node_capacity, others);
    let is_of_other_system = matches!(&decision, AdmissionDecision::Rejected { reason, .. } if reason.starts_with("PodOS"));
    if wants_strict_groups(pod) && !node_support.strict_supplemental_groups && !is_of_other_system {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return rejected("SupplementalGroupsPolicyNotSupported", message);
    }
    if matches!(decision, AdmissionDecision::Rejected { .. }) {
        return decision;
    }
    if let Some(problem) = app_armor_problem(pod, node_support.app_armor) {
        return rejected("AppArmor", format!("Cannot enforce AppArmor: {problem}"));
    }
    let has_pod_level_value = pod
        .spec
        .resources
        .as_ref()
        .is_some_and(|all| !(all.requests.is_empty() && all.limits.is_empty()));
    if has_pod_level_value && !node_support.pod_level_resources {
        let message = "PodLevelResources feature gate is disabled";
        return rejected("PodLevelResourcesNotSupported", message);
    }
    if let Some(message) = node_support.declared.rejection(pod) {
        return rejected("PodFeatureUnsupported", message);
    }
    decision
}

fn wants_strict_groups(pod: &Pod) -> bool {
    let context = pod.spec.security_context.as_ref();
    context.and_then(|context| context.supplemental_groups_policy.as_ref())
        == Some(&SupplementalGroupsPolicy::Strict)
}

/// The error of the requested profiles, if the pod has not run yet.
fn app_armor_problem(pod: &Pod, enforced: bool) -> Option<String> {
    let phase = &pod.status.phase;
    if *phase != PodPhase::Pending && !phase.is_empty() {
        return None;
    }
    let of_pod = pod.spec.security_context.as_ref().and_then(|it| it.app_armor_profile.as_deref());
    let of = |container: &Container| -> Option<SecurityProfile> {
        let context = container.security_context.as_ref();
        context.and_then(|it| it.app_armor_profile.as_deref()).or(of_pod).cloned()
    };
    let profiles: Vec<SecurityProfile> =
        pod.spec.all_containers().filter_map(|(_, _, container)| of(container)).collect();
    let confines = |profile: &SecurityProfile| profile.kind != ProfileType::Unconfined;
    let annotated = pod.metadata.annotations.iter().find(|(key, _)| key.starts_with(ANNOTATION));
    let asks = of_pod.is_some_and(confines)
        || profiles.iter().any(confines)
        || annotated.is_some_and(|(_, value)| &**value != "unconfined");
    if asks && !enforced {
        return Some("AppArmor is not enabled on the host".to_owned());
    }
    profiles.iter().find_map(|profile| {
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        let nameless = profile.kind == ProfileType::Localhost && name.trim().is_empty();
        nameless.then(|| format!("invalid empty AppArmor profile name: {name:?}"))
    })
}
