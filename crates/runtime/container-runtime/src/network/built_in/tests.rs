//! Ports, their conflicts, and rules as values.

use cri_wire::v1;

use super::*;

fn pod(id: &str, mappings: &[(i32, i32, &str)]) -> PodNetwork {
    let port_mappings = mappings
        .iter()
        .map(|(host_port, container_port, host_ip)| v1::PortMapping {
            protocol: 0,
            container_port: *container_port,
            host_port: *host_port,
            host_ip: (*host_ip).to_owned(),
        })
        .collect();
    let config = v1::PodSandboxConfig { port_mappings, ..Default::default() };
    PodNetwork { sandbox: format!("{id:0<64}"), config }
}

#[test]
fn pods_get_addresses_in_turn_and_ports_once() {
    let network = BuiltIn::new(BuiltInSettings::default()).unwrap();
    let (link, addresses) = network.reserve(&pod("a", &[(8080, 80, "")])).unwrap();
    assert_eq!((link.as_str(), &addresses[..]), ("keela0000000000", &["10.88.0.2".to_owned()][..]));
    let (_, addresses) = network.reserve(&pod("b", &[(8080, 80, "10.0.0.9")])).unwrap_or_default();
    assert!(addresses.is_empty(), "the port is taken on every address");
    let (_, addresses) =
        network.reserve(&pod("c", &[(0, 80, ""), (8081, 80, "10.0.0.9")])).unwrap();
    assert_eq!(addresses, ["10.88.0.3"]);
    assert!(network.reserve(&pod("d", &[(8081, 1, "10.0.0.8")])).is_ok(), "another address");
}

#[test]
fn an_unused_plan_frees_its_addresses() {
    let settings = BuiltInSettings {
        subnets: vec!["10.0.0.0/30".parse().unwrap()],
        ..BuiltInSettings::default()
    };
    let network = BuiltIn::new(settings).unwrap();
    let first = pod("a", &[(8080, 80, "")]);
    network.reserve(&first).unwrap();
    assert!(network.reserve(&pod("b", &[(8080, 80, "")])).is_err());
    network.release(&first.sandbox);
    assert_eq!(network.reserve(&pod("b", &[(8080, 80, "")])).unwrap().1, ["10.0.0.2"]);
}

#[test]
fn wrong_ports_and_addresses_are_refused() {
    let network = BuiltIn::new(BuiltInSettings::default()).unwrap();
    for mappings in [[(70_000, 80, "")], [(80, 0, "")], [(80, 80, "here")]] {
        let failure = network.reserve(&pod("a", &mappings)).unwrap_err();
        assert_eq!(failure.code, tonic::Code::InvalidArgument, "{mappings:?}");
    }
}

#[test]
fn an_exhausted_range_is_an_error() {
    let settings = BuiltInSettings {
        subnets: vec!["10.0.0.0/30".parse().unwrap()],
        ..BuiltInSettings::default()
    };
    let network = BuiltIn::new(settings).unwrap();
    assert_eq!(network.reserve(&pod("a", &[])).unwrap().1, ["10.0.0.2"]);
    let failure = network.reserve(&pod("b", &[])).unwrap_err();
    assert_eq!(failure.code, tonic::Code::ResourceExhausted);
}

