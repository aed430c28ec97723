//! Each part of a specification against the resulting document.

use container_create::spec::{
    CapabilitySpec, CgroupSpec, DeviceNode, DeviceRuleSpec, HandlerSpec, HookSpec, IdMappings,
    IdRange, LimitsSpec, MountKind, MountSpec, OverlaySpec, ProcessLimit, RootFilesystem,
    SeccompSpec, TerminalSize,
};
use serde_json::{Value, json};

use super::*;

fn plain() -> ContainerSpec {
    let node = i32::from(NamespaceMode::Node);
    ContainerSpec {
        id: "one".to_owned(),
        root: Some(RootFilesystem { path: "/rootfs".to_owned(), ..Default::default() }),
        process: Some(ProcessSpec { arguments: vec!["sh".to_owned()], ..Default::default() }),
        security: Some(SecuritySpec::default()),
        namespaces: Some(ContainerNamespaces {
            pid: NamespaceMode::Container.into(),
            network: node,
            ipc: node,
            uts: node,
            cgroup: node,
            user: node,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn paths() -> NamespacePaths {
    NamespacePaths {
        network: Some("/net".to_owned()),
        ipc: Some("/ipc".to_owned()),
        ..Default::default()
    }
}

fn document(spec: &ContainerSpec) -> Value {
    serde_json::from_str(&configuration(spec, &paths()).unwrap()).unwrap()
}

/// The value at a path of the document after a change of the default specification.
fn written_as(place: &str, change: impl FnOnce(&mut ContainerSpec)) -> Value {
    let mut spec = plain();
    change(&mut spec);
    document(&spec).pointer(place).cloned().unwrap_or(Value::Null)
}

fn refused(change: impl FnOnce(&mut ContainerSpec)) -> String {
    let mut spec = plain();
    change(&mut spec);
    configuration(&spec, &paths()).unwrap_err().0
}

#[test]
fn a_minimal_container_has_a_minimal_configuration() {
    assert_eq!(
        document(&plain()),
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": {"uid": 0, "gid": 0}, "args": ["sh"], "env": [],
                "cwd": "/", "noNewPrivileges": false
            },
            "root": {"path": "/rootfs", "readonly": false},
            "mounts": [],
            "linux": {
                "namespaces": [{"type": "mount"}, {"type": "pid"}],
                "rootfsPropagation": "private"
            }
        })
    );
}

#[test]
fn processes_keep_their_user_and_rights() {
    let value = written_as("/process", |spec| {
        spec.process = Some(ProcessSpec {
            arguments: vec!["a b".to_owned()],
            environment: vec!["X=\"1\"".to_owned()],
            working_directory: "/work".to_owned(),
            terminal: true,
            terminal_size: Some(TerminalSize { columns: 80, rows: 24 }),
        });
        spec.security = Some(SecuritySpec {
            uid: 7,
            gid: 8,
            additional_gids: vec![9],
            umask: Some(0o22),
            capabilities: Some(CapabilitySpec {
                bounding: 1,
                effective: 1 << 40,
                ..Default::default()
            }),
            no_new_privileges: true,
            apparmor_profile: "mine".to_owned(),
            selinux_label: "u:r:t:s0".to_owned(),
            limits: vec![ProcessLimit { name: "RLIMIT_NOFILE".to_owned(), soft: 1, hard: 2 }],
            oom_score_adjustment: Some(-5),
            ..Default::default()
        });
    });
    assert_eq!(
        value,
        json!({
            "terminal": true, "consoleSize": {"height": 24, "width": 80},
            "user": {"uid": 7, "gid": 8, "umask": 18, "additionalGids": [9]},
            "args": ["a b"], "env": ["X=\"1\""], "cwd": "/work",
            "capabilities": {
                "bounding": ["CAP_CHOWN"], "effective": ["CAP_CHECKPOINT_RESTORE"],
                "permitted": [], "inheritable": [], "ambient": []
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2}],
            "noNewPrivileges": true, "apparmorProfile": "mine", "selinuxLabel": "u:r:t:s0",
            "oomScoreAdj": -5
        })
    );
}

#[test]
fn hooks_read_where_the_root_is() {
    let text = for_hooks(&plain(), "/bundle/rootfs").unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["root"], json!({"path": "/bundle/rootfs", "readonly": false}));
    assert_eq!(value["process"]["args"], json!(["sh"]));
}

#[test]
fn files_have_their_label() {
    let label = written_as("/linux/mountLabel", |spec| spec.mount_label = "u:o:f:s0".to_owned());
    assert_eq!(label, json!("u:o:f:s0"));
}

