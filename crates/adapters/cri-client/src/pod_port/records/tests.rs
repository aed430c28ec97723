//! What a runtime may report, complete, incomplete and invalid, and its translation.

use super::*;
use ports::runtime_objects::{ImageSpec, LinuxResources};

fn text(value: &str) -> String {
    value.to_owned()
}

fn on_network(mode: i32, ip: &str, further: &[&str]) -> v1::PodSandboxStatus {
    v1::PodSandboxStatus {
        network: Some(v1::PodSandboxNetworkStatus {
            ip: text(ip),
            additional_ips: further.iter().map(|ip| v1::PodIp { ip: text(ip) }).collect(),
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace {
                options: Some(v1::NamespaceOption { network: mode, ..Default::default() }),
            }),
        }),
        ..Default::default()
    }
}

#[test]
fn every_sandbox_status_field_is_converted() {
    let status = v1::PodSandboxStatus {
        id: text("s"),
        metadata: Some(v1::PodSandboxMetadata {
            name: text("web"),
            uid: text("u"),
            namespace: text("shop"),
            attempt: 4,
        }),
        state: 0,
        created_at: 99,
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
        runtime_handler: text("kata"),
        ..on_network(0, "10.1.1.1", &["fd00::1"])
    };
    let expected = SandboxRecord {
        id: text("s"),
        name: text("web"),
        namespace: text("shop"),
        uid: text("u"),
        attempt: 4,
        ready: true,
        created_at: 99,
        ips: vec![text("10.1.1.1"), text("fd00::1")],
        host_network: Some(false),
        runtime_handler: text("kata"),
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
    };
    assert_eq!(sandbox(status), expected);
}

#[test]
fn a_sandbox_is_ready_only_in_the_ready_state() {
    for (state, ready) in [(0, true), (1, false), (77, false), (-1, false)] {
        assert_eq!(sandbox(v1::PodSandboxStatus { state, ..Default::default() }).ready, ready);
    }
}

#[test]
fn pod_addresses_are_all_valid_or_none() {
    type Row<'a> = (i32, &'a str, &'a [&'a str], &'a [&'a str]);
    let rows: [Row<'_>; 6] = [
        (0, "10.0.0.1", &[], &["10.0.0.1"]),
        (0, "10.0.0.1", &["fd00::2"], &["10.0.0.1", "fd00::2"]),
        (0, "10.0.0.1", &["nonsense"], &[]),
        (0, "nonsense", &["10.0.0.1"], &[]),
        (0, "", &["10.0.0.1"], &["10.0.0.1"]),
        (2, "10.0.0.1", &[], &[]),
    ];
    for (mode, ip, further, expected) in rows {
        assert_eq!(sandbox(on_network(mode, ip, further)).ips, expected, "{mode} {ip}");
    }
    assert_eq!(sandbox(v1::PodSandboxStatus::default()).host_network, None);
    assert_eq!(sandbox(on_network(2, "", &[])).host_network, Some(true));
}

fn full_status() -> v1::ContainerStatus {
    let mappings = |host_id| vec![v1::IdMapping { host_id, container_id: 2, length: 3 }];
    v1::ContainerStatus {
        id: text("c"),
        metadata: Some(v1::ContainerMetadata { name: text("app"), attempt: 5 }),
        state: 2,
        created_at: 1,
        started_at: 2,
        finished_at: 3,
        exit_code: 137,
        image: Some(v1::ImageSpec { image: text("app:1"), ..Default::default() }),
        image_ref: text("ref"),
        reason: text("OOMKilled"),
        message: text("too much"),
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
        mounts: vec![v1::Mount {
            container_path: text("/c"),
            host_path: text("/h"),
            readonly: true,
            selinux_relabel: true,
            propagation: 1,
            uid_mappings: mappings(1),
            gid_mappings: mappings(4),
            recursive_read_only: true,
            image: Some(v1::ImageSpec { image: text("vol"), ..Default::default() }),
            image_sub_path: text("sub"),
        }],
        log_path: text("/log"),
        resources: Some(v1::ContainerResources {
            linux: Some(v1::LinuxContainerResources {
                cpu_period: 1,
                cpu_quota: 2,
                cpu_shares: 3,
                memory_limit_in_bytes: 4,
                oom_score_adj: 5,
                cpuset_cpus: text("0"),
                cpuset_mems: text("1"),
                hugepage_limits: vec![v1::HugepageLimit { page_size: text("2MB"), limit: 6 }],
                unified: [(text("u"), text("v"))].into(),
                memory_swap_limit_in_bytes: 7,
            }),
            windows: None,
        }),
        image_id: text("id"),
        user: Some(v1::ContainerUser {
            linux: Some(v1::LinuxContainerUser { uid: 1, gid: 2, supplemental_groups: vec![3] }),
        }),
        stop_signal: v1::Signal::Sigrtmaxminus1.into(),
    }
}

