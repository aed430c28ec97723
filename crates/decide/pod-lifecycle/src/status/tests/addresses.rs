//! Addresses.

use crate::testing::{PlanCaseRow, check};

const ADDRESSES_OF_POD_AND_HOST: &[PlanCaseRow] = &[
    ("of the sandbox", "pod: Always app:a\nseen: s0 ip=10.1.2.3", "ip: 10.1.2.3"),
    ("IPv4 first", "pod: Always app:a\nseen: s0 ip=fd00::1,10.1.2.3", "ip: 10.1.2.3 fd00::1"),
    (
        "IPv6 first where the node says so",
        "pod: Always app:a\nseen: s0 ip=10.1.2.3,fd00::1\nfacts: ipv6",
        "ip: fd00::1 10.1.2.3",
    ),
    (
        "one of each family",
        "pod: Always app:a\nseen: s0 ip=10.1.2.3,10.1.2.4,fd00::1,fd00::2",
        "ip: 10.1.2.3 fd00::1",
    ),
    (
        "written in the usual way",
        "pod: Always app:a\nseen: s0 ip=fd00:0:0:0::1\nfacts: ipv6",
        "ip: fd00::1",
    ),
    ("what is no address is left out", "pod: Always app:a\nseen: s0 ip=nonsense", "ip:"),
    ("not of one that is not ready", "pod: Always app:a\nseen: s0 dead ip=10.1.2.3", "ip:"),
    (
        "but as it was before",
        "pod: Always app:a\nseen: s0 dead ip=10.1.2.3\nmemory: ips 10.9.9.9",
        "ip: 10.9.9.9",
    ),
    (
        "not while an older one is ready",
        "pod: Always app:a\nseen: s0; s1 dead\nmemory: ips 10.9.9.9",
        "ip:",
    ),
    ("all gone", "pod: Always app:a\nmemory: ips 10.9.9.9\nwish: deleted", "ip: 10.9.9.9"),
    (
        "the host's",
        "pod: Always app:a\nseen: s0\nfacts: hosts 192.168.0.1 fd01::1",
        "host: 192.168.0.1 fd01::1",
    ),
    (
        "on the host network",
        "pod: Always host app:a\nseen: s0 noip hostnet\nfacts: hosts 192.168.0.1 fd01::1",
        "ip: 192.168.0.1 fd01::1",
    ),
    (
        "on the host network, as it was",
        "pod: Always host app:a\nmemory: ips 192.168.0.7\nfacts: hosts 192.168.0.1",
        "ip: 192.168.0.7",
    ),
    ("nobody told the host's", "pod: Always host app:a\nseen: s0 noip hostnet", "ip:\nhost:"),
];

#[test]
fn addresses_of_pod_and_host() {
    check(ADDRESSES_OF_POD_AND_HOST);
}