#[test]
fn namespaces_are_new_entered_or_the_machines() {
    let with = |pid: NamespaceMode, network: NamespaceMode| {
        written_as("/linux/namespaces", |spec| {
            let namespaces = spec.namespaces.get_or_insert_default();
            namespaces.pid = pid.into();
            namespaces.network = network.into();
            namespaces.cgroup = NamespaceMode::Container.into();
        })
    };
    assert_eq!(
        with(NamespaceMode::Node, NamespaceMode::Pod),
        json!([{"type": "mount"}, {"type": "network", "path": "/net"}, {"type": "cgroup"}])
    );
    assert_eq!(
        with(NamespaceMode::Container, NamespaceMode::Node),
        json!([{"type": "mount"}, {"type": "pid"}, {"type": "cgroup"}])
    );
    let reason = refused(|spec| {
        spec.namespaces.get_or_insert_default().pid = NamespaceMode::Target.into();
    });
    assert_eq!(reason, "the pod has no pid namespace to enter");
    let reason = refused(|spec| {
        spec.namespaces.get_or_insert_default().user = NamespaceMode::Pod.into();
    });
    assert!(reason.contains("user namespace"), "{reason}");
}

#[test]
fn mounts_of_every_kind() {
    let bind = || MountSpec {
        kind: MountKind::Bind.into(),
        source: "/host".to_owned(),
        target: "/in".to_owned(),
        ..Default::default()
    };
    let options =
        |mount: MountSpec| written_as("/mounts/0/options", |spec| spec.mounts = vec![mount]);
    assert_eq!(options(bind()), json!(["rbind", "rw", "rprivate"]));
    assert_eq!(
        options(MountSpec { not_recursive: true, read_only: true, ..bind() }),
        json!(["bind", "ro", "rprivate"])
    );
    let recursive = MountSpec { read_only: true, recursive_read_only: true, ..bind() };
    assert_eq!(options(recursive), json!(["rbind", "rro", "rprivate"]));
    let slave = MountSpec { propagation: Propagation::Slave.into(), no_suid: true, ..bind() };
    assert_eq!(options(slave), json!(["rbind", "nosuid", "rw", "rslave"]));
    let tmpfs = MountSpec {
        kind: MountKind::Dev.into(),
        target: "/dev".to_owned(),
        options: vec!["mode=755".to_owned()],
        ..Default::default()
    };
    assert_eq!(
        written_as("/mounts/0", |spec| spec.mounts = vec![tmpfs]),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]})
    );
    for (kind, name) in [
        (MountKind::Tmpfs, "tmpfs"),
        (MountKind::Proc, "proc"),
        (MountKind::Sysfs, "sysfs"),
        (MountKind::Mqueue, "mqueue"),
        (MountKind::Devpts, "devpts"),
        (MountKind::Cgroup, "cgroup"),
    ] {
        let mount = MountSpec { kind: kind.into(), target: "/x".to_owned(), ..Default::default() };
        assert_eq!(written_as("/mounts/0/type", |spec| spec.mounts = vec![mount]), json!(name));
    }
    let range = vec![IdRange { inside: 0, outside: 1000, count: 10 }];
    let mapped = IdMappings { users: range.clone(), groups: range };
    let mount = MountSpec { id_mappings: Some(mapped), ..bind() };
    assert_eq!(
        written_as("/mounts/0/uidMappings", |spec| spec.mounts = vec![mount]),
        json!([{"containerID": 0, "hostID": 1000, "size": 10}])
    );
    let reason = refused(|spec| {
        spec.mounts = vec![MountSpec { sub_path: "a/b".to_owned(), ..bind() }];
    });
    assert!(reason.contains("\"a/b\""), "{reason}");
}

#[test]
fn groups_have_their_limits_and_devices() {
    let value = written_as("/linux", |spec| {
        spec.cgroup = Some(CgroupSpec {
            path: "/pods/one".to_owned(),
            limits: Some(LimitsSpec {
                cpu_shares: Some(2),
                cpu_quota: Some(-1),
                cpu_period: Some(100_000),
                cpuset_cpus: Some("0-1".to_owned()),
                memory: Some(1 << 20),
                memory_and_swap: Some(1 << 21),
                pids: Some(10),
                huge_pages: [("2MB".to_owned(), 4)].into(),
                unified: [("memory.high".to_owned(), "9".to_owned())].into(),
                cpu_idle: Some(true),
                ..Default::default()
            }),
            device_rules: vec![DeviceRuleSpec {
                allow: true,
                kind: "c".to_owned(),
                major: Some(10),
                minor: None,
                access: "rw".to_owned(),
            }],
            ..Default::default()
        });
        spec.devices = vec![DeviceNode {
            path: "/dev/x".to_owned(),
            kind: "c".to_owned(),
            major: 10,
            minor: 200,
            mode: 0o660,
            ..Default::default()
        }];
    });
    assert_eq!(value["cgroupsPath"], "/pods/one");
    assert_eq!(
        value["resources"],
        json!({
            "devices": [
                {"allow": false, "access": "rwm"},
                {"allow": true, "type": "c", "major": 10, "access": "rw"}
            ],
            "memory": {"limit": 1 << 20, "swap": 1 << 21},
            "cpu": {"shares": 2, "quota": -1, "period": 100_000, "cpus": "0-1", "idle": 1},
            "pids": {"limit": 10},
            "hugepageLimits": [{"pageSize": "2MB", "limit": 4}],
            "unified": {"memory.high": "9"}
        })
    );
    assert_eq!(
        value["devices"],
        json!([{"path": "/dev/x", "type": "c", "major": 10, "minor": 200, "fileMode": 432,
                "uid": 0, "gid": 0}])
    );
    let all = written_as("/linux/resources/devices", |spec| {
        spec.cgroup = Some(CgroupSpec { all_devices: true, ..Default::default() });
    });
    assert_eq!(all, json!([{"allow": true, "access": "rwm"}]));
}

