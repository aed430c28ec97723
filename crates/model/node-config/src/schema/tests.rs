//! The tables against the typed settings, what each kind accepts, and every default.

use serde_json::{Value as Json, json};

use super::*;
use crate::diagnostic::{Diagnostic, Origin};
use crate::document::{self, Node};
use crate::kubelet_configuration::KubeletConfiguration;

const GATES_ON: DefaultingGates =
    DefaultingGates { crash_loop_back_off_max: true, ensure_secret_pulled_images: true };

fn origin() -> Origin {
    Origin::File { path: "c.yaml".into(), line: 0, column: 0 }
}

fn decoded(text: &str) -> (Node, Vec<Diagnostic>) {
    let root = document::parse(text.as_bytes(), &origin()).unwrap().root;
    let mut diagnostics = Vec::new();
    let tree = decode(&root, KUBELET_CONFIGURATION, NameMatching::Exact, &mut diagnostics);
    (tree, diagnostics)
}

fn settled(text: &str) -> Node {
    let (mut tree, diagnostics) = decoded(text);
    assert_eq!(diagnostics, [], "{text}");
    apply_defaults(&mut tree, GATES_ON);
    fill_absent(&mut tree);
    tree
}

fn value_at(tree: &Node, path: &str) -> Json {
    tree.find(path).map_or(Json::Null, Node::to_json)
}

/// A value of a kind that is not zero, with every list and map holding something.
fn sample(kind: FieldKind) -> Json {
    match kind {
        FieldKind::Bool => json!(true),
        FieldKind::Int32 | FieldKind::Int64 | FieldKind::Uint32 => json!(7),
        FieldKind::Float => json!(0.5),
        FieldKind::Text => json!("word"),
        FieldKind::Duration | FieldKind::DurationOrNanoseconds => json!("7s"),
        FieldKind::Quantity => json!("7Mi"),
        FieldKind::Time => json!("2026-01-01T00:00:00Z"),
        FieldKind::List(inner) => json!([sample(*inner)]),
        FieldKind::Map(inner) => json!({ "key": sample(*inner) }),
        FieldKind::Object(fields) => {
            fields.iter().map(|field| (field.name.to_owned(), sample(field.kind))).collect()
        }
    }
}

#[test]
fn the_tables_and_the_typed_settings_have_the_same_fields() {
    let full = sample(FieldKind::Object(KUBELET_CONFIGURATION));
    let tree = settled(&full.to_string());
    assert_eq!(tree.to_json(), full);
    // Reading into the type and writing it again loses nothing and adds nothing.
    let settings: KubeletConfiguration = serde_json::from_value(full.clone()).unwrap();
    assert_eq!(serde_json::to_value(settings).unwrap(), full);
}

#[test]
fn all_published_fields_are_there() {
    assert_eq!(KUBELET_CONFIGURATION.len(), 125);
    let mut names: Vec<_> = KUBELET_CONFIGURATION.iter().map(|field| field.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 125);
    assert!(field_at("authentication.webhook.cacheTTL").is_some());
    assert!(field_at("authentication.webhook.nothing").is_none());
    assert!(field_at("port.inner").is_none());
}

#[test]
fn each_kind_accepts_its_values() {
    let taken = [
        ("port: 10250", "port", json!(10250)),
        ("port: 1e4", "port", json!(10000)),
        ("port: 0x10", "port", json!(16)),
        ("{\"port\": 5}", "port", json!(5)),
        ("memoryThrottlingFactor: 1", "memoryThrottlingFactor", json!(1)),
        ("{\"memoryThrottlingFactor\": 1.0}", "memoryThrottlingFactor", json!(1)),
        ("memoryThrottlingFactor: 0.8", "memoryThrottlingFactor", json!(0.8)),
        ("syncFrequency: 90s", "syncFrequency", json!("1m30s")),
        (
            "logging: {flushFrequency: 7000000000}",
            "logging.flushFrequency",
            json!(7_000_000_000_i64),
        ),
        ("logging: {flushFrequency: 60s}", "logging.flushFrequency", json!("1m0s")),
        ("logging: {flushFrequency: null}", "logging.flushFrequency", json!("5s")),
        ("logging: {flushFrequency: 0}", "logging.flushFrequency", json!("5s")),
        (
            "logging: {options: {json: {infoBufferSize: 1024}}}",
            "logging.options.json.infoBufferSize",
            json!("1024"),
        ),
        (
            "logging: {options: {json: {infoBufferSize: 1024Ki}}}",
            "logging.options.json.infoBufferSize",
            json!("1Mi"),
        ),
        (
            "logging: {options: {json: {infoBufferSize: null}}}",
            "logging.options.json.infoBufferSize",
            json!("0"),
        ),
        ("failSwapOn: no", "failSwapOn", json!(false)),
        ("authentication: null", "authentication.anonymous.enabled", json!(false)),
        ("clusterDNS: null", "clusterDNS", json!([])),
        ("clusterDNS: [null, a]", "clusterDNS", json!(["", "a"])),
        ("evictionHard: {memory.available: }", "evictionHard", json!({"memory.available": ""})),
        ("featureGates: {A: null}", "featureGates", json!({"A": false})),
        (
            "staticPodURLHeader: {A: [b], C: null}",
            "staticPodURLHeader",
            json!({"A": ["b"], "C": []}),
        ),
        (
            "reservedMemory: [{limits: {memory: 1}}]",
            "reservedMemory",
            json!([{"numaNode": 0, "limits": {"memory": "1"}}]),
        ),
        (
            "registerWithTaints: [null]",
            "registerWithTaints",
            json!([{"key": "", "value": "", "effect": ""}]),
        ),
        ("cpuCFSQuotaPeriod: null", "cpuCFSQuotaPeriod", json!("100ms")),
        ("tracing: {}", "tracing", json!({})),
        ("tracing: null", "tracing", json!(null)),
    ];
    for (text, path, wanted) in taken {
        assert_eq!(value_at(&settled(text), path), wanted, "{text}");
    }
}

