//! Address parsing against tables, the standard library, and golden results of Kubernetes.

use proptest::prelude::*;

use super::*;

/// Compares values instead of text. Go writes an IPv4-mapped IPv6 address as IPv4, and our parser
/// returns it as IPv4, so the values are equal.
fn same_address(ours: IpAddr, theirs: &str) -> bool {
    theirs.parse::<IpAddr>().is_ok_and(|theirs| theirs == ours)
}

#[test]
fn agrees_with_kubernetes_on_every_golden_line() {
    let mut lines = include_str!("golden.txt").lines();
    assert!(lines.next().is_some_and(|first| first.starts_with("# Kubernetes v1.36.3")));
    let mut checked = [0; 3];
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["ip", input, ref theirs @ ..] => check_address(input, theirs),
            ["cidr", input, ref theirs @ ..] => check_network(input, theirs),
            ["node", provider, input, ref theirs @ ..] => check_node(provider, input, theirs),
            _ => panic!("golden line {line:?}"),
        }
        let kind = ["ip", "cidr", "node"].iter().position(|kind| *kind == fields[0]);
        checked[kind.unwrap_or(0)] += 1;
    }
    assert!(checked[0] > 700 && checked[1] > 700 && checked[2] > 150, "only {checked:?} lines");
}

fn check_address(input: &str, theirs: &[&str]) {
    match (theirs, parse_ip(input)) {
        (["E"], Err(IpError::Address { value })) => assert_eq!(value, input),
        ([theirs], Ok(ours)) => {
            assert!(same_address(ours, theirs), "{input}: {ours}, not {theirs}");
        }
        (_, ours) => panic!("{input:?}: {theirs:?}, but here {ours:?}"),
    }
}

fn check_network(input: &str, theirs: &[&str]) {
    match (theirs, parse_cidr(input)) {
        (["E"], Err(IpError::Cidr { value })) => assert_eq!(value, input),
        ([address, network], Ok(ours)) => {
            assert!(same_address(ours.address, address), "{input}: {ours:?}, not {address}");
            let Some((first, length)) = network.split_once('/') else { panic!("{network:?}") };
            assert!(same_address(ours.network, first), "{input}: {ours:?}, not {network}");
            assert_eq!(ours.prefix_length.to_string(), length, "{input}");
        }
        (_, ours) => panic!("{input:?}: {theirs:?}, but here {ours:?}"),
    }
}

fn check_node(provider: &str, input: &str, theirs: &[&str]) {
    match (theirs, parse_node_addresses(input, provider == "external")) {
        (["E"], Err(_)) => {}
        ([addresses, ignored], Ok(ours)) => {
            let shown: Vec<String> = ours.addresses.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), *addresses, "{input:?}");
            assert_eq!(ours.ignored.join("|"), *ignored, "{input:?}");
        }
        (_, ours) => panic!("{input:?} with {provider}: {theirs:?}, but here {ours:?}"),
    }
}

#[test]
fn node_address_errors_name_the_broken_rule() {
    let value = |text: &str| text.to_owned();
    let list = "10.0.0.1,10.0.0.2";
    assert_eq!(parse_node_addresses(list, true), Err(IpError::NotAPair { value: value(list) }));
    let list = "10.0.0.1,fd00::1";
    assert_eq!(
        parse_node_addresses(list, false),
        Err(IpError::DualStackRefused { value: value(list) })
    );
    let list = "0.0.0.0,fd00::1";
    assert_eq!(
        parse_node_addresses(list, true),
        Err(IpError::UnspecifiedInPair { value: value(list) })
    );
}

#[test]
fn lists_are_strict() {
    assert_eq!(parse_ip_list(""), Ok(vec![]));
    assert_eq!(parse_ip_list("10.0.0.010,::1").map(|list| list.len()), Ok(2));
    assert_eq!(parse_ip_list("10.0.0.1, ::1"), Err(IpError::Address { value: " ::1".into() }));
    let networks = parse_cidr_list("10.1.2.3/8,fd00::1/64");
    let shown = networks.map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(shown, Ok(vec!["10.0.0.0/8".to_owned(), "fd00::/64".to_owned()]));
    assert_eq!(parse_cidr_list("10.0.0.0/8,"), Err(IpError::Cidr { value: String::new() }));
}

proptest! {
    #[test]
    fn reads_every_address_the_standard_library_writes(bits: u128, v4_bits: u32, zeros in 0_u32..128) {
        let v6 = Ipv6Addr::from_bits(bits & (u128::MAX << zeros));
        prop_assert_eq!(parse_ip(&v6.to_string()), Ok(IpAddr::V6(v6).to_canonical()));
        let v4 = IpAddr::V4(Ipv4Addr::from_bits(v4_bits));
        prop_assert_eq!(parse_ip(&v4.to_string()), Ok(v4));
    }

    #[test]
    fn accepts_all_that_the_standard_library_accepts(text in "[0-9a-f:.]{0,20}") {
        if let Ok(theirs) = text.parse::<IpAddr>() {
            prop_assert_eq!(parse_ip(&text), Ok(theirs.to_canonical()));
        }
    }

    #[test]
    fn no_text_panics_and_networks_round_trip(text in any::<String>(), near in "[0-9a-f:.]{0,24}(/[0-9]{0,3})?") {
        for text in [text, near] {
            let _ = (parse_ip(&text), parse_ip_list(&text), parse_node_addresses(&text, true));
            if let Ok(network) = parse_cidr(&text) {
                prop_assert_eq!(parse_cidr(&network.to_string()).map(|again| again.network), Ok(network.network));
            }
        }
    }
}
