//! Static pods: names, marks, tolerations, UIDs, and what they may not refer to.

use document::diagnostic::Origin;

use super::{
    ApiReference, HashedSource, SourceKind, api_reference, apply, fnv128a, identify,
    reference_beyond_contents, reference_uid,
};
use crate::validation::tests::{plain_pod, set_all, typed};
use crate::{PodGates, StaticPodSource, Strictness, read_static_pods};

#[test]
fn the_hash_is_fnv_1a_of_128_bits() {
    // The vectors of Go's hash/fnv.
    for (text, hash) in [
        ("", "6c62272e07bb014262b821756295c58d"),
        ("a", "d228cb696f1a8caf78912b704e4a8964"),
        ("ab", "08809544bbab1be95aa0733055b69a62"),
        ("abc", "a68d622cec8b5822836dbc7977af7f3b"),
    ] {
        assert_eq!(format!("{:032x}", fnv128a(text.as_bytes())), hash);
    }
    let whole = format!("{:032x}", fnv128a(b"dumphost:nfile:/m/a.yaml"));
    let file = HashedSource::File { node_name: "n", path: "/m/a.yaml" };
    assert_eq!(reference_uid(b"dump", file), whole);
    let whole = format!("{:032x}", fnv128a(b"dumpurl:http://a"));
    assert_eq!(reference_uid(b"dump", HashedSource::Url("http://a")), whole);
}

#[test]
fn a_static_pod_is_marked() {
    let mut pod = typed(&plain_pod());
    pod.metadata.namespace = Box::default();
    apply(&mut pod, "Node-A", SourceKind::File);
    identify(&mut pod, "uid-1", "2026-01-02T03:04:05Z");
    assert_eq!(pod.full_name(), "plain-node-a_default");
    assert_eq!(&*pod.spec.node_name, "Node-A");
    assert_eq!(&*pod.metadata.uid, "uid-1");
    let marks: Vec<(&str, &str)> =
        pod.metadata.annotations.iter().map(|(key, value)| (key, &**value)).collect();
    assert_eq!(
        marks,
        [
            ("kubernetes.io/config.hash", "uid-1"),
            ("kubernetes.io/config.seen", "2026-01-02T03:04:05Z"),
            ("kubernetes.io/config.source", "file"),
        ]
    );
    assert_eq!(pod.status.phase.as_str(), "Pending");
    assert_eq!(
        serde_json::to_string(&pod.spec.tolerations).expect("JSON"),
        r#"[{"operator":"Exists","effect":"NoExecute"}]"#
    );
}

#[test]
fn a_uid_of_the_manifest_stays_and_a_url_adds_no_toleration() {
    let mut pod = typed(&plain_pod());
    pod.metadata.uid = Box::from("own");
    apply(&mut pod, "n", SourceKind::Url);
    identify(&mut pod, "uid-1", "t");
    assert_eq!(&*pod.metadata.uid, "own");
    assert_eq!(pod.metadata.annotations.get("kubernetes.io/config.hash"), Some(&Box::from("own")));
    assert_eq!(
        pod.metadata.annotations.get("kubernetes.io/config.source"),
        Some(&Box::from("http"))
    );
    assert!(pod.spec.tolerations.is_empty());
}

#[test]
fn a_toleration_that_ends_is_made_endless() {
    let mut pod = plain_pod();
    set_all(
        &mut pod,
        r#"spec.tolerations=[{"operator":"Exists","effect":"NoExecute","tolerationSeconds":5},{"key":"a","operator":"Exists","effect":"NoExecute"}]"#,
    );
    let mut pod = typed(&pod);
    apply(&mut pod, "n", SourceKind::File);
    assert_eq!(pod.spec.tolerations.len(), 2);
    assert_eq!(pod.spec.tolerations[0].toleration_seconds, None);
}