#[test]
fn each_kind_refuses_other_values() {
    for (text, expected) in [
        (
            "port: \"10250\"",
            "c.yaml:1: port: 10250: expected a whole number from -2147483648 to 2147483647, found a string",
        ),
        (
            "port: 2147483648",
            "c.yaml:1: port: 2147483648: expected a whole number from -2147483648 to 2147483647",
        ),
        (
            "port: 1.5",
            "c.yaml:1: port: 1.5: expected a whole number from -2147483648 to 2147483647, found a number with a fraction",
        ),
        (
            "{\"port\": 1.0}",
            "c.yaml:1: port: 1.0: expected a whole number from -2147483648 to 2147483647, found a number with a fraction",
        ),
        ("clusterDomain: 5", "c.yaml:1: clusterDomain: 5: expected a string, found a whole number"),
        (
            "failSwapOn: \"false\"",
            "c.yaml:1: failSwapOn: false: expected true or false, found a string",
        ),
        (
            "syncFrequency: 60",
            "c.yaml:1: syncFrequency: 60: expected a duration as a string, such as \"1m30s\", found a whole number",
        ),
        (
            "syncFrequency: 1 minute",
            "c.yaml:1: syncFrequency: 1 minute: expected a duration as a string, such as \"1m30s\"",
        ),
        (
            "syncFrequency: null",
            "c.yaml:1: syncFrequency: null: expected a duration as a string, such as \"1m30s\", found null",
        ),
        (
            "logging: {verbosity: -1}",
            "c.yaml:1: logging.verbosity: -1: expected a whole number from 0 to 4294967295",
        ),
        ("clusterDNS: 10.0.0.1", "c.yaml:1: clusterDNS: 10.0.0.1: expected a list, found a string"),
        ("authentication: []", "c.yaml:1: authentication: []: expected an object, found a list"),
        (
            "evictionHard:\n  a: 5",
            "c.yaml:2: evictionHard.a: 5: expected a string, found a whole number",
        ),
        (
            "staticPodURLHeader:\n  A: secret",
            "c.yaml:2: staticPodURLHeader.A: <masked>: expected a list, found a string",
        ),
        (
            "reservedMemory: [{limits: {memory: 1Gx}}]",
            "c.yaml:1: reservedMemory[0].limits.memory: 1Gx: expected a quantity, such as \"100Mi\" or 1024",
        ),
        (
            "tlsCurvePreferences: [X25519]",
            "c.yaml:1: tlsCurvePreferences[0]: X25519: expected a whole number from -2147483648 to 2147483647, found a string",
        ),
    ] {
        let (_, diagnostics) = decoded(text);
        let found: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!(found, [expected], "{text}");
        assert!(diagnostics[0].is_error());
    }
}

#[test]
fn unknown_fields_are_dropped_with_a_warning_and_a_guess() {
    let (tree, diagnostics) = decoded("MaxPods: 5\nlogging:\n  nothing: [1]\n");
    assert_eq!(tree.to_json(), json!({"logging": {}}));
    let found: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "c.yaml:1: MaxPods: 5: unknown field, ignored; did you mean maxPods?",
            "c.yaml:3: logging.nothing: [...]: unknown field, ignored"
        ]
    );
    assert!(diagnostics.iter().all(|diagnostic| !diagnostic.is_error()));
}

#[test]
fn names_of_any_case_meet_in_the_order_of_their_bytes() {
    let text =
        "MAXPODS: 1\nmaxPods: 2\nmaxpods: 3\nlogging: {format: text}\nLogging: {VERBOSITY: 4}";
    let root = document::parse(text.as_bytes(), &origin()).unwrap().root;
    let mut diagnostics = Vec::new();
    let tree = decode(&root, KUBELET_CONFIGURATION, NameMatching::IgnoreCase, &mut diagnostics);
    assert_eq!(diagnostics, []);
    assert_eq!(
        tree.to_json(),
        json!({"maxPods": 3, "logging": {"format": "text", "verbosity": 4}})
    );
}

