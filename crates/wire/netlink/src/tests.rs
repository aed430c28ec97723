//! Netlink requests to this machine's kernel, in network namespaces that the test creates. Needs
//! root.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

/// A network namespace that is unpinned on drop.
struct PinnedNamespace(PathBuf);

impl PinnedNamespace {
    fn create(name: &str) -> (Self, std::os::fd::OwnedFd) {
        let path = std::env::temp_dir().join(format!("netlink-{}-{name}", std::process::id()));
        let namespace = pin_new_namespace(&path).unwrap();
        (Self(path), namespace)
    }
}

impl Drop for PinnedNamespace {
    fn drop(&mut self) {
        let _ = unpin_namespace(&self.0);
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("could not run: creating network namespaces needs root");
    }
    root
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 99, 0, last).into()
}

#[test]
fn a_pod_is_reachable_on_its_bridge_and_through_a_host_port() {
    if !is_root() {
        return;
    }
    let (_host_namespace, host) = PinnedNamespace::create("host");
    let (_pod_namespace, pod) = PinnedNamespace::create("pod");
    in_namespace(host.as_fd(), || {
        let mut routes = NetlinkSocket::routes()?;
        let loopback = routes.link("lo")?;
        routes.set_up(loopback.index)?;
        routes.add_bridge("keelson0", "for a test")?;
        let bridge = routes.link("keelson0")?;
        assert_eq!((bridge.kind, &*bridge.alias), (Some(LinkKind::Bridge), "for a test"));
        routes.set_up(bridge.index)?;
        routes.add_address(bridge.index, address(1), 24)?;
        routes.add_address(bridge.index, address(1), 24)?;
        routes.add_pair(VethPair {
            name: "kn1",
            alias: "pod 1",
            peer: "eth0",
            peer_netns: pod.as_fd(),
            mtu: Some(1400),
        })?;
        let port = routes.link("kn1")?;
        assert_eq!((port.mtu, port.kind.clone()), (1400, Some(LinkKind::Pair)));
        routes.join_bridge(port.index, bridge.index)?;
        routes.set_up(port.index)?;
        assert!(routes.find_link("nowhere")?.is_none());
        assert_eq!(routes.link("kn1")?.master, Some(bridge.index));
        Ok(())
    })
    .unwrap();
    in_namespace(pod.as_fd(), || {
        let mut routes = NetlinkSocket::routes()?;
        let loopback = routes.link("lo")?;
        routes.set_up(loopback.index)?;
        let eth0 = routes.link("eth0")?;
        routes.set_up(eth0.index)?;
        routes.add_address(eth0.index, address(2), 24)?;
        routes.add_default_route(eth0.index, address(1))?;
        assert!(routes.addresses()?.contains(&(eth0.index, address(2), 24)));
        let destinations = routes.route_destinations()?;
        assert!(destinations.contains(&(eth0.index, address(0), 24)), "{destinations:?}");
        assert!(destinations.iter().all(|(_, _, prefix)| *prefix > 0), "{destinations:?}");
        Ok(())
    })
    .unwrap();
    let listener =
        in_namespace(pod.as_fd(), || Ok(TcpListener::bind("0.0.0.0:80").unwrap())).unwrap();
    in_namespace(host.as_fd(), || {
        let mut firewall = NetlinkSocket::firewall()?;
        assert!(!firewall.has_table("keelson-test")?);
        firewall.replace_table("keelson-test", &ruleset(8080))?;
        firewall.replace_table("keelson-test", &ruleset(8081))?;
        assert!(firewall.has_table("keelson-test")?);
        let timeout = Duration::from_secs(2);
        for (target, is_reachable) in
            [("10.99.0.2:80", true), ("10.99.0.1:8081", true), ("10.99.0.1:8080", false)]
        {
            let outcome = TcpStream::connect_timeout(&target.parse().unwrap(), timeout);
            assert_eq!(outcome.is_ok(), is_reachable, "{target}: {outcome:?}");
        }
        firewall.remove_table("keelson-test")?;
        firewall.remove_table("keelson-test")?;
        assert!(!firewall.has_table("keelson-test")?);
        let mut routes = NetlinkSocket::routes()?;
        routes.remove_link("kn1")?;
        routes.remove_link("kn1")?;
        assert!(routes.links()?.iter().all(|link| link.name != "kn1"));
        Ok(())
    })
    .unwrap();
    drop(listener);
}

/// Every kind of chain, condition and verdict that the built-in pod network uses.
fn ruleset(port: u16) -> Ruleset {
    let forward = FirewallRule {
        conditions: vec![
            RuleCondition::Family(IpFamily::V4),
            RuleCondition::LocalDestination,
            RuleCondition::Port { transport: IpTransport::Tcp, port },
        ],
        verdict: RuleVerdict::DestinationNat { address: address(2), port: 80 },
    };
    let chain = |name: &str, hook, rules| FirewallChain {
        name: name.to_owned(),
        hook,
        priority: -100,
        translates: true,
        rules,
    };
    let from_pod_network =
        RuleCondition::SourceNetwork { network: address(0), prefix: 24, equal: true };
    let link = || "keelson0".to_owned();
    let to_other_network =
        RuleCondition::DestinationNetwork { network: address(0), prefix: 24, equal: false };
    let to_other_link = RuleCondition::OutputInterface { link: link(), equal: false };
    let to_same_link = RuleCondition::OutputInterface { link: link(), equal: true };
    let to_loopback = RuleCondition::DestinationNetwork {
        network: Ipv4Addr::LOCALHOST.into(),
        prefix: 8,
        equal: true,
    };
    let masquerade = |conditions| FirewallRule { conditions, verdict: RuleVerdict::Masquerade };
    Ruleset {
        chains: vec![
            FirewallChain {
                name: "guard".to_owned(),
                hook: NetfilterHook::Prerouting,
                priority: -300,
                translates: false,
                rules: vec![FirewallRule {
                    conditions: vec![RuleCondition::InputInterface { link: link() }, to_loopback],
                    verdict: RuleVerdict::Drop,
                }],
            },
            chain("in", NetfilterHook::Prerouting, vec![forward.clone()]),
            chain("own", NetfilterHook::Output, vec![forward]),
            FirewallChain {
                priority: 100,
                ..chain(
                    "out",
                    NetfilterHook::Postrouting,
                    vec![
                        masquerade(vec![from_pod_network.clone(), to_other_network, to_other_link]),
                        masquerade(vec![
                            from_pod_network,
                            to_same_link,
                            RuleCondition::DestinationNatted,
                        ]),
                    ],
                )
            },
        ],
    }
}

#[test]
fn invalid_link_names_are_rejected_without_a_syscall() {
    let mut routes = NetlinkSocket::routes().unwrap();
    for name in ["", "a-name-that-is-too-long", "a/b", "a b", ".."] {
        assert!(matches!(routes.find_link(name), Err(NetlinkError::Invalid { .. })), "{name:?}");
    }
}
