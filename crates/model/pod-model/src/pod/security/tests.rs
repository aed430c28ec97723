//! Names of kernel parameters.

use super::*;

#[test]
fn slashes_become_dots() {
    for (written, name) in [
        ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("kernel/shm_rmid_forced", "kernel.shm_rmid_forced"),
        ("plain", "plain"),
        ("", ""),
    ] {
        assert_eq!(sysctl_name(written), name, "{written}");
    }
}
