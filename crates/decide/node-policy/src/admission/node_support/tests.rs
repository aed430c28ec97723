//! Unsupported features, and the order of checks.

use pod_model::Quantity;
use pod_model::pod::ResourceRequirements;
use pod_model::pod::container::{ContainerRestartRule, RestartRuleAction};
use pod_model::pod::security::{PodSecurityContext, SecurityContext, Sysctl};
use pod_model::pod::spec::{OsName, PodOs};

use super::*;

fn node_capacity() -> NodeCapacity {
    let allocatable = [("cpu", Quantity::parse("8").unwrap())].into_iter().collect();
    NodeCapacity { name: "n".to_owned(), pods: 110, allocatable, ..NodeCapacity::default() }
}

fn able() -> NodeSupport {
    NodeSupport {
        sysctls: AllowedSysctls::new(Some((6, 1)), &[]).unwrap(),
        app_armor: true,
        strict_supplemental_groups: true,
        pod_level_resources: true,
        declared: DeclaredFeatures::default(),
    }
}

fn profile(kind: ProfileType, name: Option<&str>) -> Option<Box<SecurityProfile>> {
    Some(Box::new(SecurityProfile { kind, localhost_profile: name.map(Into::into) }))
}

/// A pod of one container, changed by each of these words.
fn pod(words: &str) -> Pod {
    let mut pod = Pod::default();
    pod.spec.containers.push(Container { name: "c".into(), ..Container::default() });
    let mut context = PodSecurityContext::default();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        match word {
            "sysctl" => {
                context.sysctls.push(Sysctl { name: "vm.swappiness".into(), value: "1".into() });
            }
            "strict" => {
                context.supplemental_groups_policy = Some(SupplementalGroupsPolicy::Strict);
            }
            "merge" => context.supplemental_groups_policy = Some(SupplementalGroupsPolicy::Merge),
            "armor" => context.app_armor_profile = profile(ProfileType::RuntimeDefault, None),
            "unconfined" => context.app_armor_profile = profile(ProfileType::Unconfined, None),
            "nameless" => context.app_armor_profile = profile(ProfileType::Localhost, Some(" ")),
            "named" => context.app_armor_profile = profile(ProfileType::Localhost, Some("x")),
            "container-armor" => {
                pod.spec.containers[0].security_context = Some(Box::new(SecurityContext {
                    app_armor_profile: profile(ProfileType::RuntimeDefault, None),
                    ..SecurityContext::default()
                }));
            }
            "annotation" => pod.metadata.annotations.insert(
                "container.apparmor.security.beta.kubernetes.io/c",
                "runtime/default".into(),
            ),
            "free-annotation" => pod
                .metadata
                .annotations
                .insert("container.apparmor.security.beta.kubernetes.io/c", "unconfined".into()),
            "running" => pod.status.phase = PodPhase::Running,
            "windows" => pod.spec.os = Some(PodOs { name: OsName::Windows }),
            "whole" => {
                let mut resources = ResourceRequirements::default();
                resources.requests.insert("cpu", Quantity::parse("1").unwrap());
                pod.spec.resources = Some(Box::new(resources));
            }
            "empty-whole" => pod.spec.resources = Some(Box::default()),
            "restart-all" => {
                let rule = ContainerRestartRule {
                    action: RestartRuleAction::RestartAllContainers,
                    ..ContainerRestartRule::default()
                };
                pod.spec.containers[0].restart_policy_rules.push(rule);
            }
            "elsewhere" => pod.spec.node_selector.insert("a", "b".into()),
            other => panic!("no word {other}"),
        }
    }
    pod.spec.security_context = Some(Box::new(context));
    pod
}

/// The reason that is given, and what of the message matters.
fn reason(words: &str, node_support: &NodeSupport) -> String {
    match check_all(&pod(words), &node_capacity(), node_support, &[]) {
        AdmissionDecision::Admitted => "admitted".to_owned(),
        AdmissionDecision::AdmittedByPreemption(others)
        | AdmissionDecision::AdmittedAfterTermination(others) => {
            format!("in place of {others:?}")
        }
        AdmissionDecision::Rejected { reason, message } => format!("{reason}: {message}"),
    }
}

#[test]
fn a_node_with_all_features_admits_the_pod() {
    for words in [
        "",
        "strict",
        "merge",
        "armor",
        "named",
        "whole",
        "unconfined",
        "annotation",
        "container-armor",
    ] {
        assert_eq!(reason(words, &able()), "admitted", "{words}");
    }
}

#[test]
fn a_node_with_all_features_rejects_disallowed_requests() {
    let sysctl = "SysctlForbidden: forbidden sysctl: \"vm.swappiness\" not allowlisted";
    let nameless = "AppArmor: Cannot enforce AppArmor: invalid empty AppArmor profile name: \" \"";
    for (words, expected) in
        [("sysctl", sysctl), ("nameless", nameless), ("nameless running", "admitted")]
    {
        assert_eq!(reason(words, &able()), expected, "{words}");
    }
}

#[test]
fn a_node_without_features_names_the_missing_feature() {
    let unable = NodeSupport::default();
    let armor = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
    let strict = "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not \
                  supported in this node";
    let whole = "PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled";
    for (words, expected) in [
        ("", "admitted"),
        ("armor", armor),
        ("named", armor),
        ("container-armor", armor),
        ("annotation", armor),
        ("free-annotation", "admitted"),
        ("unconfined", "admitted"),
        ("armor running", "admitted"),
        ("strict", strict),
        ("merge", "admitted"),
        ("whole", whole),
        ("empty-whole", "admitted"),
    ] {
        assert_eq!(reason(words, &unable), expected, "{words}");
    }
}

#[test]
fn no_pod_is_preempted_for_a_pod_that_is_rejected_anyway() {
    let full = NodeCapacity { pods: 1, ..node_capacity() };
    let mut other = pod("");
    other.metadata.uid = "u".into();
    let judged = |words: &str| {
        let mut asking = pod(words);
        asking.spec.priority = Some(2_000_000_000);
        check_all(&asking, &full, &NodeSupport::default(), &[&other])
    };
    assert_eq!(judged(""), AdmissionDecision::AdmittedByPreemption(vec!["u".to_owned()]));
    let refused = judged("armor");
    assert!(matches!(&refused, AdmissionDecision::Rejected { reason, .. } if reason == "AppArmor"));
}

#[test]
fn the_first_failed_check_is_reported() {
    let declared = DeclaredFeatures::new(
        &crate::admission::FeatureGates { declared: true, ..Default::default() },
        false,
    );
    let unable = NodeSupport { declared, ..NodeSupport::default() };
    for (words, expected) in [
        ("sysctl windows strict elsewhere armor whole", "SysctlForbidden"),
        ("windows strict elsewhere armor whole", "PodOSNotSupported"),
        ("strict elsewhere armor whole", "SupplementalGroupsPolicyNotSupported"),
        ("elsewhere armor whole", "NodeAffinity"),
        ("armor whole", "AppArmor"),
        ("whole restart-all", "PodLevelResourcesNotSupported"),
        ("restart-all", "PodFeatureUnsupported"),
    ] {
        let found = reason(words, &unable);
        assert_eq!(found.split(':').next(), Some(expected), "{words}");
    }
}
