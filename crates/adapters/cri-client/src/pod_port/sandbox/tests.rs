//! Every field of a sandbox's configuration is translated, and nothing is added.

use super::*;
use ports::runtime_objects::{
    IdMapping, LinuxResources, NamespaceMode, NamespaceOptions, SeLinuxLabel, SecurityProfile,
    SupplementalGroupsPolicy, UserNamespace,
};

fn text(value: &str) -> String {
    value.to_owned()
}

fn full() -> SandboxConfig {
    SandboxConfig {
        name: text("web"),
        namespace: text("shop"),
        uid: text("u-1"),
        attempt: 3,
        hostname: text("web-0"),
        log_directory: text("/var/log/pods/shop_web_u-1"),
        dns: Some(DnsConfig {
            servers: vec![text("10.0.0.10")],
            searches: vec![text("svc")],
            options: vec![text("ndots:5")],
        }),
        port_mappings: vec![PortMapping {
            protocol: Protocol::Udp,
            container_port: 53,
            host_port: 5353,
            host_ip: text("127.0.0.1"),
        }],
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
        cgroup_parent: text("/kubepods/podu-1"),
        sysctls: [(text("net.a"), text("3"))].into(),
        overhead: Some(LinuxResources { cpu_shares: 7, ..Default::default() }),
        resources: Some(LinuxResources { cpu_shares: 8, ..Default::default() }),
        security: SandboxSecurity {
            namespaces: NamespaceOptions {
                network: NamespaceMode::Node,
                pid: NamespaceMode::Container,
                ipc: NamespaceMode::Pod,
                target_id: text("t"),
                user: Some(UserNamespace {
                    mode: NamespaceMode::Pod,
                    uids: vec![IdMapping { host_id: 1, container_id: 2, length: 3 }],
                    gids: vec![IdMapping { host_id: 4, container_id: 5, length: 6 }],
                }),
            },
            selinux: Some(SeLinuxLabel {
                user: text("su"),
                role: text("sr"),
                kind: text("st"),
                level: text("sl"),
            }),
            run_as_user: Some(1000),
            run_as_group: Some(0),
            readonly_rootfs: true,
            supplemental_groups: vec![5, 6],
            supplemental_groups_policy: SupplementalGroupsPolicy::Strict,
            privileged: true,
            seccomp: Some(SecurityProfile::Localhost(text("/profiles/a.json"))),
            apparmor: Some(SecurityProfile::Unconfined),
        },
        runtime_handler: text("not part of the message"),
    }
}

fn full_on_the_wire() -> v1::PodSandboxConfig {
    let shares = |cpu_shares| v1::LinuxContainerResources { cpu_shares, ..Default::default() };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: text("web"),
            uid: text("u-1"),
            namespace: text("shop"),
            attempt: 3,
        }),
        hostname: text("web-0"),
        log_directory: text("/var/log/pods/shop_web_u-1"),
        dns_config: Some(v1::DnsConfig {
            servers: vec![text("10.0.0.10")],
            searches: vec![text("svc")],
            options: vec![text("ndots:5")],
        }),
        port_mappings: vec![v1::PortMapping {
            protocol: 1,
            container_port: 53,
            host_port: 5353,
            host_ip: text("127.0.0.1"),
        }],
        labels: [(text("l"), text("1"))].into(),
        annotations: [(text("a"), text("2"))].into(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: text("/kubepods/podu-1"),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    network: 2,
                    pid: 1,
                    ipc: 0,
                    target_id: text("t"),
                    userns_options: Some(v1::UserNamespace {
                        mode: 0,
                        uids: vec![v1::IdMapping { host_id: 1, container_id: 2, length: 3 }],
                        gids: vec![v1::IdMapping { host_id: 4, container_id: 5, length: 6 }],
                    }),
                }),
                selinux_options: Some(v1::SeLinuxOption {
                    user: text("su"),
                    role: text("sr"),
                    r#type: text("st"),
                    level: text("sl"),
                }),
                run_as_user: Some(v1::Int64Value { value: 1000 }),
                run_as_group: Some(v1::Int64Value { value: 0 }),
                readonly_rootfs: true,
                supplemental_groups: vec![5, 6],
                supplemental_groups_policy: 1,
                privileged: true,
                seccomp: Some(v1::SecurityProfile {
                    profile_type: 2,
                    localhost_ref: text("/profiles/a.json"),
                }),
                apparmor: Some(v1::SecurityProfile {
                    profile_type: 1,
                    localhost_ref: String::new(),
                }),
                ..Default::default()
            }),
            sysctls: [(text("net.a"), text("3"))].into(),
            overhead: Some(shares(7)),
            resources: Some(shares(8)),
        }),
        windows: None,
    }
}

#[test]
fn a_full_configuration_arrives_whole() {
    assert_eq!(to_wire(&full()), full_on_the_wire());
}

#[test]
fn unset_fields_stay_unset() {
    let wire = to_wire(&SandboxConfig::default());
    assert_eq!(wire.dns_config, None);
    let linux = wire.linux.expect("always there");
    assert_eq!((linux.overhead, linux.resources), (None, None));
    let security = linux.security_context.expect("always there");
    assert_eq!(security.run_as_user, None);
    assert_eq!(security.run_as_group, None);
    assert_eq!(security.selinux_options, None);
    assert_eq!(security.seccomp, None);
    assert_eq!(security.apparmor, None);
    assert_eq!(security.namespace_options, Some(v1::NamespaceOption::default()));
}

#[test]
fn enums_map_to_their_cri_numbers() {
    for (protocol, number) in [(Protocol::Tcp, 0), (Protocol::Udp, 1), (Protocol::Sctp, 2)] {
        let port = PortMapping { protocol, ..Default::default() };
        assert_eq!(port_to_wire(&port).protocol, number);
    }
    for (mode, number) in [
        (NamespaceMode::Pod, 0),
        (NamespaceMode::Container, 1),
        (NamespaceMode::Node, 2),
        (NamespaceMode::Target, 3),
    ] {
        let options = NamespaceOptions { pid: mode, ..Default::default() };
        assert_eq!(namespaces_to_wire(&options).pid, number);
    }
    for (profile, number) in [
        (SecurityProfile::RuntimeDefault, 0),
        (SecurityProfile::Unconfined, 1),
        (SecurityProfile::Localhost(text("x")), 2),
    ] {
        assert_eq!(profile_to_wire(&profile).profile_type, number);
    }
    assert_eq!(groups_policy_to_wire(SupplementalGroupsPolicy::Merge), 0);
}
