//! Verdicts by table: see `tests/verdicts.txt`, whose rows are also put to a real API server.

use document::diagnostic::Origin;
use pod_model::pod::Pod;
use serde_json::{Value, json};

use super::validate;
use crate::{ListPolicy, PodGates, Strictness, apply_defaults, decode, prepare_for_create};

const VERDICTS: &str = include_str!("tests/verdicts.txt");

/// A pod that nothing is wrong with.
pub(crate) fn plain_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain", "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "image": "busybox:1"}],
            "volumes": [
                {"name": "dir", "emptyDir": {}},
                {"name": "host", "hostPath": {"path": "/srv"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
            ],
        },
    })
}

/// Sets what `path=JSON && path=JSON` says.
pub(crate) fn set_all(pod: &mut Value, assignments: &str) {
    for assignment in assignments.split(" && ") {
        let (path, value) = assignment.trim().split_once('=').expect("path=JSON");
        let value: Value = serde_json::from_str(value).unwrap_or_else(|error| {
            panic!("{assignment}: {error}");
        });
        set(pod, path, value);
    }
}

fn set(pod: &mut Value, path: &str, value: Value) {
    let mut place = pod;
    for step in path.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, rest)) => (name, rest.strip_suffix(']')),
            None => (step, None),
        };
        place = &mut place[name];
        if let Some(index) = index {
            let index: usize = index.parse().expect("an index");
            let list = place.as_array_mut().expect("a list");
            // Another row may have emptied the list: what is missing before it is a plain container.
            while list.len() < index {
                list.push(json!({"name": format!("filler-{}", list.len()), "image": "a"}));
            }
            if list.len() == index {
                list.push(Value::Null);
            }
            place = &mut list[index];
        }
    }
    *place = value;
}

pub(crate) fn typed(pod: &Value) -> Pod {
    let bytes = pod.to_string();
    let lenient = Strictness::Strict;
    let mut decoded = decode(bytes.as_bytes(), &Origin::Default, lenient, ListPolicy::OnePod);
    assert!(decoded.diagnostics.is_empty(), "{bytes}: {:?}", decoded.diagnostics);
    decoded.pods.remove(0).pod
}

#[test]
fn verdicts() {
    let mut rows = 0;
    let mut wrong = Vec::new();
    for line in VERDICTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (assignments, expected) = line.split_once(" =>").expect("an arrow");
        let mut pod = plain_pod();
        set_all(&mut pod, assignments);
        let mut pod = typed(&pod);
        apply_defaults(&mut pod, &PodGates::default());
        prepare_for_create(&mut pod, &PodGates::default());
        let diagnostics = validate(&pod, &PodGates::default());
        let mut found: Vec<String> = diagnostics.iter().map(|each| each.field.clone()).collect();
        found.sort();
        found.dedup();
        if found.join(" ") != expected.trim() {
            wrong.push(format!("{assignments}\n  expected {expected}\n  found    {found:?}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows > 300, "{rows} rows");
}

#[test]
fn gates_change_verdicts() {
    let closed = PodGates {
        container_restart_rules: false,
        strict_ip_validation: false,
        allow_privileged: false,
        ..PodGates::default()
    };
    let open = PodGates {
        se_linux_mount: true,
        toleration_comparison: true,
        user_namespaces_host_network: true,
        ..PodGates::default()
    };
    for (assignments, gates, taken) in [
        (r#"spec.containers[0].restartPolicy="Always""#, &closed, false),
        (r#"spec.dnsConfig={"nameservers":["01.1.1.1"]}"#, &closed, true),
        (r#"spec.containers[0].securityContext={"privileged":true}"#, &closed, false),
        (r#"spec.securityContext={"seLinuxChangePolicy":"MountOption"}"#, &open, true),
        (r#"spec.tolerations=[{"key":"a","operator":"Lt","value":"5"}]"#, &open, true),
        (r#"spec.tolerations=[{"key":"a","operator":"Lt","value":"05"}]"#, &open, false),
        (r#"spec.tolerations=[{"key":"a","operator":"Gt","value":"x"}]"#, &open, false),
        ("spec.hostUsers=false && spec.hostNetwork=true", &open, true),
        (
            r#"spec.os={"name":"linux"} && spec.containers[0].lifecycle={"stopSignal":"SIGRTMIN+15"}"#,
            &open,
            true,
        ),
        (
            r#"spec.os={"name":"linux"} && spec.containers[0].lifecycle={"stopSignal":"SIGRTMIN+16"}"#,
            &open,
            false,
        ),
        (r#"spec.containers[0].lifecycle={"stopSignal":"SIGTERM"}"#, &open, false),
    ] {
        let mut pod = plain_pod();
        set_all(&mut pod, assignments);
        let mut pod = typed(&pod);
        apply_defaults(&mut pod, gates);
        assert_eq!(validate(&pod, gates).is_empty(), taken, "{assignments}");
    }
}
