//! Devices by name: from the field, from annotations, and unknown names.

use container_create::spec::{ContainerNamespaces, HandlerSpec, ProcessSpec, SecuritySpec};
use serde_json::{Value, json};

use super::*;

fn spec() -> ContainerSpec {
    ContainerSpec {
        process: Some(ProcessSpec {
            environment: vec!["PATH=/bin".to_owned(), "A=old".to_owned()],
            ..Default::default()
        }),
        security: Some(SecuritySpec { uid: 7, gid: 8, ..Default::default() }),
        mounts: vec![MountSpec { target: "/dev".to_owned(), ..Default::default() }],
        ..Default::default()
    }
}

fn edited(mut spec: ContainerSpec, edits: Value) -> std::result::Result<ContainerSpec, String> {
    let edits: ContainerEdits = serde_json::from_value(edits).unwrap();
    apply(&mut spec, &edits).map(|()| spec)
}

#[test]
fn variables_and_groups_are_added_or_replaced() {
    let spec =
        edited(spec(), json!({"env": ["A=new", "B=1"], "additionalGids": [0, 44, 44]})).unwrap();
    assert_eq!(spec.process.unwrap().environment, ["PATH=/bin", "A=new", "B=1"]);
    assert_eq!(spec.security.unwrap().additional_gids, [44]);
}

#[test]
fn nodes_are_filled_in_from_the_host() {
    let spec =
        edited(spec(), json!({"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/null"}]}))
            .unwrap();
    let node = &spec.devices[0];
    assert_eq!((node.kind.as_str(), node.major, node.minor), ("c", 1, 3));
    assert_eq!((node.uid, node.gid, node.path.as_str()), (7, 8, "/dev/x"));
    let rule = &spec.cgroup.unwrap().device_rules[0];
    assert_eq!((rule.major, rule.minor, rule.access.as_str()), (Some(1), Some(3), "rwm"));
}

#[test]
fn fully_described_nodes_are_not_read_from_the_host() {
    let whole = json!({"deviceNodes": [
        {"path": "/dev/none", "type": "u", "major": 10, "minor": 3, "fileMode": 0o600, "uid": 0,
         "permissions": "r"},
        {"path": "/dev/none", "type": "b", "major": 7, "minor": 0},
        {"path": "/run/pipe", "type": "p"},
    ]});
    let spec = edited(spec(), whole).unwrap();
    let kinds: Vec<&str> = spec.devices.iter().map(|node| node.kind.as_str()).collect();
    // The later edit of the same path applies.
    assert_eq!(kinds, ["b", "p"]);
    let rules = spec.cgroup.unwrap().device_rules;
    assert_eq!(rules.len(), 2, "a pipe needs no rule");
    assert_eq!((rules[0].kind.as_str(), rules[0].access.as_str()), ("c", "r"));
}

#[test]
fn mounts_come_after_what_they_lie_in() {
    let edits = json!({"mounts": [
        {"hostPath": "/lib/a", "containerPath": "/usr/lib/a", "options": ["ro", "rbind", "nosuid"]},
        {"hostPath": "/x", "containerPath": "/dev"},
        {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs", "options": ["size=1k"]},
    ]});
    let spec = edited(spec(), edits).unwrap();
    let targets: Vec<&str> = spec.mounts.iter().map(|mount| mount.target.as_str()).collect();
    assert_eq!(targets, ["/dev", "/t", "/usr/lib/a"]);
    assert_eq!(spec.mounts[0].source, "/x");
    assert_eq!(spec.mounts[1].options, ["size=1k"]);
    let last = &spec.mounts[2];
    assert!(last.read_only && last.no_suid && !last.not_recursive);
}

#[test]
fn hooks_go_to_the_handler_that_runs_them() {
    let hooks = |point: &str| json!({"hooks": [{"hookName": point, "path": "/h", "timeout": 2}]});
    let own = edited(spec(), hooks("createContainer")).unwrap().hooks;
    assert_eq!((own[0].point.as_str(), own[0].timeout), ("createContainer", 2));
    let refused = edited(spec(), hooks("poststop")).unwrap_err();
    assert!(refused.contains("poststop hook /h"), "{refused}");
    let user = NamespaceMode::Pod.into();
    let namespaces = ContainerNamespaces { user, ..Default::default() };
    let mapped = ContainerSpec { namespaces: Some(namespaces), ..spec() };
    let refused = edited(mapped, hooks("createContainer")).unwrap_err();
    assert!(refused.contains("user namespace"), "{refused}");
    let with = ContainerSpec { handler: Some(HandlerSpec::default()), ..spec() };
    let made = edited(with, hooks("poststop")).unwrap();
    assert_eq!((made.hooks.len(), made.handler.unwrap().hooks[0].timeout), (0, 2));
}

#[test]
fn unsupported_edits_are_refused() {
    for (edits, reason) in [
        (json!({"intelRdt": {"closID": "x"}}), "intelRdt"),
        (json!({"netDevices": [{"name": "x"}]}), "netDevices"),
        (json!({"deviceNodes": [{"path": "/dev/no-such-node"}]}), "failed to stat"),
        (json!({"deviceNodes": [{"path": "/etc"}]}), "not a device node"),
        (json!({"deviceNodes": [{"path": "/dev/null", "type": "b"}]}), "type mismatch"),
        (json!({"deviceNodes": [{"path": "/x", "type": "c", "major": -1}]}), "device number"),
        (json!({"mounts": [{"hostPath": "/x", "containerPath": "/y", "type": "nfs"}]}), "nfs"),
        (
            json!({"mounts": [{"hostPath": "/x", "containerPath": "/y", "options": ["odd"]}]}),
            "option \"odd\"",
        ),
    ] {
        let why = edited(spec(), edits).unwrap_err();
        assert!(why.contains(reason), "{why:?} has no {reason:?}");
    }
}

#[test]
fn names_come_from_the_field_and_from_annotations_once() {
    let device = |name: &str| v1::CdiDevice { name: name.to_owned() };
    let mut config = v1::ContainerConfig {
        cdi_devices: vec![device("v/c=1"), device("v/c=1"), device("v/c=2")],
        annotations: [
            ("cdi.k8s.io/b".to_owned(), "v/c=2,v/c=3".to_owned()),
            ("other".to_owned(), "nonsense".to_owned()),
        ]
        .into(),
        ..Default::default()
    };
    assert_eq!(names(&config).unwrap(), ["v/c=1", "v/c=2", "v/c=3"]);
    config.annotations.insert("cdi.k8s.io/x".to_owned(), "/dev/null".to_owned());
    assert!(names(&config).unwrap_err().text.contains("\"/dev/null\""));
}
