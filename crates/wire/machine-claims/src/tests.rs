//! Claims of several roots, with files in a temporary directory and conflicts as values.

use super::*;

fn holdings(root: &str) -> Holdings {
    Holdings { root: root.into(), id: format!("id of {root}"), pid: 7, ..Holdings::default() }
}

fn range(text: &str) -> Range {
    let (network, prefix) = text.split_once('/').unwrap();
    Range { network: network.parse().unwrap(), prefix: prefix.parse().unwrap() }
}

fn port(number: u16, address: &str) -> Port {
    Port { transport: Transport::Tcp, number, address: address.parse().ok() }
}

type Change = fn(&mut Holdings);

/// The first root's names, the second's, and the conflict.
type Row = (Change, Change, Option<&'static str>);

fn check(rows: &[Row]) {
    for (number, (of_first, of_second, refused)) in rows.iter().enumerate() {
        let (mut one, mut two) = (holdings("/one"), holdings("/two"));
        of_first(&mut one);
        of_second(&mut two);
        let found = conflict::first(&two, &[Claim { holdings: one, is_alive: true }]);
        let found = found.map(|conflict| conflict.to_string());
        match (&found, refused) {
            (None, None) => {}
            (Some(found), Some(refused)) => {
                assert!(found.starts_with(refused), "row {number}: {found}");
                assert!(found.contains("belongs to the root /one (pid 7); "), "{found}");
            }
            _ => panic!("row {number}: {found:?}, expected {refused:?}"),
        }
    }
}

#[test]
fn names_of_the_network_belong_to_one_root() {
    check(&[
        (|_| {}, |_| {}, None),
        (|one| one.bridge = "b0".into(), |two| two.bridge = "b0".into(), Some("the bridge b0")),
        (|one| one.bridge = "b0".into(), |two| two.bridge = "b1".into(), None),
        (
            |one| one.bridge = "b0".into(),
            |two| (two.bridge, two.network_namespace) = ("b0".into(), "another".into()),
            None,
        ),
        (
            |one| one.subnets = vec![range("10.88.0.0/16")],
            |two| two.subnets = vec![range("fd00::/64"), range("10.88.7.0/24")],
            Some("the subnet 10.88.7.0/24"),
        ),
        (
            |one| one.subnets = vec![range("10.88.7.0/24")],
            |two| two.subnets = vec![range("10.0.0.0/8")],
            Some("the subnet 10.0.0.0/8"),
        ),
        (
            |one| one.subnets = vec![range("10.88.0.0/16"), range("fd00::/64")],
            |two| two.subnets = vec![range("10.89.0.0/16"), range("fd00:0:0:1::/64")],
            None,
        ),
        (
            |one| one.ports = vec![port(80, "")],
            |two| two.ports = vec![port(81, ""), port(80, "192.0.2.1")],
            Some("the host port 80"),
        ),
        (
            |one| one.ports = vec![port(80, "192.0.2.1")],
            |two| two.ports = vec![port(80, "192.0.2.2")],
            None,
        ),
        (
            |one| one.ports = vec![port(80, "")],
            |two| two.ports = vec![Port { transport: Transport::Udp, ..port(80, "") }],
            None,
        ),
        (
            |one| one.ports = vec![port(80, "")],
            |two| (two.ports, two.network_namespace) = (vec![port(80, "")], "another".into()),
            None,
        ),
    ]);
}

#[test]
fn cgroups_directories_and_ids_belong_to_one_root() {
    check(&[
        (
            |one| one.cgroups = vec!["/kubepods".into()],
            |two| two.cgroups = vec!["kubepods/".into()],
            Some("the cgroup kubepods/"),
        ),
        (
            |one| one.cgroups = vec!["/a/kubepods".into()],
            |two| two.cgroups = vec!["/a".into()],
            Some("the cgroup /a"),
        ),
        (
            |one| one.cgroups = vec!["/keelson/kubepods".into()],
            |two| two.cgroups = vec!["/keelson/kubepods2".into(), "/keelson/1/kubepods".into()],
            None,
        ),
        (
            |one| one.state = Some("/run/s".into()),
            |two| two.state = Some("/run/s".into()),
            Some("the state directory /run/s"),
        ),
        (|one| one.state = Some("/run/s".into()), |two| two.state = Some("/run/t".into()), None),
        (
            |one| one.directories = vec!["/logs".into()],
            |two| two.directories = vec!["/logs/of/two".into()],
            Some("the directory /logs/of/two"),
        ),
        (
            |one| one.directories = vec!["/logs".into()],
            |two| two.directories = vec!["/logs2".into()],
            None,
        ),
        (|_| {}, |two| two.id = "id of /one".into(), Some("the id id of /one")),
    ]);
}

#[test]
fn a_claim_lasts_as_long_as_its_process_or_its_pods() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(&dir.path().join("claims"));
    let state = dir.path().join("state");
    let one = Holdings { bridge: "b0".into(), state: Some(state.clone()), ..holdings("/one") };
    let two = Holdings { bridge: "b0".into(), ..holdings("/two") };
    let take = |key: &str, wanted: &Holdings| claims.turn().unwrap().hold(key, wanted.clone());
    let refused = |key: &str, wanted: &Holdings| take(key, wanted).unwrap_err().to_string();

    let held = take("one", &one).unwrap();
    assert!(refused("two", &two).contains("(pid 7)"));
    assert!(refused("one", &one).starts_with("the root /one belongs to"));
    fs::create_dir_all(state.join("pods/p")).unwrap();
    drop(held);
    assert!(refused("two", &two).contains("its process has ended, its pods run"));
    let held = take("one", &one).unwrap();
    fs::remove_dir(state.join("pods/p")).unwrap();
    drop(held);
    assert_eq!(claims.keys().unwrap(), [] as [&str; 0]);
    drop(take("two", &two).unwrap());
}

/// A killed process removes nothing; the next one that reads claims does.
#[test]
fn what_a_killed_process_claimed_is_free_when_it_has_no_pods() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path());
    claims.write("killed", &Holdings { bridge: "b0".into(), ..holdings("/killed") }).unwrap();
    fs::write(dir.path().join("torn.json"), "{\"root").unwrap();
    let wanted = Holdings { bridge: "b0".into(), ..holdings("/two") };
    let _held = claims.turn().unwrap().hold("two", wanted).unwrap();
    assert_eq!(claims.keys().unwrap(), ["torn", "two"]);
}

#[test]
fn host_ports_are_claimed_one_by_one_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path());
    let hold = |root: &str| claims.turn().unwrap().hold(root, holdings(&format!("/{root}")));
    let (one, two) = (hold("one").unwrap(), hold("two").unwrap());
    one.set_ports(vec![port(80, "")]).unwrap();
    let refused = two.set_ports(vec![port(81, ""), port(80, "")]).unwrap_err().to_string();
    assert!(refused.starts_with("the host port 80 belongs to the root /one (pid 7)"), "{refused}");
    two.set_ports(vec![port(81, "")]).unwrap();
    // The successor of a killed server has not set its pods' ports yet.
    claims.write("killed", &Holdings { ports: vec![port(82, "")], ..holdings("/killed") }).unwrap();
    let next = hold("killed");
    assert!(two.set_ports(vec![port(81, ""), port(82, "")]).is_err());
    drop(next);
    assert!(one.set_ports(vec![port(80, ""), port(81, "")]).is_err());
    one.set_ports(Vec::new()).unwrap();
    two.set_ports(vec![port(81, ""), port(80, "")]).unwrap();
}
