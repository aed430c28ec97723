//! The hosts file, byte for byte.

use super::*;
use crate::testing::{one_with, texts};

fn host(domain: &str) -> HostName {
    HostName { name: "web".to_owned(), domain: domain.to_owned() }
}

const WELL_KNOWN: &str = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

#[test]
fn managed_files() {
    let aliases =
        "hostAliases: [{ip: 123.45.67.89, hostnames: [foo, bar]}, {ip: 1.1.1.1, hostnames: [x]}],";
    for (spec, domain, ips, rest) in [
        ("", "", &["10.0.0.1"][..], "10.0.0.1\tweb\n"),
        ("", "sub.svc", &["10.0.0.1"], "10.0.0.1\tweb.sub.svc\tweb\n"),
        ("", "", &["10.0.0.1", "fd00::1"], "10.0.0.1\tweb\nfd00::1\tweb\n"),
        ("", "", &[], ""),
        (
            aliases,
            "",
            &["10.0.0.1"],
            "10.0.0.1\tweb\n\n# Entries added by HostAliases.\n123.45.67.89\tfoo\tbar\n1.1.1.1\tx\n",
        ),
    ] {
        let content = managed(&one_with(spec, ""), &host(domain), &texts(ips));
        let expected = format!("{WELL_KNOWN}{rest}");
        assert_eq!(String::from_utf8(content).expect("text"), expected, "{spec}");
    }
}

#[test]
fn the_hosts_own_file_with_the_pods_aliases() {
    let content = from_host(&one_with("", ""), b"127.0.0.1 host\n\xff");
    assert_eq!(content, b"# Kubernetes-managed hosts file (host network).\n127.0.0.1 host\n\xff");
    let pod = one_with("hostAliases: [{ip: 1.1.1.1, hostnames: [x]}],", "");
    let content = String::from_utf8(from_host(&pod, b"h\n")).expect("text");
    assert_eq!(
        content,
        "# Kubernetes-managed hosts file (host network).\nh\n\n# Entries added by HostAliases.\n1.1.1.1\tx\n"
    );
}

#[test]
fn a_file_needs_addresses_or_the_hosts_network() {
    for (spec, ips, wanted) in
        [("", &[][..], false), ("", &["10.0.0.1"][..], true), ("hostNetwork: true,", &[][..], true)]
    {
        assert_eq!(is_wanted(&one_with(spec, ""), &texts(ips)), wanted, "{spec} {ips:?}");
    }
}
