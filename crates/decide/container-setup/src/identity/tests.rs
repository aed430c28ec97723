//! Labels and annotations, as the reference has them.

use super::*;
use crate::testing::{first, one, one_with, pod_with};

#[test]
fn a_sandbox_has_the_pods_labels_and_ours_win() {
    let pod = pod_with(
        "labels: {app: shop, io.kubernetes.pod.uid: forged}, annotations: {note: x}",
        "{containers: [{name: app, image: i}]}",
    );
    let expected: Labels = [
        ("app", "shop"),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", "u-1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    assert_eq!(sandbox_labels(&pod), expected);
    assert_eq!(sandbox_annotations(&pod), [("note".to_owned(), "x".to_owned())].into());
}

#[test]
fn a_container_has_four_labels_and_none_of_the_pods() {
    let pod = pod_with("labels: {app: shop}", "{containers: [{name: app, image: i}]}");
    let labels = container_labels(&pod, first(&pod));
    let pairs: Vec<(&str, &str)> =
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let expected = [
        ("io.kubernetes.container.name", "app"),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", "u-1"),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn annotations_hold_what_is_needed_without_the_specification() {
    let pod = one_with(
        "terminationGracePeriodSeconds: 30,",
        "terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, \
         lifecycle: {preStop: {exec: {command: [\"a<b\"]}}}, \
         ports: [{name: http, containerPort: 80, protocol: TCP}, {containerPort: 53, hostPort: 5}]",
    );
    let given = [("vendor/x", "1"), (HASH, "forged")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let annotations = container_annotations(&pod, first(&pod), 7, &given);
    let hash = container_hash_text(first(&pod));
    for (name, expected) in [
        ("io.kubernetes.container.hash", hash.as_str()),
        ("io.kubernetes.container.restartCount", "7"),
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "30"),
        ("io.kubernetes.container.preStopHandler", r#"{"exec":{"command":["a\u003cb"]}}"#),
        (
            "io.kubernetes.container.ports",
            r#"[{"name":"http","containerPort":80,"protocol":"TCP"},{"hostPort":5,"containerPort":53}]"#,
        ),
        ("vendor/x", "1"),
    ] {
        assert_eq!(annotations.get(name).map(String::as_str), Some(expected), "{name}");
    }
    assert_eq!(annotations.len(), 8);
}

#[test]
fn unset_fields_get_no_annotation() {
    let pod = one("");
    let annotations = container_annotations(&pod, first(&pod), 0, &Labels::new());
    for name in [TERMINATION_GRACE, DELETION_GRACE, PRE_STOP_HANDLER, PORTS] {
        assert_eq!(annotations.get(name), None, "{name}");
    }
    // These two are written even when empty.
    assert_eq!(annotations.get(TERMINATION_MESSAGE_PATH).map(String::as_str), Some(""));
    assert_eq!(annotations.get(TERMINATION_MESSAGE_POLICY).map(String::as_str), Some(""));
    let deleted = pod_with("deletionGracePeriodSeconds: 5", "{containers: [{name: a, image: i}]}");
    let annotations = container_annotations(&deleted, first(&deleted), 0, &Labels::new());
    assert_eq!(annotations.get(DELETION_GRACE).map(String::as_str), Some("5"));
}

#[test]
fn annotations_are_read_back() {
    let mut pod = one_with(
        "terminationGracePeriodSeconds: 30,",
        "lifecycle: {preStop: {sleep: {seconds: 1}}}, terminationMessagePath: /t, terminationMessagePolicy: File, ports: [{containerPort: 1}]",
    );
    pod.metadata.deletion_grace_period_seconds = Some(9);
    let written = container_annotations(&pod, first(&pod), 4, &Labels::new());
    let expected = ParsedAnnotations {
        hash: pod_model::pod::container_hash(first(&pod)).into(),
        restart_count: 4,
        termination_message_path: "/t".to_owned(),
        termination_message_policy: "File".to_owned(),
        deletion_grace: Some(9),
        termination_grace: Some(30),
        pre_stop_handler: Some(r#"{"sleep":{"seconds":1}}"#.to_owned()),
        ports: Some(r#"[{"containerPort":1}]"#.to_owned()),
    };
    assert_eq!(parse_annotations(&written), expected);
}

#[test]
fn unreadable_annotations_are_none() {
    let pairs = [(HASH, "xyz"), (RESTART_COUNT, "-1"), (DELETION_GRACE, "soon")];
    let bad = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(parse_annotations(&bad), ParsedAnnotations::default());
    assert_eq!(parse_annotations(&Labels::new()), ParsedAnnotations::default());
}

#[test]
fn html_characters_are_escaped_as_the_kubelet_escapes_them() {
    assert_eq!(
        escaped_for_html("a<b>c&d\u{2028}\u{2029}é"),
        "a\\u003cb\\u003ec\\u0026d\\u2028\\u2029é"
    );
}
