//! Which sysctls a pod may set.

use super::*;

#[test]
fn only_sysctls_of_the_pods_own_namespaces_are_accepted() {
    let all = OwnNamespaces { network: true, ipc: true, uts: true };
    let none = OwnNamespaces { network: false, ipc: false, uts: false };
    for (name, expected) in [
        ("net.ipv4.ip_forward", Some("net/ipv4/ip_forward")),
        ("net/ipv4/ip_forward", Some("net/ipv4/ip_forward")),
        ("net.ipv4.conf.eth0/1.rp_filter", Some("net/ipv4/conf/eth0.1/rp_filter")),
        ("kernel.shm_rmid_forced", Some("kernel/shm_rmid_forced")),
        ("fs.mqueue.msg_max", Some("fs/mqueue/msg_max")),
        ("kernel.domainname", Some("kernel/domainname")),
        ("kernel.core_pattern", None),
        ("kernel.sysrq", None),
        ("vm.swappiness", None),
        ("net/../kernel/core_pattern", None),
        ("net..x", None),
        ("", None),
    ] {
        assert_eq!(path(name, all).ok().as_deref(), expected, "{name}");
        assert!(path(name, none).is_err(), "{name} in the host's namespaces");
    }
}
