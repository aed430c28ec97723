//! What is accepted, what is rejected, and the text of findings.

use document::diagnostic::Origin;

use super::{Decoded, ListPolicy, MAX_MANIFEST_BYTES, Strictness, decode};

fn read(text: &str, strictness: Strictness, lists: ListPolicy) -> Decoded {
    let origin = Origin::File { path: "pod.yaml".into(), line: 0, column: 0 };
    decode(text.as_bytes(), &origin, strictness, lists)
}

fn diagnostics_of(text: &str) -> Vec<String> {
    let decoded = read(text, Strictness::Lenient, ListPolicy::OnePod);
    decoded.diagnostics.iter().map(ToString::to_string).collect()
}

const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n";

#[test]
fn a_pod_is_read() {
    let decoded = read(GOOD, Strictness::Strict, ListPolicy::OnePod);
    assert!(decoded.diagnostics.is_empty(), "{:?}", decoded.diagnostics);
    let pod = &decoded.pods[0].pod;
    assert_eq!((&*pod.metadata.name, &*pod.spec.containers[0].image), ("a", "i"));
}

#[test]
fn every_finding_names_file_line_field_value_and_expectation() {
    for (text, expected) in [
        ("", "pod.yaml: the manifest is empty, expected a Pod"),
        ("  \n\n", "pod.yaml: the manifest is empty, expected a Pod"),
        ("kind: Pod\n", "pod.yaml:1: apiVersion: the version is missing, expected v1"),
        ("apiVersion: v1\n", "pod.yaml:1: kind: the kind is missing, expected Pod"),
        ("apiVersion: v1\nkind: Service\n", "pod.yaml:2: kind: Service: expected Pod"),
        ("apiVersion: v2\nkind: Pod\n", "pod.yaml:1: apiVersion: v2: expected v1"),
        ("[]", "pod.yaml:1: expected an object, found a list"),
        ("hello", "pod.yaml:1: expected an object, found a string"),
        (
            "apiVersion: v1\nkind: PodList\nitems: []\n",
            "pod.yaml:2: kind: PodList: expected Pod; lists of pods are read from a URL only",
        ),
        (
            &format!("{GOOD}    ports:\n    - containerPort: web\n"),
            "pod.yaml:9: spec.containers[0].ports[0].containerPort: web: expected a whole number of 32 bits, found a string",
        ),
        (
            &format!("{GOOD}    ports:\n    - containerPort: 99999999999\n"),
            "pod.yaml:9: spec.containers[0].ports[0].containerPort: 99999999999: expected a whole number of 32 bits, found a whole number",
        ),
        (
            &format!("{GOOD}    image: 5\n").replace("    image: i\n", ""),
            "pod.yaml:7: spec.containers[0].image: 5: expected a string, found a whole number",
        ),
        (
            &format!("{GOOD}    tty: \"true\"\n"),
            "pod.yaml:8: spec.containers[0].tty: true: expected true or false, found a string",
        ),
        (
            &format!("{GOOD}    resources: {{limits: {{cpu: lots}}}}\n"),
            "pod.yaml:8: spec.containers[0].resources.limits.cpu: lots: expected a quantity, such as \"500m\", \"1.5Gi\" or 2, found a string",
        ),
        (
            &format!("{GOOD}    command: run\n"),
            "pod.yaml:8: spec.containers[0].command: run: expected a list, found a string",
        ),
        (
            &format!("{GOOD}    livenessProbe: {{tcpSocket: {{port: 1.5}}}}\n"),
            "pod.yaml:8: spec.containers[0].livenessProbe.tcpSocket.port: 1.5: expected a port number or a port name, found a number with a fraction",
        ),
        (
            &GOOD.replace("{name: a}", "{name: a, creationTimestamp: today}"),
            "pod.yaml:3: metadata.creationTimestamp: today: expected a time, such as \"2026-01-02T03:04:05Z\", found a string",
        ),
        (
            &GOOD.replace("{name: a}", "[]"),
            "pod.yaml:3: metadata: []: expected an object, found a list",
        ),
    ] {
        assert_eq!(diagnostics_of(text), [expected], "{text}");
        let decoded = read(text, Strictness::Lenient, ListPolicy::OnePod);
        assert!(decoded.pods.is_empty() && decoded.has_errors(), "{text}");
    }
}

#[test]
fn unknown_fields_warn_or_refuse() {
    let text = format!("{GOOD}    imagepullpolicy: Never\n    colour: red\n");
    let decoded = read(&text, Strictness::Lenient, ListPolicy::OnePod);
    assert_eq!(decoded.pods.len(), 1);
    assert!(!decoded.has_errors());
    let lines: Vec<String> = decoded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "pod.yaml:9: spec.containers[0].colour: red: unknown field, ignored",
            "pod.yaml:8: spec.containers[0].imagepullpolicy: Never: unknown field, ignored; did you mean imagePullPolicy?",
        ]
    );
    let decoded = read(&text, Strictness::Strict, ListPolicy::OnePod);
    assert!(decoded.pods.is_empty());
    assert_eq!(decoded.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count(), 2);
}

#[test]
fn repeated_keys_warn_or_refuse() {
    let text = format!("{GOOD}    image: j\n");
    assert!(!read(&text, Strictness::Lenient, ListPolicy::OnePod).has_errors());
    assert!(read(&text, Strictness::Strict, ListPolicy::OnePod).has_errors());
}

#[test]
fn all_findings_come_at_once() {
    let text = format!("{GOOD}    tty: 1\n    stdin: 2\n    args: 3\n");
    assert_eq!(diagnostics_of(&text).len(), 3);
}

#[test]
fn null_means_unset() {
    let text = format!("{GOOD}    tty: null\n    env: ~\n    securityContext:\n");
    let decoded = read(&text, Strictness::Strict, ListPolicy::OnePod);
    assert!(decoded.diagnostics.is_empty(), "{:?}", decoded.diagnostics);
    assert!(decoded.pods[0].pod.spec.containers[0].security_context.is_none());
}

#[test]
fn lists_where_they_are_allowed() {
    let text = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- metadata: {name: b, generation: x}\n- kind: Service\n- kind: Pod\n  apiVersion: v1\n  metadata: {name: c}\n";
    let decoded = read(text, Strictness::Lenient, ListPolicy::PodOrList);
    let names: Vec<&str> = decoded.pods.iter().map(|each| &*each.pod.metadata.name).collect();
    assert_eq!(names, ["a", "c"]);
    let lines: Vec<String> = decoded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("pod.yaml:5: items[1].metadata.generation: x: "), "{lines:?}");
    assert!(lines[1].starts_with("pod.yaml:6: items[2]: Service: "), "{lines:?}");
}

#[test]
fn values_of_variables_are_not_shown() {
    let text = format!("{GOOD}    env: [{{name: A, value: {{secret: hush}}}}]\n");
    let lines = diagnostics_of(&text);
    assert!(lines[0].contains("<masked>") && !lines[0].contains("hush"), "{lines:?}");
}

#[test]
fn a_manifest_may_be_larger_than_a_configuration_but_not_without_limit() {
    let padded = |size: usize| format!("{GOOD}# {}\n", "x".repeat(size - GOOD.len()));
    let large = read(&padded(5 * 1024 * 1024), Strictness::Strict, ListPolicy::OnePod);
    assert_eq!(large.pods.len(), 1, "{:?}", large.diagnostics);
    let refused = diagnostics_of(&padded(MAX_MANIFEST_BYTES));
    assert!(refused.iter().any(|diagnostic| diagnostic.contains("10485760")), "{refused:?}");
}
