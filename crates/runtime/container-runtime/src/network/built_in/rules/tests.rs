//! Which connections a host port accepts: as values, and on a host of the test's own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use cri_wire::v1;
use netlink::{IpTransport, NetlinkSocket};

use super::super::test_machine::{add_neighbour, add_pod, with_test_machine, within};
use super::*;
use crate::network::PodNetwork;
use crate::network::built_in::{BuiltIn, BuiltInSettings};

const RANGES: [&str; 2] = ["10.88.0.0/16", "fd00:88::/64"];

fn rules_of(transport: IpTransport, host_address: Option<&str>) -> Ruleset {
    let port = HostPort {
        transport,
        host_port: 443,
        container_port: 8443,
        host_address: host_address.map(|address| address.parse().unwrap()),
    };
    let addresses = vec!["10.88.0.2".parse().unwrap(), "fd00:88::2".parse().unwrap()];
    let member = NetworkMember { addresses, ports: vec![port], link: String::new() };
    let ranges = RANGES.map(|range| range.parse().unwrap());
    of("keelson0", &ranges, [member].iter())
}

fn to(address: &str, prefix: u8, equal: bool) -> RuleCondition {
    RuleCondition::DestinationNetwork { network: address.parse().unwrap(), prefix, equal }
}

#[test]
fn a_host_port_takes_connections_of_the_machines_addresses_only() {
    let not_loopback = to("127.0.0.1", 8, false);
    // The requested address; the additional conditions on the destination, by chain and family.
    type PortCase = (Option<&'static str>, Vec<Option<RuleCondition>>, Vec<Option<RuleCondition>>);
    let rows: [PortCase; 5] = [
        (None, vec![Some(not_loopback), None], vec![None, None]),
        (
            Some("198.51.100.9"),
            vec![Some(to("198.51.100.9", 32, true))],
            vec![Some(to("198.51.100.9", 32, true))],
        ),
        (
            Some("2001:db8::9"),
            vec![Some(to("2001:db8::9", 128, true))],
            vec![Some(to("2001:db8::9", 128, true))],
        ),
        (Some("127.0.0.1"), vec![], vec![Some(to("127.0.0.1", 32, true))]),
        (Some("::1"), vec![], vec![Some(to("::1", 128, true))]),
    ];
    for transport in [IpTransport::Tcp, IpTransport::Udp, IpTransport::Sctp] {
        for (asked, arriving, own) in &rows {
            let rules = rules_of(transport, *asked);
            for (chain, expected) in rules.chains[1..3].iter().zip([arriving, own]) {
                let what = format!("{transport:?} {asked:?} {}", chain.name);
                assert_eq!(chain.rules.len(), expected.len(), "{what}");
                for (rule, besides) in chain.rules.iter().zip(expected) {
                    assert!(rule.conditions.contains(&RuleCondition::LocalDestination), "{what}");
                    assert!(
                        rule.conditions.contains(&RuleCondition::Port { transport, port: 443 }),
                        "{what}"
                    );
                    let found: Vec<_> = rule
                        .conditions
                        .iter()
                        .filter(|one| matches!(one, RuleCondition::DestinationNetwork { .. }))
                        .collect();
                    assert_eq!(found, besides.iter().collect::<Vec<_>>(), "{what}");
                }
            }
        }
    }
}

#[test]
fn the_guard_drops_loopback_addresses_that_come_by_the_bridge() {
    let rules = rules_of(IpTransport::Tcp, None);
    let guard = &rules.chains[0];
    assert_eq!(
        (guard.hook, guard.priority, guard.translates),
        (NetfilterHook::Prerouting, -300, false)
    );
    let (network, prefix) = LOOPBACK;
    let loopback = [
        RuleCondition::DestinationNetwork { network, prefix, equal: true },
        RuleCondition::SourceNetwork { network, prefix, equal: true },
    ];
    for (rule, loopback) in guard.rules.iter().zip(loopback) {
        let arrived = RuleCondition::InputInterface { link: "keelson0".to_owned() };
        assert_eq!(
            (&rule.conditions, &rule.verdict),
            (&vec![arrived, loopback], &RuleVerdict::Drop)
        );
    }
    assert_eq!(guard.rules.len(), 2);
}

fn pod(id: &str, ports: &[(v1::Protocol, &str, i32)]) -> PodNetwork {
    let mapping = |(protocol, host_ip, host_port): &(v1::Protocol, &str, i32)| v1::PortMapping {
        protocol: (*protocol).into(),
        host_ip: (*host_ip).to_owned(),
        host_port: *host_port,
        container_port: 8080,
    };
    let port_mappings = ports.iter().map(mapping).collect();
    let config = v1::PodSandboxConfig { port_mappings, ..Default::default() };
    PodNetwork { sandbox: format!("{id:0<64}"), config }
}

/// Sends its name to every client.
fn serve(address: &str, name: &'static str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(name.as_bytes()));
        }
    });
}

/// The name of the server that answers at this address.
fn server_at(address: &str) -> String {
    let target: SocketAddr = address.parse().unwrap();
    match TcpStream::connect_timeout(&target, Duration::from_secs(2)) {
        Ok(mut stream) => {
            let mut name = String::new();
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            stream.read_to_string(&mut name).unwrap();
            name
        }
        Err(error) => error.to_string(),
    }
}