#[test]
fn rules_forward_only_to_addresses_of_the_same_version() {
    let subnets = ["10.88.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()];
    let ports = |host: &str| {
        vec![HostPort {
            transport: netlink::IpTransport::Udp,
            host_port: 53,
            container_port: 1053,
            host_address: host.parse().ok(),
        }]
    };
    let member = |host: &str| NetworkMember {
        addresses: vec!["10.88.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
        ports: ports(host),
        link: String::new(),
    };
    let forwards = |host: &str| {
        let rules = rules::of("keelson0", &subnets, [member(host)].iter());
        let names: Vec<_> = rules.chains.iter().map(|chain| chain.name.as_str()).collect();
        assert_eq!(names, ["guard", "arriving", "own", "leaving"]);
        assert_eq!(rules.chains[1].rules.len(), rules.chains[2].rules.len());
        rules.chains[1].rules.len()
    };
    assert_eq!(forwards(""), 2);
    assert_eq!(forwards("192.0.2.1"), 1);
    assert_eq!(forwards("2001:db8::1"), 1);
}

/// A host without nftables serves pods that need none; other pods get an error.
#[test]
fn without_nftables_only_pods_with_host_ports_fail() {
    let settings =
        BuiltInSettings { bridge: "keel-test-none".to_owned(), ..BuiltInSettings::default() };
    let mut network = BuiltIn::new(settings).unwrap();
    network.firewall = || {
        let operation = "opening a firewall socket".to_owned();
        Err(netlink::NetlinkError::Refused { operation, cause: rustix::io::Errno::PROTONOSUPPORT })
    };
    network.remove_leftovers().unwrap();
    let why = network.readiness().unwrap_err();
    assert!(why.starts_with("the built-in network needs nftables: "), "{why}");
    // A pod from a time with nftables can still be removed.
    let gone = pod("a", &[]);
    let record = NetworkRecord { link: "keel-test-gone".to_owned(), ..NetworkRecord::default() };
    network.adopt_members(&[(gone.clone(), record.clone())]);
    assert!(network.remove_leftovers().is_err(), "rules of a pod that is there cannot be written");
    network.remove(&gone, &record).unwrap();
}

#[test]
fn an_unused_pod_cidr_is_reported_with_the_range_in_use() {
    let both = ["10.88.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()];
    let settings = BuiltInSettings { subnets: both.to_vec(), ..BuiltInSettings::default() };
    let network = BuiltIn::new(settings).unwrap();
    for same in ["", "10.88.0.0/16,fd00::/64", " fd00::/64, 10.88.0.0/16"] {
        assert_eq!(network.range_mismatch(same), None, "{same:?}");
    }
    for other in ["10.99.0.0/24", "10.88.0.0/16", "10.88.0.0/17,fd00::/64", "nonsense"] {
        let words = network.range_mismatch(other).expect(other);
        assert!(words.contains(other) && words.contains("10.88.0.0/16, fd00::/64"), "{words}");
    }
}

/// The host's loopback leads to pods only while a pod has a port there, and never without the guard
/// chain: that is written before, and again with every pod, whatever other programs did to it.
#[test]
fn route_localnet_is_on_only_while_a_pod_has_a_loopback_port() {
    if !rustix::process::geteuid().is_root() {
        println!("could-not-run: a network namespace needs root");
        return;
    }
    // A thread with a network of its own.
    std::thread::spawn(|| {
        let namespace = |_| {
            crate::network::trial::unshare_network().unwrap();
            fs::File::open("/proc/thread-self/ns/net").unwrap()
        };
        let pods: Vec<fs::File> = (0..3).map(namespace).collect();
        crate::network::trial::unshare_network().unwrap();
        let network = BuiltIn::new(BuiltInSettings::default()).unwrap();
        let is_open = || {
            let path = "/proc/sys/net/ipv4/conf/keelson0/route_localnet";
            fs::read_to_string(path).unwrap().trim().to_owned()
        };
        let add = |pod: &PodNetwork, namespace: &fs::File| {
            let (link, addresses) = network.reserve(pod).unwrap();
            let record = NetworkRecord { link, addresses, ..NetworkRecord::default() };
            network.add(pod, &record, std::os::fd::AsFd::as_fd(namespace)).unwrap();
            record
        };
        add(&pod("a", &[]), &pods[0]);
        assert_eq!(is_open(), "0", "nobody has a host port");
        let elsewhere = pod("b", &[(8080, 80, "192.0.2.1")]);
        add(&elsewhere, &pods[1]);
        assert_eq!(is_open(), "0", "a host port of another address");
        let everywhere = pod("c", &[(8081, 80, "")]);
        let record = add(&everywhere, &pods[2]);
        assert_eq!(is_open(), "1");
        let has_table = || NetlinkSocket::firewall().unwrap().has_table(&network.table()).unwrap();
        NetlinkSocket::firewall().unwrap().remove_table(&network.table()).unwrap();
        assert!(!has_table());
        network.remove(&everywhere, &record).unwrap();
        assert_eq!(is_open(), "0", "the last such port is gone");
        assert!(has_table(), "the guard was not put back");
    })
    .join()
    .unwrap();
}

/// Two servers configured with the same bridge, in any way: what the other one created stays.
#[test]
fn a_second_root_on_a_bridge_touches_nothing_of_the_first() {
    use test_machine::{add_pod, with_test_machine};
    with_test_machine(|| {
        let of = |owner| BuiltIn::of(BuiltInSettings::default(), owner, None);
        let (first, second) = (of("one"), of("two"));
        let port = pod("a", &[(8080, 80, "")]);
        let (_namespace, record) = add_pod(&first, &port);
        let has = |name: &str| NetlinkSocket::routes().unwrap().find_link(name).unwrap().is_some();
        let has_all_rules = || {
            let has_table = NetlinkSocket::firewall().unwrap().has_table(&first.table()).unwrap();
            has("keelson0") && has(&record.link) && has_table
        };
        second.remove_leftovers().unwrap();
        assert!(has_all_rules(), "the start of a second server");
        let other = pod("b", &[]);
        let (link, addresses) = second.reserve(&other).unwrap();
        let planned = NetworkRecord { link, addresses, ..NetworkRecord::default() };
        let namespace = test_machine::namespace();
        let refused = second.add(&other, &planned, std::os::fd::AsFd::as_fd(&namespace));
        let refused = refused.unwrap_err().text;
        assert!(refused.contains("names.json has the id \"one\""), "{refused}");
        assert!(second.remove_leftovers().is_err(), "a pod of it is written down");
        second.remove(&other, &planned).unwrap();
        assert!(has_all_rules(), "the end of its last pod");
        first.remove(&port, &record).unwrap();
        assert!(!has("keelson0") && !has(&record.link));
    });
}

/// A bridge of an older version, or one whose creator was killed before it wrote the owner, is
/// adopted; a bridge of the administrator is used and stays.
#[test]
fn a_bridge_made_by_a_root_is_removed_with_its_last_pod() {
    use test_machine::{add_pod, with_test_machine};
    with_test_machine(|| {
        for (bridge, alias, leaves) in [
            ("keelson0", "keelson pods", true),
            ("keel-0123abcd", "", true),
            ("br0", "", false),
            ("keelson0", "of the office", false),
        ] {
            NetlinkSocket::routes().unwrap().add_bridge(bridge, alias).unwrap();
            let settings =
                BuiltInSettings { bridge: bridge.to_owned(), ..BuiltInSettings::default() };
            let network = BuiltIn::of(settings, "one", None);
            let only = pod("a", &[]);
            let (_namespace, record) = add_pod(&network, &only);
            network.remove(&only, &record).unwrap();
            let left = NetlinkSocket::routes().unwrap().find_link(bridge).unwrap();
            assert_eq!(left.is_none(), leaves, "{bridge} {alias:?}");
            NetlinkSocket::routes().unwrap().remove_link(bridge).unwrap();
        }
    });
}

/// Host ports belong to the whole host: two roots cannot both have one.
#[test]
fn a_host_port_of_another_root_is_refused_with_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let claims = machine_claims::Claims::new(dir.path());
    let of = |id: &str| {
        let root = std::path::PathBuf::from(format!("/{id}"));
        let resources =
            machine_claims::ClaimedResources { root, id: id.into(), ..Default::default() };
        let claim = claims.lock().unwrap().acquire(id, resources).unwrap();
        BuiltIn::of(BuiltInSettings::default(), id, Some(Arc::new(claim)))
    };
    let (first, second) = (of("one"), of("two"));
    let (taken, free) = (pod("a", &[(8080, 80, "")]), pod("b", &[(8081, 80, "")]));
    first.reserve(&taken).unwrap();
    let refused = second.reserve(&pod("c", &[(8080, 80, "")])).unwrap_err().text;
    assert!(refused.starts_with("the host port 8080 belongs to the root /one ("), "{refused}");
    // A refused reservation has taken nothing.
    assert_eq!(second.reserve(&free).unwrap().1, ["10.88.0.3"]);
    first.release(&taken.sandbox);
    second.reserve(&pod("c", &[(8080, 80, "")])).unwrap();
}
