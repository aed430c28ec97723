//! Every field of a container's configuration is translated, and nothing is added.

use super::*;
use ports::runtime_objects::{
    ContainerSecurity, IdMapping, ImageSpec, LinuxResources, SecurityProfile,
    SupplementalGroupsPolicy,
};

fn text(value: &str) -> String {
    value.to_owned()
}

fn full() -> ContainerConfig {
    ContainerConfig {
        name: text("app"),
        attempt: 2,
        image: ImageSpec {
            image: text("sha256:1"),
            user_specified_image: text("app:1"),
            runtime_handler: text("kata"),
            annotations: [(text("ia"), text("1"))].into(),
        },
        command: vec![text("/bin/app")],
        args: vec![text("-v")],
        working_dir: text("/srv"),
        env: vec![(text("A"), text("b"))],
        mounts: vec![Mount {
            container_path: text("/c"),
            host_path: text("/h"),
            readonly: true,
            selinux_relabel: true,
            propagation: Propagation::Bidirectional,
            recursive_read_only: true,
            uid_mappings: vec![IdMapping { host_id: 1, container_id: 2, length: 3 }],
            gid_mappings: vec![IdMapping { host_id: 4, container_id: 5, length: 6 }],
            image: Some(ImageSpec { image: text("vol"), ..Default::default() }),
            image_sub_path: text("sub"),
        }],
        devices: vec![Device {
            container_path: text("/dev/a"),
            host_path: text("/dev/b"),
            permissions: text("rw"),
        }],
        cdi_devices: vec![text("vendor/class=one")],
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
        log_path: text("app/2.log"),
        stdin: true,
        stdin_once: true,
        tty: true,
        resources: LinuxResources {
            cpu_period: 1,
            cpu_quota: 2,
            cpu_shares: 3,
            memory_limit: 4,
            memory_swap_limit: 5,
            oom_score_adj: 6,
            cpuset_cpus: text("0-1"),
            cpuset_mems: text("0"),
            hugepage_limits: vec![(text("2MB"), 7)],
            unified: [(text("memory.oom.group"), text("1"))].into(),
        },
        security: ContainerSecurity {
            capabilities_add: vec![text("NET_ADMIN")],
            capabilities_drop: vec![text("ALL")],
            privileged: true,
            namespaces: Default::default(),
            selinux: None,
            run_as_user: Some(1),
            run_as_group: Some(2),
            run_as_username: text("app"),
            readonly_rootfs: true,
            supplemental_groups: vec![9],
            supplemental_groups_policy: SupplementalGroupsPolicy::Strict,
            no_new_privs: true,
            masked_paths: vec![text("/proc/kcore")],
            readonly_paths: vec![text("/proc/sys")],
            seccomp: Some(SecurityProfile::RuntimeDefault),
            apparmor: Some(SecurityProfile::Localhost(text("lock"))),
        },
        stop_signal: text("SIGUSR1"),
    }
}

fn full_on_the_wire() -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: text("app"), attempt: 2 }),
        image: Some(v1::ImageSpec {
            image: text("sha256:1"),
            annotations: [(text("ia"), text("1"))].into(),
            user_specified_image: text("app:1"),
            runtime_handler: text("kata"),
            image_ref: String::new(),
        }),
        command: vec![text("/bin/app")],
        args: vec![text("-v")],
        working_dir: text("/srv"),
        envs: vec![v1::KeyValue { key: text("A"), value: b"b".to_vec() }],
        mounts: vec![v1::Mount {
            container_path: text("/c"),
            host_path: text("/h"),
            readonly: true,
            selinux_relabel: true,
            propagation: 2,
            uid_mappings: vec![v1::IdMapping { host_id: 1, container_id: 2, length: 3 }],
            gid_mappings: vec![v1::IdMapping { host_id: 4, container_id: 5, length: 6 }],
            recursive_read_only: true,
            image: Some(v1::ImageSpec { image: text("vol"), ..Default::default() }),
            image_sub_path: text("sub"),
        }],
        devices: vec![v1::Device {
            container_path: text("/dev/a"),
            host_path: text("/dev/b"),
            permissions: text("rw"),
        }],
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
        log_path: text("app/2.log"),
        stdin: true,
        stdin_once: true,
        tty: true,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                cpu_period: 1,
                cpu_quota: 2,
                cpu_shares: 3,
                memory_limit_in_bytes: 4,
                oom_score_adj: 6,
                cpuset_cpus: text("0-1"),
                cpuset_mems: text("0"),
                hugepage_limits: vec![v1::HugepageLimit { page_size: text("2MB"), limit: 7 }],
                unified: [(text("memory.oom.group"), text("1"))].into(),
                memory_swap_limit_in_bytes: 5,
            }),
            security_context: Some(security_on_the_wire()),
        }),
        windows: None,
        cdi_devices: vec![v1::CdiDevice { name: text("vendor/class=one") }],
        stop_signal: v1::Signal::Sigusr1.into(),
    }
}

