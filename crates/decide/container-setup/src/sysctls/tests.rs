//! What may be changed, on which kernel, and with which namespaces shared.

use super::*;
use crate::testing::{one_with, texts};

fn policy(allowed: &[&str]) -> SysctlPolicy {
    SysctlPolicy::new(Some((6, 1)), &texts(allowed)).expect("a policy")
}

fn wish(name: &str, more: &str) -> Pod {
    one_with(&format!("{more} securityContext: {{sysctls: [{{name: {name}, value: \"1\"}}]}},"), "")
}

#[test]
fn the_safe_list_follows_the_kernel() {
    for (name, first) in SAFE {
        for (kernel, allowed) in [(*first, true), ((first.0, first.1.wrapping_sub(1)), false)] {
            if kernel.1 == u32::MAX {
                continue;
            }
            let policy = SysctlPolicy::new(Some(kernel), &[]).expect("a policy");
            assert_eq!(policy.check(&wish(name, "")).is_ok(), allowed, "{name} {kernel:?}");
        }
    }
    let unknown = SysctlPolicy::new(None, &[]).expect("a policy");
    assert!(unknown.check(&wish("kernel.shm_rmid_forced", "")).is_ok());
    assert!(unknown.check(&wish("net.ipv4.tcp_rmem", "")).is_err());
    assert_eq!(SAFE.len(), 12);
}

#[test]
fn what_is_not_listed_is_refused() {
    for name in ["net.core.somaxconn", "kernel.msgmax", "vm.swappiness", "kernel.shmmax"] {
        let error = policy(&[]).check(&wish(name, "")).expect_err(name).to_string();
        assert_eq!(error, format!("forbidden sysctl: {name:?} not allowlisted"));
    }
    assert_eq!(policy(&[]).check(&one_with("", "")), Ok(()));
}

#[test]
fn an_administrator_may_allow_more() {
    for (allowed, name, is_allowed) in [
        ("net.core.somaxconn", "net.core.somaxconn", true),
        ("net.core.somaxconn", "net.core.somaxconn2", false),
        ("net.core.*", "net.core.somaxconn", true),
        ("net.*", "net.ipv6.conf.all.forwarding", true),
        ("kernel.msg*", "kernel.msgmax", true),
        ("kernel.shm*", "kernel.shmmni", true),
        ("fs.mqueue.*", "fs.mqueue.msg_max", true),
        ("net/core/*", "net.core.somaxconn", true),
        ("net.core.*", "net/core/somaxconn", true),
        ("net.core.*", "kernel.msgmax", false),
    ] {
        let outcome = policy(&[allowed]).check(&wish(name, ""));
        assert_eq!(outcome.is_ok(), is_allowed, "{allowed} {name}: {outcome:?}");
    }
}

#[test]
fn what_no_namespace_keeps_apart_cannot_be_allowed() {
    for (pattern, shown) in [
        ("vm.swappiness", "vm.swappiness"),
        ("kernel.*", "kernel."),
        ("kernel.hostname", "kernel.hostname"),
    ] {
        let error = SysctlPolicy::new(None, &texts(&[pattern])).expect_err(pattern).to_string();
        assert_eq!(error, format!("the sysctls {shown:?} are not known to be namespaced"));
    }
}

#[test]
fn a_namespace_shared_with_the_host_forbids() {
    for (name, host, text) in [
        ("net.ipv4.tcp_syncookies", "hostNetwork: true,", Some("Net")),
        ("kernel.shm_rmid_forced", "hostIPC: true,", Some("IPC")),
        ("net.core.somaxconn", "hostNetwork: true,", Some("Net")),
        ("kernel.msgmax", "hostIPC: true,", Some("IPC")),
        ("fs.mqueue.x", "hostIPC: true,", Some("IPC")),
        ("net.ipv4.tcp_syncookies", "hostIPC: true,", None),
        ("kernel.msgmax", "hostNetwork: true,", None),
        ("kernel.msgmax", "hostPID: true,", None),
    ] {
        let policy = policy(&["net.core.*", "kernel.msg*", "fs.mqueue.*"]);
        let outcome = policy.check(&wish(name, host)).map_err(|error| error.to_string());
        let expected = match text {
            None => Ok(()),
            Some(space) => {
                Err(format!("forbidden sysctl: {name:?} not allowed with host {space} enabled"))
            }
        };
        assert_eq!(outcome, expected, "{name} {host}");
    }
}

#[test]
fn slashes_become_dots() {
    for (name, normal) in [
        ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("kernel/shm_rmid_forced", "kernel.shm_rmid_forced"),
        ("plain", "plain"),
        ("", ""),
    ] {
        assert_eq!(normal_name(name), normal, "{name}");
    }
    let told = of_pod(&wish("kernel/shm_rmid_forced", ""));
    assert_eq!(told, [("kernel.shm_rmid_forced".to_owned(), "1".to_owned())].into());
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
