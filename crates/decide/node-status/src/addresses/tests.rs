//! Which addresses are chosen from which facts.

use super::*;

fn ip(text: &str) -> IpAddr {
    pod_model::parse_ip(text).expect("an address")
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| ip(text)).collect()
}

fn host() -> HostAddressSources {
    HostAddressSources {
        of_host: ips(&["127.0.0.1", "10.0.0.5", "fd00::5", "169.254.1.1"]).into_iter().collect(),
        default_v4: Some(ip("10.0.0.5")),
        default_v6: Some(ip("fd00::5")),
        ..HostAddressSources::default()
    }
}

const REQUEST: AddressRequest<'static> = AddressRequest {
    node_name: "n1",
    hostname: "n1.local",
    external_cloud_provider: false,
    existing: &[],
};

/// Addresses as `Type=address`, or the error.
fn chosen(request: AddressRequest<'_>, facts: &HostAddressSources) -> Result<Vec<String>, String> {
    let chosen = choose(request, facts).map_err(|error| error.to_string())?;
    Ok(chosen.addresses.iter().map(|one| format!("{}={}", one.kind, one.address)).collect())
}

#[test]
fn addresses_come_from_the_flag_then_the_name_then_the_default_route() {
    // (--node-ip, what the name resolves to, the internal addresses)
    let rows: &[(&[&str], &[&str], &[&str])] = &[
        (&["10.0.0.5"], &[], &["10.0.0.5"]),
        (&["10.0.0.5", "fd00::5"], &[], &["10.0.0.5", "fd00::5"]),
        (&["fd00::5", "10.0.0.5"], &[], &["fd00::5", "10.0.0.5"]),
        (&[], &["203.0.113.1", "fd00::5", "10.0.0.5"], &["10.0.0.5"]),
        (&[], &["fd00::5"], &["fd00::5"]),
        (&["::"], &["10.0.0.5", "fd00::5"], &["fd00::5"]),
        (&["::"], &[], &["fd00::5"]),
        (&["0.0.0.0"], &[], &["10.0.0.5"]),
        (&[], &["127.0.0.1"], &["10.0.0.5"]),
        (&[], &[], &["10.0.0.5"]),
    ];
    for (node_ips, by_name, expected) in rows {
        let facts = HostAddressSources { node_ips: ips(node_ips), by_name: ips(by_name), ..host() };
        let mut all: Vec<String> = expected.iter().map(|ip| format!("InternalIP={ip}")).collect();
        all.push("Hostname=n1.local".to_owned());
        assert_eq!(chosen(REQUEST, &facts), Ok(all), "{node_ips:?} {by_name:?}");
    }
}

#[test]
fn a_host_name_that_is_an_address_is_the_nodes_address() {
    let request = AddressRequest { hostname: "192.0.2.7", ..REQUEST };
    let expected = vec!["InternalIP=192.0.2.7".to_owned(), "Hostname=192.0.2.7".to_owned()];
    assert_eq!(chosen(request, &host()), Ok(expected));
}

#[test]
fn an_address_that_cannot_be_the_nodes_is_refused_with_the_reason() {
    for (node_ip, reason) in [
        ("127.0.0.1", "loopback"),
        ("224.0.0.1", "multicast"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("10.0.0.6", "no interface"),
    ] {
        let facts = HostAddressSources { node_ips: ips(&[node_ip]), ..host() };
        let error = chosen(REQUEST, &facts).expect_err(node_ip);
        assert!(error.contains(reason) && error.contains(node_ip), "{error}");
    }
    let second = HostAddressSources { node_ips: ips(&["10.0.0.5", "fd00::6"]), ..host() };
    assert!(chosen(REQUEST, &second).is_err());
    let nothing = chosen(REQUEST, &HostAddressSources::default()).expect_err("no address");
    assert!(nothing.contains("n1") && nothing.contains("--node-ip"), "{nothing}");
}

/// `--node-ip`, addresses of the object, what is reported, the annotation.
type CloudRow<'a> = (&'a [&'a str], &'a [NodeAddress], &'a [&'a str], Option<&'a str>);

#[test]
fn a_cloud_provider_sets_the_addresses_and_the_flag_is_an_annotation() {
    let existing =
        [NodeAddress { kind: "ExternalIP".to_owned(), address: "198.51.100.1".to_owned() }];
    let cloud = AddressRequest { external_cloud_provider: true, ..REQUEST };
    let rows: &[CloudRow] = &[
        (&[], &[], &["Hostname=n1.local"], None),
        (&[], &existing, &["ExternalIP=198.51.100.1"], None),
        (&["10.0.0.5"], &existing, &["ExternalIP=198.51.100.1"], Some("10.0.0.5")),
        (
            &["10.0.0.5", "fd00::5"],
            &[],
            &["InternalIP=10.0.0.5", "InternalIP=fd00::5", "Hostname=n1.local"],
            Some("10.0.0.5,fd00::5"),
        ),
        (&["0.0.0.0"], &[], &["InternalIP=10.0.0.5", "Hostname=n1.local"], None),
    ];
    for (node_ips, existing, expected, annotation) in rows {
        let facts = HostAddressSources { node_ips: ips(node_ips), ..host() };
        let request = AddressRequest { existing, ..cloud };
        let reported = chosen(request, &facts).expect("addresses");
        assert_eq!(reported, *expected, "{node_ips:?}");
        let found = choose(request, &facts).expect("addresses").annotation;
        assert_eq!(found.as_deref(), *annotation, "{node_ips:?}");
    }
    let facts = HostAddressSources { node_ips: ips(&["10.0.0.5"]), ..host() };
    assert_eq!(choose(REQUEST, &facts).expect("addresses").annotation, None);
}

#[test]
fn pods_report_an_internal_address_and_one_of_the_other_family() {
    /// The Node's addresses by type, and those that its pods report.
    type AddressCase<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let table: &[AddressCase<'_>] = &[
        (&[("Hostname", "n"), ("InternalIP", "10.0.0.5")], &["10.0.0.5"]),
        (&[("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.5")], &["10.0.0.5"]),
        (&[("ExternalIP", "192.0.2.1")], &["192.0.2.1"]),
        (&[("InternalIP", "fd00::5"), ("InternalIP", "10.0.0.5")], &["fd00::5", "10.0.0.5"]),
        (&[("InternalIP", "10.0.0.5"), ("InternalIP", "10.0.0.6")], &["10.0.0.5"]),
        (&[("InternalIP", "none")], &[]),
    ];
    for (addresses, expected) in table {
        let mut node = NodeObject::default();
        node.status.addresses = addresses
            .iter()
            .map(|(kind, address)| NodeAddress {
                kind: (*kind).to_owned(),
                address: (*address).to_owned(),
            })
            .collect();
        assert_eq!(host_ips(&node), *expected, "{addresses:?}");
    }
}
