//! Precedence of profiles.

use super::*;
use crate::testing::{first, node, one_with, pod_with};
use RuntimeProfile::{Localhost, RuntimeDefault, Unconfined};

fn local(text: &str) -> RuntimeProfile {
    Localhost(text.to_owned())
}

#[test]
fn seccomp_by_container_pod_and_node() {
    let default = "securityContext: {seccompProfile: {type: RuntimeDefault}}";
    let unconfined = "securityContext: {seccompProfile: {type: Unconfined}}";
    let localhost =
        "securityContext: {seccompProfile: {type: Localhost, localhostProfile: p/a.json}}";
    let odd = "securityContext: {seccompProfile: {type: Odd}}";
    let beneath = local("/var/lib/kubelet/seccomp/p/a.json");
    for (of_pod, own, by_default, expected) in [
        ("", "", false, Unconfined),
        ("", "", true, RuntimeDefault),
        (default, "", false, RuntimeDefault),
        (unconfined, "", true, Unconfined),
        (localhost, "", false, beneath.clone()),
        (default, unconfined, true, Unconfined),
        (unconfined, default, false, RuntimeDefault),
        (unconfined, localhost, false, beneath),
        ("", odd, true, Unconfined),
        (default, "securityContext: {privileged: true}", false, RuntimeDefault),
        ("securityContext: {runAsUser: 1}", "", true, RuntimeDefault),
    ] {
        let pod = one_with(&format!("{of_pod}{}", if of_pod.is_empty() { "" } else { "," }), own);
        let mut node = node().security;
        node.seccomp_default = by_default;
        assert_eq!(seccomp(&pod, first(&pod), &node), Ok(expected), "{of_pod} {own}");
    }
}

#[test]
fn seccomp_that_cannot_be_had() {
    let missing = "localhostProfile must be set if seccompProfile type is Localhost.";
    let outside = |name: &str| {
        format!("localhostProfile {name:?}: expected a path beneath /var/lib/kubelet/seccomp")
    };
    for (profile, text) in [
        ("", missing.to_owned()),
        ("localhostProfile: \"\"", missing.to_owned()),
        ("localhostProfile: ../a", outside("../a")),
        ("localhostProfile: a/../../b", outside("a/../../b")),
        ("localhostProfile: /etc/a", outside("/etc/a")),
    ] {
        let own = format!("securityContext: {{seccompProfile: {{type: Localhost, {profile}}}}}");
        let pod = one_with("", &own);
        let error = seccomp(&pod, first(&pod), &node().security).expect_err(profile);
        assert_eq!(error.to_string(), text);
    }
}

fn with_annotation(value: &str, spec: &str, own: &str) -> Pod {
    let note = "container.apparmor.security.beta.kubernetes.io/app";
    let metadata = format!("annotations: {{{note}: {value}}}");
    pod_with(&metadata, &format!("{{{spec} containers: [{{name: app, image: i, {own}}}]}}"))
}

#[test]
fn apparmor_by_container_annotation_and_pod() {
    let field = |kind: &str| format!("securityContext: {{appArmorProfile: {{type: {kind}}}}}");
    let localhost = "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: lock}}";
    for (pod, expected) in [
        (one_with("", ""), None),
        (one_with(&format!("{},", field("RuntimeDefault")), ""), Some(RuntimeDefault)),
        (one_with("", &field("Unconfined")), Some(Unconfined)),
        (one_with("", localhost), Some(local("lock"))),
        (one_with(&format!("{localhost},"), &field("Unconfined")), Some(Unconfined)),
        (with_annotation("runtime/default", "", ""), Some(RuntimeDefault)),
        (with_annotation("unconfined", "", ""), Some(Unconfined)),
        (with_annotation("localhost/x", "", ""), Some(local("x"))),
        (with_annotation("unconfined", "", localhost), Some(local("lock"))),
        (with_annotation("unconfined", &format!("{localhost},"), ""), Some(Unconfined)),
        (with_annotation("odd", &format!("{localhost},"), ""), Some(local("lock"))),
        (with_annotation("odd", "", ""), None),
    ] {
        assert_eq!(apparmor(&pod, first(&pod)), Ok(expected), "{:?}", pod.metadata.annotations);
    }
}

#[test]
fn apparmor_that_cannot_be_had() {
    for (kind, text) in [
        ("Localhost", "missing localhost apparmor profile name"),
        ("Odd", "unknown apparmor profile type: \"Odd\""),
    ] {
        let field = format!("securityContext: {{appArmorProfile: {{type: {kind}}}}}");
        for pod in [one_with("", &field), one_with(&format!("{field},"), "")] {
            assert_eq!(apparmor(&pod, first(&pod)).expect_err(kind).to_string(), text);
        }
    }
}
