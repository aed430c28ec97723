//! Parameters against kernels, patterns and shared namespaces.

use pod_model::pod::security::{PodSecurityContext, Sysctl};

use super::*;

fn pod(name: &str, host_network: bool, host_ipc: bool) -> Pod {
    let mut pod = Pod::default();
    pod.spec.host_network = host_network;
    pod.spec.host_ipc = host_ipc;
    pod.spec.security_context = Some(Box::new(PodSecurityContext {
        sysctls: vec![Sysctl { name: name.into(), value: "1".into() }],
        ..PodSecurityContext::default()
    }));
    pod
}

#[test]
fn allowed_sysctls_are_accepted() {
    let new = Some((6, 1));
    /// (kernel, pattern, parameter, host network, host IPC, error)
    type SysctlRow = (Option<(u32, u32)>, &'static str, &'static str, bool, bool, &'static str);
    let rows: &[SysctlRow] = &[
        (new, "", "kernel.shm_rmid_forced", false, false, ""),
        (new, "", "kernel/shm_rmid_forced", false, false, ""),
        (new, "", "net.ipv4.tcp_rmem", false, false, ""),
        (
            Some((4, 14)),
            "",
            "net.ipv4.tcp_rmem",
            false,
            false,
            "\"net.ipv4.tcp_rmem\" not allowlisted",
        ),
        (Some((4, 15)), "", "net.ipv4.tcp_wmem", false, false, ""),
        (
            Some((4, 5)),
            "",
            "net.ipv4.tcp_fin_timeout",
            false,
            false,
            "\"net.ipv4.tcp_fin_timeout\" not allowlisted",
        ),
        (Some((4, 6)), "", "net.ipv4.tcp_fin_timeout", false, false, ""),
        (
            Some((3, 15)),
            "",
            "net.ipv4.ip_local_reserved_ports",
            false,
            false,
            "\"net.ipv4.ip_local_reserved_ports\" not allowlisted",
        ),
        (
            None,
            "",
            "net.ipv4.tcp_keepalive_time",
            false,
            false,
            "\"net.ipv4.tcp_keepalive_time\" not allowlisted",
        ),
        (None, "", "net.ipv4.tcp_syncookies", false, false, ""),
        (new, "", "kernel.msgmax", false, false, "\"kernel.msgmax\" not allowlisted"),
        (new, "kernel.msgmax", "kernel.msgmax", false, false, ""),
        (new, "kernel.msg*", "kernel.msgmax", false, false, ""),
        (new, "kernel.msg*", "kernel.shmmax", false, false, "\"kernel.shmmax\" not allowlisted"),
        (new, "net.ipv4.route.*", "net.ipv4.route.min_pmtu", false, false, ""),
        (new, "net/ipv4/route/*", "net.ipv4.route.min_pmtu", false, false, ""),
        (new, "net.ipv4.conf.*", "net/ipv4/conf/eno2.100/rp_filter", false, false, ""),
        (
            new,
            "",
            "net.ipv4.tcp_syncookies",
            true,
            false,
            "\"net.ipv4.tcp_syncookies\" not allowed with host Net enabled",
        ),
        (new, "", "net.ipv4.tcp_syncookies", false, true, ""),
        (
            new,
            "",
            "kernel.shm_rmid_forced",
            false,
            true,
            "\"kernel.shm_rmid_forced\" not allowed with host IPC enabled",
        ),
        (new, "", "kernel.shm_rmid_forced", true, false, ""),
        (
            new,
            "fs.mqueue.*",
            "fs.mqueue.msg_max",
            false,
            true,
            "\"fs.mqueue.msg_max\" not allowed with host IPC enabled",
        ),
        (
            new,
            "net.*",
            "net.core.somaxconn",
            true,
            false,
            "\"net.core.somaxconn\" not allowed with host Net enabled",
        ),
        (new, "", "vm.swappiness", false, false, "\"vm.swappiness\" not allowlisted"),
    ];
    for (kernel, pattern, name, host_network, host_ipc, expected) in rows {
        let patterns: Vec<String> =
            Some((*pattern).to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
        let allowed = AllowedSysctls::new(*kernel, &patterns).unwrap();
        let found = allowed.rejection(&pod(name, *host_network, *host_ipc)).unwrap_or_default();
        assert_eq!(found, *expected, "{kernel:?} {pattern} {name}");
    }
}

#[test]
fn a_pattern_outside_every_namespace_is_an_error() {
    for (pattern, stem) in [("vm.*", "vm."), ("kernel.pid_max", "kernel.pid_max"), ("*", "")] {
        let error = AllowedSysctls::new(None, &[pattern.to_owned()]).unwrap_err();
        let expected = format!("the sysctls {stem:?} are not known to be namespaced");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn pods_without_sysctls_are_admitted() {
    let allowed = AllowedSysctls::new(None, &[]).unwrap();
    assert_eq!(allowed.rejection(&Pod::default()), None);
}

#[test]
fn kernels_are_read() {
    for (release, version) in [
        ("6.8.0-45-generic", Some((6, 8))),
        ("5.15-rc1", Some((5, 15))),
        ("4.4", Some((4, 4))),
        ("4.4\n", Some((4, 4))),
        ("6", None),
        ("six.1", None),
        ("6.x", None),
        ("", None),
    ] {
        assert_eq!(kernel_version(release), version, "{release}");
    }
}