#[test]
fn systemd_scopes_are_named_in_three_parts() {
    let place = |unit: &str| {
        let cgroup = CgroupSpec {
            systemd_unit: unit.to_owned(),
            systemd_slice: "pods.slice".to_owned(),
            ..Default::default()
        };
        let spec = ContainerSpec { cgroup: Some(cgroup), ..plain() };
        configuration(&spec, &paths())
    };
    let text = place("keelson-0af.scope").unwrap();
    assert!(text.contains("\"cgroupsPath\":\"pods.slice:keelson:0af\""), "{text}");
    assert!(place("odd").unwrap_err().0.contains("\"odd\""));
}

#[test]
fn paths_sysctls_and_annotations_are_written() {
    let value = written_as("", |spec| {
        spec.masked_paths = vec!["/proc/kcore".to_owned()];
        spec.read_only_paths = vec!["/proc/sys".to_owned()];
        spec.sysctls = [("kernel.shmmax".to_owned(), "1".to_owned())].into();
        let root = spec.root.get_or_insert_default();
        root.read_only = true;
        root.propagation = Propagation::Shared.into();
        let filter = SeccompSpec {
            document: r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#.to_owned(),
            ..Default::default()
        };
        spec.security.get_or_insert_default().seccomp = Some(filter);
        let hook = |point: &str, path: &str| HookSpec {
            point: point.to_owned(),
            path: path.to_owned(),
            arguments: vec!["a0".to_owned()],
            environment: vec!["E=1".to_owned()],
            timeout: 3,
        };
        spec.handler = Some(HandlerSpec {
            hooks: vec![
                hook("createRuntime", "/one"),
                hook("poststop", "/two"),
                HookSpec { timeout: 0, ..hook("createRuntime", "/three") },
            ],
            annotations: [("k".to_owned(), "v".to_owned())].into(),
            ..Default::default()
        });
    });
    assert_eq!(value["root"], json!({"path": "/rootfs", "readonly": true}));
    assert_eq!(value["linux"]["maskedPaths"], json!(["/proc/kcore"]));
    assert_eq!(value["linux"]["readonlyPaths"], json!(["/proc/sys"]));
    assert_eq!(value["linux"]["sysctl"], json!({"kernel.shmmax": "1"}));
    assert_eq!(value["linux"]["rootfsPropagation"], "shared");
    assert_eq!(value["linux"]["seccomp"], json!({"defaultAction": "SCMP_ACT_ALLOW"}));
    assert_eq!(value["annotations"], json!({"k": "v"}));
    let hook = |path: &str| json!({"path": path, "args": ["a0"], "env": ["E=1"], "timeout": 3});
    assert_eq!(value["hooks"]["poststop"], json!([hook("/two")]));
    assert_eq!(
        value["hooks"]["createRuntime"],
        json!([hook("/one"), {"path": "/three", "args": ["a0"], "env": ["E=1"]}])
    );
}

#[test]
fn a_spec_that_oci_cannot_express_is_refused() {
    for (reason, change) in [
        ("no process", (|spec| spec.process = None) as fn(&mut ContainerSpec)),
        ("no security", |spec| spec.security = None),
        ("no root", |spec| spec.root = None),
        ("no namespaces", |spec| spec.namespaces = None),
        ("mounted already", |spec| {
            spec.root.get_or_insert_default().overlay = Some(OverlaySpec::default());
        }),
        ("mounted already", |spec| spec.root.get_or_insert_default().map_ids = true),
        ("mounted already", |spec| spec.root.get_or_insert_default().path = "rel".to_owned()),
        ("no mode", |spec| spec.namespaces.get_or_insert_default().ipc = 99),
        ("propagation", |spec| spec.root.get_or_insert_default().propagation = 99),
        ("kind of mount", |spec| {
            spec.mounts = vec![MountSpec { kind: 99, ..Default::default() }];
        }),
        ("only as a program", |spec| {
            spec.security.get_or_insert_default().seccomp = Some(SeccompSpec::default());
        }),
    ] {
        let configuration = refused(change);
        assert!(configuration.contains(reason), "{configuration:?} has no {reason:?}");
    }
}

#[test]
fn a_hostname_is_written_only_with_a_uts_namespace() {
    for (uts, expected) in [(NamespaceMode::Pod, json!("web")), (NamespaceMode::Node, Value::Null)]
    {
        let mut spec = plain();
        spec.handler = Some(HandlerSpec { hostname: "web".to_owned(), ..Default::default() });
        spec.namespaces.get_or_insert_default().uts = uts.into();
        let paths = NamespacePaths { uts: Some("/uts".to_owned()), ..paths() };
        let text = configuration(&spec, &paths).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["hostname"], expected, "{uts:?}");
    }
}
