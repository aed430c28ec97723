//! Which sysctls are written, and that a pod's router advertisements have no effect.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use netlink::NetlinkSocket;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};

use super::super::test_machine::{add_pod, with_test_machine, within};
use super::super::{BuiltIn, BuiltInSettings};
use super::*;
use crate::network::PodNetwork;
use crate::records::{NetworkKind, NetworkRecord};

fn sysctls(names: &[&str]) -> BTreeMap<String, String> {
    names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect()
}

#[test]
fn sysctls_of_the_pod_are_not_overwritten() {
    let written = |without: &[&str], has_ipv6: bool| -> Vec<String> {
        let off = if has_ipv6 { None } else { Some(OFF) };
        let all = LEARNED.into_iter().chain(off);
        all.filter(|name| !without.contains(name))
            .map(|name| format!("ipv6/conf/eth0/{name}"))
            .collect()
    };
    for (asked, has_ipv6, without) in [
        (&[][..], true, &[][..]),
        (&[], false, &[]),
        (&["net.ipv4.ip_forward"], false, &[]),
        (&["net.ipv6.conf.all.accept_ra"], true, &["accept_ra"]),
        (&["net/ipv6/conf/default/autoconf"], false, &["autoconf", OFF]),
        (&["net.ipv6.conf.eth0.disable_ipv6"], false, &[OFF]),
        (&["net.ipv6.conf.other.accept_ra"], true, &[]),
    ] {
        let names: Vec<String> =
            of_inside(&sysctls(asked), has_ipv6).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, written(without, has_ipv6), "{asked:?} {has_ipv6}");
    }
}

#[test]
fn a_bridge_has_ipv6_only_with_a_range() {
    for (has_ipv6, value) in [(true, "0"), (false, "1")] {
        let settings = of_bridge("br", has_ipv6);
        assert!(settings.contains(&("ipv6/conf/br/disable_ipv6".to_owned(), value)));
        for name in LEARNED {
            assert!(settings.contains(&(format!("ipv6/conf/br/{name}"), "0")), "{name}");
        }
        assert!(settings.contains(&("ipv4/conf/br/accept_redirects".to_owned(), "0")));
    }
    assert!(of_port("p").contains(&("ipv6/conf/p/disable_ipv6".to_owned(), "1")));
}

fn setting(name: &str, value: &str) {
    fs::write(Path::new("/proc/sys/net/ipv6/conf").join(name), value).unwrap();
}

/// "I am the router; 2001:db8:bad::/64 is here", three times. Call it in a pod's namespace.
fn advertise() {
    // A pod may configure its own network: here a link-local address that is usable at once.
    setting("eth0/accept_dad", "0");
    setting("eth0/disable_ipv6", "1");
    setting("eth0/disable_ipv6", "0");
    let link = NetlinkSocket::routes().unwrap().link(INSIDE).unwrap();
    let mut packet = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    packet.extend([3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0]);
    packet.extend("2001:db8:bad::".parse::<Ipv6Addr>().unwrap().octets());
    let raw = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)).unwrap();
    sockopt::set_ipv6_multicast_hops(&raw, 255).unwrap();
    let all_nodes = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, link.index);
    let begun = Instant::now();
    for _ in 0..3 {
        while let Err(error) = sendto(&raw, &packet, SendFlags::empty(), &all_nodes) {
            assert!(begun.elapsed() < Duration::from_secs(5), "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether this namespace has learned the route or an address before the timeout.
fn has_learned(wait: Duration) -> bool {
    let begun = Instant::now();
    loop {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
        // A default route with a gateway, and the prefix.
        let routed = read("ipv6_route").lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[1] == "00" && words[4] != "0".repeat(32)
        });
        if routed || read("if_inet6").contains("20010db80bad") {
            return true;
        }
        if begun.elapsed() > wait {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn router_advertisements_of_a_pod_change_no_route_and_no_address() {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        println!("could-not-run: the kernel has no IPv6");
        return;
    }
    let pod = |id: &str| PodNetwork { sandbox: format!("{id:0<64}"), config: Default::default() };
    for ranges in [&["10.88.0.0/16"][..], &["10.88.0.0/16", "fd00:88::/64"]] {
        with_test_machine(|| {
            let settings = BuiltInSettings {
                subnets: ranges.iter().map(|range| range.parse().unwrap()).collect(),
                ..BuiltInSettings::default()
            };
            let network = BuiltIn::new(settings).unwrap();
            let (first, record) = add_pod(&network, &pod("a"));
            let (second, _) = add_pod(&network, &pod("b"));
            within(&first, advertise);
            let short = Duration::from_millis(300);
            assert!(!has_learned(short), "the machine, with {ranges:?}");
            let learned = within(&second, || {
                // The pod's own default route was not learned.
                fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap()
            });
            assert!(!learned.contains("20010db80bad"), "another pod, with {ranges:?}: {learned}");
            // The control: with links as an older version left them, the same packets have an
            // effect.
            let bridge = "keelson0";
            setting(&format!("{bridge}/disable_ipv6"), "0");
            setting(&format!("{bridge}/accept_ra"), "2");
            setting(&format!("{bridge}/autoconf"), "1");
            within(&first, advertise);
            assert!(has_learned(Duration::from_secs(10)), "the control failed, with {ranges:?}");
            // A new server corrects such a bridge and links.
            setting(&format!("{}/disable_ipv6", record.link), "0");
            let adopting = BuiltIn::new(network.settings.clone()).unwrap();
            let record = NetworkRecord { kind: NetworkKind::BuiltIn.into(), ..record };
            adopting.adopt_members(&[(pod("a"), record.clone())]);
            adopting.remove_leftovers().unwrap();
            let read = |name: String| {
                fs::read_to_string(Path::new("/proc/sys/net/ipv6/conf").join(name)).unwrap()
            };
            assert_eq!(read(format!("{bridge}/accept_ra")), "0\n");
            assert_eq!(read(format!("{bridge}/autoconf")), "0\n");
            assert_eq!(read(format!("{}/disable_ipv6", record.link)), "1\n");
        });
    }
}
