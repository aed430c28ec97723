//! The merged security contexts, and the result of each field.

use super::*;
use crate::testing::{first, node, one, one_with, texts};
use ports::runtime_objects::{
    ImageRecord, NamespaceMode, SupplementalGroupsPolicy as Groups, UserNamespace,
};

fn facts() -> ContainerSetupInputs {
    ContainerSetupInputs {
        image: ImageRecord { uid: Some(100), ..Default::default() },
        ..Default::default()
    }
}

fn made(spec: &str, own: &str) -> ContainerSecurity {
    let pod = one_with(spec, own);
    of_container(&pod, first(&pod), &node(), &PodSetupInputs::default(), &facts()).expect("allowed")
}

#[test]
fn unset_fields_give_the_defaults() {
    let security = made("", "");
    let expected = ContainerSecurity {
        namespaces: ports::runtime_objects::NamespaceOptions {
            pid: NamespaceMode::Container,
            user: Some(UserNamespace { mode: NamespaceMode::Node, ..Default::default() }),
            ..Default::default()
        },
        run_as_user: Some(100),
        masked_paths: texts(&MASKED),
        readonly_paths: texts(&READ_ONLY),
        seccomp: Some(runtime::SecurityProfile::Unconfined),
        ..Default::default()
    };
    assert_eq!(security, expected);
}

#[test]
fn users_and_groups_of_both() {
    let pod = "securityContext: {runAsUser: 1, runAsGroup: 2},";
    let own = "securityContext: {runAsUser: 3, runAsGroup: 4}";
    for (spec, own, user, group) in [
        ("", "", Some(100), None),
        (pod, "", Some(1), Some(2)),
        ("", own, Some(3), Some(4)),
        (pod, own, Some(3), Some(4)),
        (pod, "securityContext: {runAsGroup: 5}", Some(1), Some(5)),
        (pod, "securityContext: {runAsUser: 0}", Some(0), Some(2)),
    ] {
        let security = made(spec, own);
        assert_eq!((security.run_as_user, security.run_as_group), (user, group), "{spec} {own}");
        assert_eq!(security.run_as_username, "");
    }
}

#[test]
fn an_images_user_by_name_is_passed_on_unless_a_number_is_asked_for() {
    let mut facts = facts();
    facts.image = ImageRecord { user_name: "app".into(), ..Default::default() };
    for (own, user, name) in [("", None, "app"), ("securityContext: {runAsUser: 7}", Some(7), "")] {
        let pod = one(own);
        let security = of_container(&pod, first(&pod), &node(), &PodSetupInputs::default(), &facts)
            .expect("allowed");
        assert_eq!((security.run_as_user, security.run_as_username.as_str()), (user, name));
    }
}

#[test]
fn root_is_refused_where_it_must_be() {
    let pod = one("securityContext: {runAsNonRoot: true, runAsUser: 0}");
    let error = of_container(&pod, first(&pod), &node(), &PodSetupInputs::default(), &facts());
    let text = error.expect_err("root").to_string();
    assert!(text.starts_with("container's runAsUser breaks non-root policy"), "{text}");
}

#[test]
fn switches_and_lists() {
    let security = made(
        "",
        "securityContext: {privileged: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, \
         capabilities: {add: [NET_ADMIN], drop: [ALL, CHOWN]}}",
    );
    assert!(security.privileged && security.readonly_rootfs && security.no_new_privs);
    assert_eq!(security.capabilities_add, ["NET_ADMIN"]);
    assert_eq!(security.capabilities_drop, ["ALL", "CHOWN"]);
    let security = made(
        "",
        "securityContext: {allowPrivilegeEscalation: true, privileged: false, readOnlyRootFilesystem: false}",
    );
    assert!(!(security.privileged || security.readonly_rootfs || security.no_new_privs));
}

#[test]
fn selinux_is_taken_whole_from_the_nearest() {
    let pod = "securityContext: {seLinuxOptions: {user: pu, role: pr, type: pt, level: pl}},";
    let of = |user: &str, role: &str, kind: &str, level: &str| SeLinuxLabel {
        user: user.into(),
        role: role.into(),
        kind: kind.into(),
        level: level.into(),
    };
    assert_eq!(made(pod, "").selinux, Some(of("pu", "pr", "pt", "pl")));
    let own = "securityContext: {seLinuxOptions: {level: cl}}";
    assert_eq!(made(pod, own).selinux, Some(of("", "", "", "cl")));
    assert_eq!(made("", own).selinux, Some(of("", "", "", "cl")));
    assert_eq!(made("", "").selinux, None);
}