/// A pod that requests a port of a foreign address does not get traffic to it, neither from the
/// host nor from other pods. For the host's own addresses it does.
#[test]
fn a_host_port_does_not_capture_a_foreign_address() {
    with_test_machine(|| {
        let settings = BuiltInSettings {
            subnets: RANGES.map(|range| range.parse().unwrap()).to_vec(),
            ..BuiltInSettings::default()
        };
        let network = BuiltIn::new(settings).unwrap();
        let beyond = add_neighbour(
            &["203.0.113.1", "2001:db8:1::1"],
            &["203.0.113.2", "2001:db8:1::2", "198.51.100.9", "2001:db8:2::9"],
        );
        let ports = [
            (v1::Protocol::Tcp, "198.51.100.9", 443),
            (v1::Protocol::Tcp, "2001:db8:2::9", 443),
            (v1::Protocol::Udp, "198.51.100.9", 53),
            (v1::Protocol::Tcp, "203.0.113.1", 444),
            (v1::Protocol::Tcp, "::ffff:203.0.113.1", 447),
            (v1::Protocol::Tcp, "2001:db8:1::1", 444),
            (v1::Protocol::Tcp, "203.0.113.77", 445),
        ];
        let (greedy, _) = add_pod(&network, &pod("a", &ports));
        let (other, _) = add_pod(&network, &pod("b", &[]));
        let pods_socket = within(&greedy, || {
            serve("[::]:8080", "pod");
            UdpSocket::bind("0.0.0.0:8080").unwrap()
        });
        let beyonds_socket = within(&beyond, || {
            serve("[::]:443", "beyond");
            serve("[::]:445", "beyond");
            UdpSocket::bind("0.0.0.0:53").unwrap()
        });
        for (address, expected) in [
            ("198.51.100.9:443", "beyond"),
            ("[2001:db8:2::9]:443", "beyond"),
            ("203.0.113.1:444", "pod"),
            ("203.0.113.1:447", "pod"),
            ("[2001:db8:1::1]:444", "pod"),
        ] {
            assert_eq!(server_at(address), expected, "{address} from the machine");
            assert_eq!(within(&other, || server_at(address)), expected, "{address} from a pod");
        }
        within(&beyond, || {
            assert_eq!(server_at("203.0.113.1:444"), "pod", "from beyond");
            assert_eq!(server_at("[2001:db8:1::1]:444"), "pod", "from beyond");
        });
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"query", "198.51.100.9:53").unwrap();
        let wait = Duration::from_secs(5);
        beyonds_socket.set_read_timeout(Some(wait)).unwrap();
        assert_eq!(beyonds_socket.recv(&mut [0; 9]).expect("a datagram that came"), 5);
        pods_socket.set_nonblocking(true).unwrap();
        assert!(pods_socket.recv(&mut [0; 9]).is_err(), "a pod had the datagram");
        // An address may be added later.
        let mut routes = NetlinkSocket::routes().unwrap();
        let uplink = routes.link("uplink").unwrap();
        routes.add_address(uplink.index, "203.0.113.77".parse().unwrap(), 24).unwrap();
        assert_eq!(server_at("203.0.113.77:445"), "pod", "the machine has it now");
    });
}

/// Docker's unpublished-port class: neither a port of the host's loopback nor one of all its
/// addresses accepts what a neighbour sends to 127.0.0.1 over the wire.
#[test]
fn a_neighbour_does_not_reach_a_port_of_the_loopback() {
    with_test_machine(|| {
        let network = BuiltIn::new(BuiltInSettings::default()).unwrap();
        let beyond = add_neighbour(&["203.0.113.1"], &["203.0.113.2"]);
        let udp = v1::Protocol::Udp;
        let ports = [(udp, "127.0.0.1", 53), (udp, "", 54)];
        let (inside, _) = add_pod(&network, &pod("a", &ports));
        let socket = within(&inside, || UdpSocket::bind("0.0.0.0:8080").unwrap());
        let send = |text: &'static str, target: &'static str| {
            UdpSocket::bind("0.0.0.0:0").unwrap().send_to(text.as_bytes(), target).unwrap();
        };
        // Without a loopback of its own, 127.0.0.1 follows the default route.
        within(&beyond, || {
            send("wire", "127.0.0.1:53");
            send("wire", "127.0.0.1:54");
            send("port", "203.0.113.1:54");
        });
        send("own", "127.0.0.1:53");
        send("own", "127.0.0.1:54");
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut arrived: Vec<String> = (0..3)
            .map(|_| {
                let mut text = [0; 9];
                let count = socket.recv(&mut text).expect("a datagram");
                String::from_utf8_lossy(&text[..count]).into_owned()
            })
            .collect();
        arrived.sort();
        assert_eq!(arrived, ["own", "own", "port"]);
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 9]).is_err(), "more than that");
    });
}

/// A peer that keeps its source port reaches the pod that has the host port now.
#[test]
fn datagrams_to_a_host_port_reach_its_next_pod() {
    with_test_machine(|| {
        let network = BuiltIn::new(BuiltInSettings::default()).unwrap();
        let peer = add_neighbour(&["192.0.2.1"], &["192.0.2.2"]);
        let socket = within(&peer, || UdpSocket::bind("192.0.2.2:5000").unwrap());
        for id in ["a", "b"] {
            let pod = pod(id, &[(v1::Protocol::Udp, "", 53)]);
            let (namespace, record) = add_pod(&network, &pod);
            let server = within(&namespace, || UdpSocket::bind("0.0.0.0:8080").unwrap());
            server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            socket.send_to(id.as_bytes(), "192.0.2.1:53").unwrap();
            let mut received = [0; 8];
            let length = server.recv(&mut received).expect(id);
            assert_eq!(&received[..length], id.as_bytes());
            if id == "a" {
                // Between two pods the datagrams keep the connection alive.
                network.remove(&pod, &record).unwrap();
                socket.send_to(b"lost", "192.0.2.1:53").unwrap();
            }
        }
    });
}
