//! A host for tests: a network namespace with a built-in network and pods, and namespaces for pods
//! and for neighbours of the host. All of it ends with the test. Needs root.

use std::fs::File;
use std::os::fd::AsFd as _;

use super::*;

/// Runs on a thread in a network namespace of its own, whose loopback is up. False: not root.
pub(super) fn with_test_machine(test: impl FnOnce() + Send) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("could-not-run: a network namespace needs root");
        return false;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            crate::network::trial::unshare_network().unwrap();
            loopback_up();
            test();
        });
        thread.join().unwrap();
    });
    true
}

fn loopback_up() {
    let mut routes = NetlinkSocket::routes().unwrap();
    let loopback = routes.link("lo").unwrap();
    routes.set_up(loopback.index).unwrap();
}

/// A network namespace that lives as long as its file.
pub(super) fn namespace() -> File {
    std::thread::spawn(|| {
        crate::network::trial::unshare_network().unwrap();
        File::open("/proc/thread-self/ns/net").unwrap()
    })
    .join()
    .unwrap()
}

/// Runs a closure in another namespace.
pub(super) fn within<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> T {
    netlink::in_namespace(namespace.as_fd(), || Ok(work())).unwrap()
}

/// A pod with a network; its loopback is up.
pub(super) fn add_pod(network: &BuiltIn, pod: &PodNetwork) -> (File, NetworkRecord) {
    let namespace = namespace();
    within(&namespace, loopback_up);
    let (link, addresses) = network.reserve(pod).unwrap();
    let record = NetworkRecord { link, addresses, ..NetworkRecord::default() };
    network.add(pod, &record, namespace.as_fd()).unwrap();
    (namespace, record)
}

/// A neighbour's namespace, connected by a veth pair with these addresses; each side is the other's
/// default route.
pub(super) fn add_neighbour(machine: &[&str], beyond: &[&str]) -> File {
    let parse = |text: &str| -> IpAddr { text.parse().unwrap() };
    let prefix = |address: IpAddr| if address.is_ipv4() { 24 } else { 64 };
    let namespace = namespace();
    let mut routes = NetlinkSocket::routes().unwrap();
    let uplink = VethPair {
        name: "uplink",
        alias: "a test",
        peer: "eth0",
        peer_netns: namespace.as_fd(),
        mtu: None,
    };
    routes.add_pair(uplink).unwrap();
    let join = |name: &str, own: &[&str], other: &[&str]| {
        let mut routes = NetlinkSocket::routes().unwrap();
        let link = routes.link(name).unwrap();
        routes.set_up(link.index).unwrap();
        for address in own {
            routes.add_address(link.index, parse(address), prefix(parse(address))).unwrap();
        }
        for address in other {
            routes.add_default_route(link.index, parse(address)).unwrap();
        }
    };
    within(&namespace, || join("eth0", beyond, machine));
    join("uplink", machine, &beyond[..machine.len()]);
    namespace
}