#[test]
fn a_zero_is_unset_in_a_plain_field_and_set_in_an_explicit_one() {
    let tree = settled(
        "maxPods: 0\nsyncFrequency: 0s\naddress: ''\nregistryPullQPS: 0\nhealthzPort: 0\n\
         cpuCFSQuotaPeriod: 0s\nresolvConf: ''\nenforceNodeAllocatable: []\nrotateCertificates: false\n\
         eventBurst: 0\nmemoryThrottlingFactor: 0\n",
    );
    for (path, wanted) in [
        ("maxPods", json!(110)),
        ("syncFrequency", json!("1m0s")),
        ("address", json!("0.0.0.0")),
        ("eventBurst", json!(100)),
        ("registryPullQPS", json!(0)),
        ("healthzPort", json!(0)),
        ("cpuCFSQuotaPeriod", json!("0s")),
        ("resolvConf", json!("")),
        ("enforceNodeAllocatable", json!([])),
        ("rotateCertificates", json!(false)),
        ("memoryThrottlingFactor", json!(0)),
    ] {
        assert_eq!(value_at(&tree, path), wanted, "{path}");
    }
}

#[test]
fn defaults_that_look_at_other_fields() {
    for (text, path, wanted) in [
        ("port: 1", "nodeStatusReportFrequency", json!("5m0s")),
        ("port: 1", "nodeStatusUpdateFrequency", json!("10s")),
        ("nodeStatusUpdateFrequency: 7s", "nodeStatusReportFrequency", json!("7s")),
        ("nodeStatusUpdateFrequency: 0s", "nodeStatusReportFrequency", json!("5m0s")),
        (
            "nodeStatusUpdateFrequency: 7s\nnodeStatusReportFrequency: 9s",
            "nodeStatusReportFrequency",
            json!("9s"),
        ),
        ("maxParallelImagePulls: 2", "serializeImagePulls", json!(false)),
        ("maxParallelImagePulls: 1", "serializeImagePulls", json!(true)),
        ("maxParallelImagePulls: 2\nserializeImagePulls: true", "serializeImagePulls", json!(true)),
        ("podPidsLimit: -5", "podPidsLimit", json!(-1)),
        ("podPidsLimit: 0", "podPidsLimit", json!(0)),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 0s}",
            "crashLoopBackOff.maxContainerRestartPeriod",
            json!("0s"),
        ),
        ("port: 1", "crashLoopBackOff.maxContainerRestartPeriod", json!("5m0s")),
        ("port: 1", "imagePullCredentialsVerificationPolicy", json!("NeverVerifyPreloadedImages")),
    ] {
        assert_eq!(value_at(&settled(text), path), wanted, "{text}");
    }
    let off =
        DefaultingGates { crash_loop_back_off_max: false, ensure_secret_pulled_images: false };
    let (mut tree, _) = decoded("port: 1");
    apply_defaults(&mut tree, off);
    fill_absent(&mut tree);
    assert_eq!(value_at(&tree, "crashLoopBackOff"), json!({}));
    assert_eq!(value_at(&tree, "imagePullCredentialsVerificationPolicy"), json!(""));
}

#[test]
fn defaults_are_known_as_such_and_applying_them_twice_changes_nothing() {
    let mut tree = settled("maxPods: 5");
    let before = tree.clone();
    apply_defaults(&mut tree, GATES_ON);
    fill_absent(&mut tree);
    assert_eq!(tree, before);
    assert_eq!(tree.find("maxPods").unwrap().origin, origin().at(1, 10));
    assert!(tree.find("port").unwrap().origin.is_default());
}

#[test]
fn the_document_form_omits_defaults() {
    let tree = settled("clusterDNS: []\nenforceNodeAllocatable: []");
    let written = document_form(&tree, KUBELET_CONFIGURATION).to_json();
    for absent in [
        "clusterDNS",
        "enforceNodeAllocatable",
        "readOnlyPort",
        "tracing",
        "evictionHard",
        "rotateCertificates",
    ] {
        assert!(written.get(absent).is_none(), "{absent}");
    }
    for (present, wanted) in [
        ("memorySwap", json!({})),
        ("shutdownGracePeriod", json!("0s")),
        ("enableSystemLogQuery", json!(false)),
        ("imageMaximumGCAge", json!("0s")),
        (
            "logging",
            json!({"format": "text", "flushFrequency": "5s", "verbosity": 0,
            "options": {"text": {"infoBufferSize": "0"}, "json": {"infoBufferSize": "0"}}}),
        ),
    ] {
        assert_eq!(written[present], wanted, "{present}");
    }
}