/// Where ConfigMaps and Secrets come with the manifests, the other references stay.
fn check_beyond_contents(pod: &pod_model::pod::Pod, found: ApiReference) {
    let resource = found.resource;
    let is_content = resource.starts_with("configmaps") || resource.starts_with("secrets");
    let beyond = reference_beyond_contents(pod);
    if is_content {
        assert!(beyond.is_none_or(|beyond| beyond.resource != resource), "{pod:?}");
    } else {
        assert_eq!(beyond, Some(found), "{pod:?}");
    }
}

#[test]
fn references_to_the_api() {
    for (assignments, resource, field) in [
        (r#"spec.serviceAccountName="a""#, "serviceaccounts", "spec.serviceAccountName"),
        (r#"spec.imagePullSecrets=[{"name":"a"}]"#, "secrets", "spec.imagePullSecrets[0]"),
        (
            r#"spec.containers[0].envFrom=[{"configMapRef":{"name":"m"}}]"#,
            "configmaps",
            "spec.containers[0].envFrom[0]",
        ),
        (
            r#"spec.containers[0].env=[{"name":"A","valueFrom":{"secretKeyRef":{"name":"m","key":"k"}}}]"#,
            "secrets",
            "spec.containers[0].env[0]",
        ),
        (
            r#"spec.resourceClaims=[{"name":"a","resourceClaimName":"b"}]"#,
            "resourceclaims",
            "spec.resourceClaims",
        ),
        (
            r#"spec.volumes=[{"name":"a","secret":{"secretName":"s"}}]"#,
            "secrets",
            "spec.volumes[0]",
        ),
        (
            r#"spec.volumes=[{"name":"a","configMap":{"name":"s"}}]"#,
            "configmaps",
            "spec.volumes[0]",
        ),
        (
            r#"spec.volumes=[{"name":"a","csi":{"driver":"d"}}]"#,
            "csidrivers (via CSI volumes)",
            "spec.volumes[0].csi",
        ),
        (
            r#"spec.volumes=[{"name":"a","persistentVolumeClaim":{"claimName":"d"}}]"#,
            "persistentvolumeclaims",
            "spec.volumes[0].persistentVolumeClaim",
        ),
        (
            r#"spec.volumes=[{"name":"a","ephemeral":{}}]"#,
            "persistentvolumeclaims (via ephemeral volumes)",
            "spec.volumes[0].ephemeral",
        ),
        (
            r#"spec.volumes=[{"name":"a","projected":{"sources":[{"downwardAPI":{}},{"serviceAccountToken":{"path":"p"}}]}}]"#,
            "serviceaccounts (via projected volumes)",
            "spec.volumes[0].projected.sources[1]",
        ),
        (
            r#"spec.volumes=[{"name":"a","projected":{"sources":[{"clusterTrustBundle":{"path":"p"}}]}}]"#,
            "clustertrustbundles",
            "spec.volumes[0].projected.sources[0]",
        ),
        (
            r#"spec.volumes=[{"name":"a","projected":{"sources":[{"podCertificate":{}}]}}]"#,
            "podcertificates",
            "spec.volumes[0].projected.sources[0]",
        ),
        (
            r#"spec.volumes=[{"name":"a","projected":{"sources":[{}]}}]"#,
            "a source of an unknown kind",
            "spec.volumes[0].projected.sources[0]",
        ),
        (
            r#"spec.volumes=[{"name":"a","cephfs":{"monitors":["m"],"secretRef":{"name":"s"}}}]"#,
            "secrets",
            "spec.volumes[0]",
        ),
    ] {
        let mut pod = plain_pod();
        set_all(&mut pod, assignments);
        let found = api_reference(&typed(&pod)).expect(assignments);
        assert_eq!((found.resource, &*found.field), (resource, field), "{assignments}");
        check_beyond_contents(&typed(&pod), found);
    }
}

#[test]
fn volumes_of_the_machine_refer_to_nothing() {
    let mut pod = plain_pod();
    set_all(
        &mut pod,
        r#"spec.volumes=[{"name":"a","emptyDir":{}},{"name":"b","hostPath":{"path":"/"}},{"name":"c","downwardAPI":{}},{"name":"d","image":{"reference":"i"}},{"name":"e","projected":{"sources":[{"downwardAPI":{}}]}},{"name":"f","nfs":{"server":"s","path":"/"}}]"#,
    );
    assert_eq!(api_reference(&typed(&pod)), None);
}

fn read(text: &str, kind: SourceKind) -> crate::StaticPods {
    let source = StaticPodSource {
        node_name: "n",
        kind,
        strictness: Strictness::Lenient,
        gates: PodGates::default(),
    };
    let origin = Origin::File { path: "p.yaml".into(), line: 0, column: 0 };
    read_static_pods(text.as_bytes(), &origin, &source)
}

#[test]
fn a_manifest_becomes_a_static_pod_or_findings_with_lines() {
    let good = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n";
    let result = read(good, SourceKind::File);
    assert!(result.diagnostics.is_empty(), "{:?}", result.diagnostics);
    assert_eq!(result.pods[0].full_name(), "a-n_default");
    let bad = good.replace("image: i", "ports: [{containerPort: 70000}]");
    let result = read(&bad, SourceKind::File);
    let lines: Vec<String> = result.diagnostics.iter().map(ToString::to_string).collect();
    assert!(result.pods.is_empty());
    assert_eq!(result.refused, ["a-n_default"]);
    assert_eq!(
        lines,
        [
            "p.yaml:6: spec.containers[0].image: a value is required",
            "p.yaml:7: spec.containers[0].ports[0].containerPort: 70000: expected a number from 1 to 65535",
        ]
    );
    let referring = good.replace("spec:\n", "spec:\n  serviceAccountName: sa\n");
    let result = read(&referring, SourceKind::File);
    assert_eq!(
        result.diagnostics[0].to_string(),
        "p.yaml:5: spec.serviceAccountName: a static pod may not refer to serviceaccounts"
    );
    let nameless = good.replace("{name: a}", "{}");
    assert!(read(&nameless, SourceKind::File).diagnostics[0].to_string().contains("metadata.name"));
}

#[test]
fn a_uid_that_is_stated_must_be_fit_for_the_names_of_dirs_and_cgroups() {
    let long = |length: usize| "u".repeat(length);
    for (uid, is_fit) in [
        ("6f5c1a52-7f0e-4b0e-9d31-3f1f5e8f9a10", true),
        ("0123456789abcdef0123456789abcdef", true),
        ("Own.1-a", true),
        ("", true),
        (&*long(128), true),
        (&*long(129), false),
        ("a_b", false),
        ("a/b", false),
        ("..", false),
        (".a", false),
        ("-a", false),
        ("a b", false),
        ("\u{e9}", false),
    ] {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  uid: '{uid}'\n\
             spec: {{containers: [{{name: c, image: i}}]}}\n"
        );
        let result = read(&text, SourceKind::File);
        let messages: Vec<String> = result.diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!(
            (result.pods.len() == 1, messages.is_empty()),
            (is_fit, is_fit),
            "{uid}: {messages:?}"
        );
        if !is_fit {
            let start = format!("p.yaml:5: metadata.uid: {}", uid.get(..20).unwrap_or(uid));
            assert!(messages[0].starts_with(&start), "{messages:?}");
            assert!(messages[0].contains("expected at most 128 letters"), "{messages:?}");
            assert_eq!(result.refused, ["a-n_default"]);
        }
    }
}

#[test]
fn an_invalid_pod_in_a_list_refuses_only_itself() {
    let text = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n- metadata: {name: b}\n  spec: {containers: []}\n";
    let result = read(text, SourceKind::Url);
    assert_eq!(result.pods.len(), 1);
    assert_eq!(result.refused, ["b-n_default"]);
    assert_eq!(
        result.diagnostics[0].to_string(),
        "p.yaml:7: items[1].spec.containers: a value is required"
    );
}
