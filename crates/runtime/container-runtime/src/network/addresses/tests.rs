//! Ranges, their ends, and wrapping around.

use super::*;

fn subnet(text: &str) -> Subnet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_range_has_a_gateway_and_contains_its_addresses() {
    let range = subnet("10.88.3.7/16");
    assert_eq!(range.to_string(), "10.88.0.0/16");
    assert_eq!(range.gateway(), ip("10.88.0.1"));
    assert!(range.contains(ip("10.88.255.255")) && !range.contains(ip("10.89.0.0")));
    assert!(!range.contains(ip("::1")));
    let range = subnet("fd00:88::/64");
    assert_eq!(range.gateway(), ip("fd00:88::1"));
    assert!(range.contains(ip("fd00:88::ffff")) && !range.contains(ip("fd00:89::1")));
}

#[test]
fn invalid_ranges_are_refused() {
    for text in ["", "10.88.0.0", "10.88.0.0/31", "10.88/16", "a/8", "fd00::/127", "1.2.3.4/x"] {
        assert!(text.parse::<Subnet>().is_err(), "{text:?}");
    }
}

#[test]
fn addresses_are_assigned_round_robin_and_taken_ones_are_skipped() {
    let range = subnet("10.0.0.0/29");
    let mut taken = BTreeSet::new();
    let mut last = None;
    let mut given = Vec::new();
    while let Some(address) = range.next_free(last, &taken) {
        taken.insert(address);
        given.push(address.to_string());
        last = Some(address);
    }
    assert_eq!(given, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
    taken.remove(&ip("10.0.0.3"));
    assert_eq!(range.next_free(last, &taken), Some(ip("10.0.0.3")));
    taken.remove(&ip("10.0.0.6"));
    assert_eq!(range.next_free(Some(ip("10.0.0.3")), &taken), Some(ip("10.0.0.6")));
    assert_eq!(range.next_free(Some(ip("192.168.0.1")), &taken), Some(ip("10.0.0.3")));
}

#[test]
fn the_largest_ranges_have_room() {
    for text in ["fd00::/8", "0.0.0.0/0", "::/0"] {
        assert!(subnet(text).next_free(None, &BTreeSet::new()).is_some(), "{text}");
    }
}