fn full_record() -> ContainerRecord {
    let mappings = |host_id| vec![IdMapping { host_id, container_id: 2, length: 3 }];
    ContainerRecord {
        id: text("c"),
        sandbox_id: text("s"),
        name: text("app"),
        attempt: 5,
        state: ContainerState::Exited,
        created_at: 1,
        started_at: 2,
        finished_at: 3,
        exit_code: 137,
        reason: text("OOMKilled"),
        message: text("too much"),
        image: text("app:1"),
        image_ref: text("ref"),
        image_id: text("id"),
        log_path: text("/log"),
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
        resources: Some(LinuxResources {
            cpu_period: 1,
            cpu_quota: 2,
            cpu_shares: 3,
            memory_limit: 4,
            memory_swap_limit: 7,
            oom_score_adj: 5,
            cpuset_cpus: text("0"),
            cpuset_mems: text("1"),
            hugepage_limits: vec![(text("2MB"), 6)],
            unified: [(text("u"), text("v"))].into(),
        }),
        user: Some(LinuxUser { uid: 1, gid: 2, supplemental_groups: vec![3] }),
        mounts: vec![Mount {
            container_path: text("/c"),
            host_path: text("/h"),
            readonly: true,
            selinux_relabel: true,
            propagation: Propagation::HostToContainer,
            recursive_read_only: true,
            uid_mappings: mappings(1),
            gid_mappings: mappings(4),
            image: Some(ImageSpec { image: text("vol"), ..Default::default() }),
            image_sub_path: text("sub"),
        }],
        stop_signal: text("SIGRTMAX-1"),
    }
}

#[test]
fn every_container_status_field_is_converted() {
    assert_eq!(container(full_status(), text("s")), full_record());
}

#[test]
fn an_empty_status_is_a_container_in_its_first_state_and_nothing_more() {
    let record = container(v1::ContainerStatus::default(), String::new());
    let expected = ContainerRecord { state: ContainerState::Created, ..Default::default() };
    assert_eq!(record, expected);
}

#[test]
fn unrecognized_container_states_become_unknown() {
    for (number, expected) in [
        (0, ContainerState::Created),
        (1, ContainerState::Running),
        (2, ContainerState::Exited),
        (3, ContainerState::Unknown),
        (4, ContainerState::Unknown),
        (-1, ContainerState::Unknown),
        (i32::MAX, ContainerState::Unknown),
    ] {
        assert_eq!(state(number), expected, "{number}");
    }
}

#[test]
fn unknown_propagations_and_signals_get_default_values() {
    for (number, expected) in [
        (0, Propagation::Private),
        (1, Propagation::HostToContainer),
        (2, Propagation::Bidirectional),
        (3, Propagation::Private),
    ] {
        let wire = v1::Mount { propagation: number, ..Default::default() };
        assert_eq!(mount(wire).propagation, expected, "{number}");
    }
    for (number, expected) in [
        (v1::Signal::RuntimeDefault.into(), ""),
        (v1::Signal::Sigterm.into(), "SIGTERM"),
        (v1::Signal::Sigrtminplus3.into(), "SIGRTMIN+3"),
        (9999, ""),
    ] {
        assert_eq!(stop_signal(number), expected, "{number}");
    }
}

#[test]
fn long_texts_are_cut_at_a_whole_character() {
    let long = "é".repeat(MESSAGE_CAP);
    let status = v1::ContainerStatus {
        reason: long.clone(),
        message: format!("x{long}"),
        ..Default::default()
    };
    let record = container(status, String::new());
    assert_eq!(record.reason.len(), MESSAGE_CAP);
    assert_eq!(record.message.len(), MESSAGE_CAP - 1);
}

#[test]
fn events_name_their_pod_where_they_can() {
    let labelled = v1::ContainerStatus {
        labels: [(text(POD_UID_LABEL), text("by-label"))].into(),
        ..Default::default()
    };
    let sandbox = |uid: &str| {
        Some(v1::PodSandboxStatus {
            metadata: Some(v1::PodSandboxMetadata { uid: text(uid), ..Default::default() }),
            ..Default::default()
        })
    };
    for (status, containers, expected) in [
        (sandbox("by-sandbox"), vec![labelled.clone()], "by-sandbox"),
        (sandbox(""), vec![v1::ContainerStatus::default(), labelled.clone()], "by-label"),
        (None, vec![labelled], "by-label"),
        (None, Vec::new(), ""),
    ] {
        let wire = v1::ContainerEventResponse {
            container_id: text("c"),
            created_at: 8,
            pod_sandbox_status: status,
            containers_statuses: containers,
            ..Default::default()
        };
        let converted = event(wire);
        assert_eq!((converted.id.as_str(), converted.created_at), ("c", 8));
        assert_eq!(converted.pod_uid, expected);
    }
    for (number, kind) in [
        (0, RuntimeEventKind::Created),
        (1, RuntimeEventKind::Started),
        (2, RuntimeEventKind::Stopped),
        (3, RuntimeEventKind::Deleted),
        (4, RuntimeEventKind::Other),
    ] {
        let wire =
            v1::ContainerEventResponse { container_event_type: number, ..Default::default() };
        assert_eq!(event(wire).kind, kind, "{number}");
    }
}