#[allow(deprecated, reason = "older runtimes read only the old field")]
fn security_on_the_wire() -> v1::LinuxContainerSecurityContext {
    v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: vec![text("NET_ADMIN")],
            drop_capabilities: vec![text("ALL")],
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: true,
        namespace_options: Some(v1::NamespaceOption::default()),
        selinux_options: None,
        run_as_user: Some(v1::Int64Value { value: 1 }),
        run_as_group: Some(v1::Int64Value { value: 2 }),
        run_as_username: text("app"),
        readonly_rootfs: true,
        supplemental_groups: vec![9],
        supplemental_groups_policy: 1,
        no_new_privs: true,
        masked_paths: vec![text("/proc/kcore")],
        readonly_paths: vec![text("/proc/sys")],
        seccomp: Some(v1::SecurityProfile { profile_type: 0, localhost_ref: String::new() }),
        apparmor: Some(v1::SecurityProfile { profile_type: 2, localhost_ref: text("lock") }),
        apparmor_profile: text("localhost/lock"),
        ..Default::default()
    }
}

#[test]
fn a_full_configuration_arrives_whole() {
    assert_eq!(to_wire(&full()), Ok(full_on_the_wire()));
}

#[test]
fn capabilities_are_set_only_when_there_are_any() {
    for (add, drop, expected) in [(false, false, false), (true, false, true), (false, true, true)] {
        let mut config = full();
        if !add {
            config.security.capabilities_add.clear();
        }
        if !drop {
            config.security.capabilities_drop.clear();
        }
        let linux = to_wire(&config).expect("translates").linux.expect("always there");
        let security = linux.security_context.expect("always there");
        assert_eq!(security.capabilities.is_some(), expected, "{add} {drop}");
    }
}

#[test]
fn signal_names_are_converted_to_cri_signals() {
    for (name, signal) in [
        ("", v1::Signal::RuntimeDefault),
        ("SIGTERM", v1::Signal::Sigterm),
        ("SIGRTMIN", v1::Signal::Sigrtmin),
        ("SIGRTMIN+1", v1::Signal::Sigrtminplus1),
        ("SIGRTMIN+15", v1::Signal::Sigrtminplus15),
        ("SIGRTMAX-14", v1::Signal::Sigrtmaxminus14),
    ] {
        assert_eq!(signal_to_wire(name), Ok(signal.into()), "{name}");
    }
    let refused = signal_to_wire("SIGNOTHING").expect_err("unknown");
    assert_eq!(
        refused.to_string(),
        "CreateContainer: InvalidArgument: stop signal \"SIGNOTHING\": the interface knows no such signal"
    );
}

#[test]
fn propagation_has_its_numbers() {
    for (propagation, number) in [
        (Propagation::Private, 0),
        (Propagation::HostToContainer, 1),
        (Propagation::Bidirectional, 2),
    ] {
        let mount = Mount { propagation, ..Default::default() };
        assert_eq!(mount_to_wire(&mount).propagation, number);
    }
}

#[test]
#[allow(deprecated, reason = "older runtimes read only the old field")]
fn the_apparmor_profile_is_set_in_old_and_new_fields() {
    for (profile, old) in [
        (None, ""),
        (Some(SecurityProfile::RuntimeDefault), "runtime/default"),
        (Some(SecurityProfile::Unconfined), "unconfined"),
        (Some(SecurityProfile::Localhost(text("x"))), "localhost/x"),
    ] {
        let security = ContainerSecurity { apparmor: profile, ..Default::default() };
        assert_eq!(container_to_wire(&security).apparmor_profile, old);
    }
}