#[test]
fn proc_is_masked_unless_it_is_wanted_whole() {
    for (own, masked) in [
        ("", true),
        ("securityContext: {procMount: Default}", true),
        ("securityContext: {procMount: Unmasked}", false),
    ] {
        let security = made("", own);
        assert_eq!(security.masked_paths.is_empty(), !masked, "{own}");
        assert_eq!(security.readonly_paths.is_empty(), !masked, "{own}");
    }
    let mut node = node();
    let throttle = "/sys/devices/system/cpu/cpu0/thermal_throttle";
    node.security.thermal_throttle_paths = texts(&[throttle]);
    let pod = one("");
    let security = of_container(&pod, first(&pod), &node, &PodSetupInputs::default(), &facts());
    assert_eq!(security.expect("allowed").masked_paths.last().map(String::as_str), Some(throttle));
}

#[test]
fn groups_of_the_pod_and_its_volumes() {
    let spec = "securityContext: {fsGroup: 1, supplementalGroups: [2, 3], supplementalGroupsPolicy: Strict},";
    let facts_of_pod = PodSetupInputs { volume_groups: vec![9], ..Default::default() };
    let pod = one_with(spec, "");
    let security =
        of_container(&pod, first(&pod), &node(), &facts_of_pod, &facts()).expect("allowed");
    assert_eq!(security.supplemental_groups, [1, 2, 3, 9]);
    assert_eq!(security.supplemental_groups_policy, Groups::Strict);
    let sandbox = of_sandbox(&pod, &facts_of_pod).expect("allowed");
    assert_eq!(sandbox.supplemental_groups, [1, 9, 2, 3]);
    assert_eq!(sandbox.supplemental_groups_policy, Groups::Strict);
    // Without a security context a container has the volumes' groups, a sandbox has none.
    let pod = one("");
    let security =
        of_container(&pod, first(&pod), &node(), &facts_of_pod, &facts()).expect("allowed");
    assert_eq!(security.supplemental_groups, [9]);
    assert_eq!(of_sandbox(&pod, &facts_of_pod).expect("allowed").supplemental_groups, [0_i64; 0]);
    let merge = one_with("securityContext: {supplementalGroupsPolicy: Merge},", "");
    assert_eq!(
        of_sandbox(&merge, &facts_of_pod).expect("allowed").supplemental_groups_policy,
        Groups::Merge
    );
    let odd = one_with("securityContext: {supplementalGroupsPolicy: Odd},", "");
    let text = "unsupported supplementalGroupsPolicy: Odd";
    assert_eq!(of_sandbox(&odd, &facts_of_pod).expect_err("odd").to_string(), text);
    let error = of_container(&odd, first(&odd), &node(), &facts_of_pod, &facts());
    assert_eq!(error.expect_err("odd").to_string(), text);
}

#[test]
fn a_container_joins_its_target_and_has_its_profiles() {
    let facts = ContainerSetupInputs { target_id: Some("t".into()), ..facts() };
    let pod = one(
        "securityContext: {appArmorProfile: {type: Unconfined}, seccompProfile: {type: RuntimeDefault}}",
    );
    let security = of_container(&pod, first(&pod), &node(), &PodSetupInputs::default(), &facts)
        .expect("allowed");
    assert_eq!(security.namespaces.pid, NamespaceMode::Target);
    assert_eq!(security.namespaces.target_id, "t");
    assert_eq!(security.apparmor, Some(runtime::SecurityProfile::Unconfined));
    assert_eq!(security.seccomp, Some(runtime::SecurityProfile::RuntimeDefault));
}

#[test]
fn a_sandbox_has_the_pods_users_and_the_runtimes_profile() {
    let pod = one_with(
        "hostIPC: true, securityContext: {runAsUser: 5, runAsGroup: 6, seLinuxOptions: {level: s0}, \
         seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}},",
        "",
    );
    let security = of_sandbox(&pod, &PodSetupInputs::default()).expect("allowed");
    assert_eq!((security.run_as_user, security.run_as_group), (Some(5), Some(6)));
    assert_eq!(security.selinux.expect("a label").level, "s0");
    assert_eq!(security.seccomp, Some(runtime::SecurityProfile::RuntimeDefault));
    assert_eq!(security.apparmor, None);
    assert_eq!(security.namespaces.ipc, NamespaceMode::Node);
    assert!(!security.privileged && !security.readonly_rootfs);
}

#[test]
fn a_sandbox_is_privileged_when_any_container_is() {
    let privileged = "securityContext: {privileged: true}";
    let with = |lists: &str| crate::testing::pod(&format!("{{{lists}}}"));
    for (lists, expected) in [
        (format!("containers: [{{name: a, image: i}}, {{name: b, image: i, {privileged}}}]"), true),
        (format!("initContainers: [{{name: i, image: i, {privileged}}}], containers: []"), true),
        (
            format!("ephemeralContainers: [{{name: e, image: i, {privileged}}}], containers: []"),
            true,
        ),
        (
            "containers: [{name: a, image: i, securityContext: {privileged: false}}]".to_owned(),
            false,
        ),
    ] {
        let security = of_sandbox(&with(&lists), &PodSetupInputs::default()).expect("allowed");
        assert_eq!(security.privileged, expected, "{lists}");
    }
}