/// Only of the container that the event is about, and only if its end is all that has changed.
#[test]
fn an_exit_is_taken_from_an_event_that_carries_it() {
    let exited = i32::from(v1::ContainerState::ContainerExited);
    let running = i32::from(v1::ContainerState::ContainerRunning);
    let ready = i32::from(v1::PodSandboxState::SandboxReady);
    let going = i32::from(v1::PodSandboxState::SandboxNotready);
    let stopped = i32::from(v1::ContainerEventType::ContainerStoppedEvent);
    let deleted = i32::from(v1::ContainerEventType::ContainerDeletedEvent);
    for (kind, sandbox, id, state, finished_at, expected) in [
        (stopped, Some(ready), "c", exited, 5, Some(7)),
        (stopped, Some(ready), "c", exited, 0, None),
        (stopped, Some(going), "c", exited, 5, None),
        (stopped, None, "c", exited, 5, None),
        (stopped, Some(ready), "other", exited, 5, None),
        (stopped, Some(ready), "c", running, 5, None),
        (deleted, Some(ready), "c", exited, 5, None),
    ] {
        let status = v1::ContainerStatus {
            id: text(id),
            state,
            exit_code: 7,
            finished_at,
            ..Default::default()
        };
        let sandbox = sandbox.map(|state| v1::PodSandboxStatus {
            id: text("s"),
            state,
            ..Default::default()
        });
        let converted = event(v1::ContainerEventResponse {
            container_id: text("c"),
            container_event_type: kind,
            pod_sandbox_status: sandbox.clone(),
            containers_statuses: vec![v1::ContainerStatus::default(), status],
            ..Default::default()
        });
        let code = converted.ended.map(|record| record.exit_code);
        assert_eq!(code, expected, "{kind} {sandbox:?} {id} {state}");
    }
}

#[test]
fn every_usage_and_handler_field_is_converted() {
    let number = |value| Some(v1::UInt64Value { value });
    let disk = v1::FilesystemUsage {
        timestamp: 5,
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: text("/m") }),
        used_bytes: number(6),
        inodes_used: number(7),
    };
    let expected =
        FilesystemUsage { mountpoint: text("/m"), used_bytes: 6, inodes_used: 7, timestamp: 5 };
    assert_eq!(filesystem(disk.clone()), expected);
    let stats = v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes { id: text("c"), ..Default::default() }),
        cpu: Some(v1::CpuUsage {
            timestamp: 10,
            usage_core_nano_seconds: number(11),
            ..Default::default()
        }),
        memory: Some(v1::MemoryUsage {
            timestamp: 12,
            working_set_bytes: number(13),
            ..Default::default()
        }),
        writable_layer: Some(disk),
        ..Default::default()
    };
    let expected = ContainerUsage {
        container_id: text("c"),
        timestamp: 12,
        cpu_core_nanoseconds: 11,
        working_set_bytes: 13,
        writable_layer_bytes: 6,
    };
    assert_eq!(usage(stats), expected);
    assert_eq!(usage(v1::ContainerStats::default()), ContainerUsage::default());
    let features =
        v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: false };
    let wire = v1::RuntimeHandler { name: text("runc"), features: Some(features) };
    let expected = HandlerFeatures {
        name: text("runc"),
        recursive_read_only_mounts: true,
        user_namespaces: false,
    };
    assert_eq!(handler(wire), expected);
}

#[test]
fn a_runtime_config_without_linux_part_names_no_cgroup_driver() {
    let linux = |cgroup_driver| v1::RuntimeConfigResponse {
        linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver }),
    };
    assert_eq!(cgroup_driver(linux(0)), Ok(CgroupDriver::Systemd));
    assert_eq!(cgroup_driver(linux(1)), Ok(CgroupDriver::Cgroupfs));
    let unknown = cgroup_driver(linux(9)).expect_err("unknown").to_string();
    assert_eq!(unknown, "RuntimeConfig: Internal: unknown cgroup driver 9");
    let silent = cgroup_driver(v1::RuntimeConfigResponse::default());
    assert!(matches!(silent, Err(ContainerRuntimeError::Unimplemented { .. })), "{silent:?}");
}
