//! Claims of several roots, with files in a temporary directory and conflicts as values.

use super::*;

fn resources(root: &str) -> ClaimedResources {
    ClaimedResources {
        root: root.into(),
        id: format!("id of {root}"),
        pid: 7,
        ..ClaimedResources::default()
    }
}

fn range(text: &str) -> AddressRange {
    let (network, prefix) = text.split_once('/').unwrap();
    AddressRange { network: network.parse().unwrap(), prefix: prefix.parse().unwrap() }
}

fn port(number: u16, address: &str) -> ClaimedPort {
    ClaimedPort { transport: ClaimedPortProtocol::Tcp, number, address: address.parse().ok() }
}

type Change = fn(&mut ClaimedResources);

/// The first root's names, the second's, and the conflict.
type Row = (Change, Change, Option<&'static str>);

fn check(rows: &[Row]) {
    for (number, (of_first, of_second, refused)) in rows.iter().enumerate() {
        let (mut one, mut two) = (resources("/one"), resources("/two"));
        of_first(&mut one);
        of_second(&mut two);
        let found = conflict::first_conflict(&two, &[Claim { resources: one, is_alive: true }]);
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
fn network_names_belong_to_one_root() {
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
            |two| {
                two.ports =
                    vec![ClaimedPort { transport: ClaimedPortProtocol::Udp, ..port(80, "") }];
            },
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
fn a_claim_is_in_force_while_its_process_or_pods_exist() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(&dir.path().join("claims"));
    let state = dir.path().join("state");
    let one =
        ClaimedResources { bridge: "b0".into(), state: Some(state.clone()), ..resources("/one") };
    let two = ClaimedResources { bridge: "b0".into(), ..resources("/two") };
    let take =
        |key: &str, wanted: &ClaimedResources| claims.lock().unwrap().acquire(key, wanted.clone());
    let refused = |key: &str, wanted: &ClaimedResources| take(key, wanted).unwrap_err().to_string();

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
fn a_killed_process_without_pods_holds_no_claim() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path());
    claims
        .write("killed", &ClaimedResources { bridge: "b0".into(), ..resources("/killed") })
        .unwrap();
    fs::write(dir.path().join("torn.json"), "{\"root").unwrap();
    let wanted = ClaimedResources { bridge: "b0".into(), ..resources("/two") };
    let _held = claims.lock().unwrap().acquire("two", wanted).unwrap();
    assert_eq!(claims.keys().unwrap(), ["torn", "two"]);
}

#[test]
fn host_ports_are_claimed_individually_and_released() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path());
    let acquire = |root: &str| claims.lock().unwrap().acquire(root, resources(&format!("/{root}")));
    let (one, two) = (acquire("one").unwrap(), acquire("two").unwrap());
    one.set_ports(vec![port(80, "")]).unwrap();
    let refused = two.set_ports(vec![port(81, ""), port(80, "")]).unwrap_err().to_string();
    assert!(refused.starts_with("the host port 80 belongs to the root /one (pid 7)"), "{refused}");
    two.set_ports(vec![port(81, "")]).unwrap();
    // The successor of a killed server has not set its pods' ports yet.
    claims
        .write("killed", &ClaimedResources { ports: vec![port(82, "")], ..resources("/killed") })
        .unwrap();
    let next = acquire("killed");
    assert!(two.set_ports(vec![port(81, ""), port(82, "")]).is_err());
    drop(next);
    assert!(one.set_ports(vec![port(80, ""), port(81, "")]).is_err());
    one.set_ports(Vec::new()).unwrap();
    two.set_ports(vec![port(81, ""), port(80, "")]).unwrap();
}
