//! Actions, initialization and addresses, one row per case.

use super::*;

const NOW: ControllerTime = ControllerTime::from_secs(5);

fn shutdown_taint() -> Taint {
    Taint::new(TaintKey::CloudShutdown, TaintEffect::NoSchedule, Some(NOW.stamp()))
}

fn uninitialized() -> Vec<Taint> {
    vec![Taint::new(TaintKey::CloudUninitialized, TaintEffect::NoSchedule, None)]
}

#[test]
fn an_instance_status_decides_the_cloud_action() {
    let add = CloudAction::Taint(TaintPatch { add: vec![shutdown_taint()], remove: vec![] });
    let remove = CloudAction::Taint(TaintPatch {
        add: vec![],
        remove: vec![(TaintKey::CloudShutdown, TaintEffect::NoSchedule)],
    });
    let tainted = vec![shutdown_taint()];
    let rows = [
        (Some(ConditionState::True), vec![], InstanceStatus::Gone, CloudAction::Keep),
        (Some(ConditionState::True), tainted.clone(), InstanceStatus::ShutDown, remove),
        (Some(ConditionState::False), vec![], InstanceStatus::Gone, CloudAction::Delete),
        (Some(ConditionState::Unknown), tainted.clone(), InstanceStatus::Gone, CloudAction::Delete),
        (None, vec![], InstanceStatus::Gone, CloudAction::Delete),
        (Some(ConditionState::Unknown), vec![], InstanceStatus::NoAnswer, CloudAction::Keep),
        (Some(ConditionState::Unknown), vec![], InstanceStatus::ShutDown, add),
        (
            Some(ConditionState::Unknown),
            tainted.clone(),
            InstanceStatus::ShutDown,
            CloudAction::Keep,
        ),
        (Some(ConditionState::Unknown), tainted, InstanceStatus::Running, CloudAction::Keep),
        (Some(ConditionState::Unknown), vec![], InstanceStatus::Exists, CloudAction::Keep),
    ];
    for (ready, taints, instance, expected) in rows {
        assert_eq!(cloud_action(ready, &taints, instance, NOW), expected, "{ready:?} {instance:?}");
    }
}

fn address(kind: AddressKind, text: &str) -> NodeAddress {
    NodeAddress { kind, address: text.to_owned() }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn instance() -> InstanceFacts {
    InstanceFacts {
        provider_id: "cloud://1".into(),
        instance_type: "large".into(),
        zone: "z".into(),
        region: String::new(),
        addresses: vec![
            address(AddressKind::InternalIp, "10.0.0.1"),
            address(AddressKind::InternalIp, "10.0.0.2"),
            address(AddressKind::ExternalIp, "1.2.3.4"),
        ],
        labels: map(&[
            ("example.com/rack", "7"),
            ("example.com/kept", "cloud"),
            ("topology.kubernetes.io/rack", "7"),
            ("k8s.io/x", "y"),
            ("notkubernetes.io/x", "y"),
        ]),
    }
}

#[test]
fn a_node_is_described_once() {
    let node = CloudNode { labels: map(&[("example.com/kept", "own")]), ..CloudNode::default() };
    let got = describe(&node, &uninitialized(), &instance()).expect("usable").expect("needed");
    assert_eq!(got.provider_id.as_deref(), Some("cloud://1"));
    assert_eq!(
        got.labels,
        map(&[
            ("beta.kubernetes.io/instance-type", "large"),
            ("node.kubernetes.io/instance-type", "large"),
            ("failure-domain.beta.kubernetes.io/zone", "z"),
            ("topology.kubernetes.io/zone", "z"),
            ("example.com/rack", "7"),
            ("notkubernetes.io/x", "y"),
        ])
    );
    assert_eq!(got.refused_labels, ["example.com/kept", "k8s.io/x", "topology.kubernetes.io/rack"]);
    assert_eq!(got.patch.remove, [(TaintKey::CloudUninitialized, TaintEffect::NoSchedule)]);
    assert_eq!(describe(&node, &[], &instance()), Ok(None), "described already");
}

#[test]
fn descriptions_that_are_refused() {
    let nameless = InstanceFacts { provider_id: String::new(), ..instance() };
    let node = CloudNode::default();
    assert_eq!(
        describe(&node, &uninitialized(), &nameless),
        Err(CloudDescriptionError::NoProviderId)
    );
    let named = CloudNode { provider_id: "mine".into(), ..CloudNode::default() };
    let got = describe(&named, &uninitialized(), &nameless).expect("usable").expect("needed");
    assert_eq!(got.provider_id, None, "an id is never changed");
    let wanting =
        |text: &str| CloudNode { wanted_addresses: Some(text.into()), ..CloudNode::default() };
    let refused = |text: &str| {
        describe(&wanting(text), &uninitialized(), &instance()).unwrap_err().to_string()
    };
    assert_eq!(refused("nonsense"), "the node's own address \"nonsense\" is no IP address");
    assert_eq!(
        refused("10.0.0.9"),
        "the node's own address 10.0.0.9 is not among the cloud's addresses"
    );
}

#[test]
fn addresses_follow_the_cloud() {
    use AddressKind::{ExternalIp, HostName, InternalIp};
    let host = address(HostName, "a");
    let with = |addresses: Vec<NodeAddress>, wanted: Option<&str>| CloudNode {
        addresses,
        wanted_addresses: wanted.map(str::to_owned),
        ..CloudNode::default()
    };
    let all = [
        address(InternalIp, "10.0.0.1"),
        address(InternalIp, "10.0.0.2"),
        address(ExternalIp, "1.2.3.4"),
        host.clone(),
    ];
    let rows = [
        ("host name kept", with(vec![host.clone()], None), Some(all.to_vec())),
        ("nothing to change", with(all.to_vec(), None), None),
        ("another order is no change", with(all.iter().rev().cloned().collect(), None), None),
        (
            "own address first and alone",
            with(vec![host.clone()], Some("10.0.0.2")),
            Some(vec![all[1].clone(), all[2].clone(), host.clone()]),
        ),
        (
            "two own ones",
            with(vec![], Some("1.2.3.4, 10.0.0.1")),
            Some(vec![all[2].clone(), all[0].clone()]),
        ),
    ];
    for (name, node, expected) in rows {
        assert_eq!(addresses(&node, &[], &instance()), Ok(expected), "{name}");
    }
    let node = with(vec![host], None);
    assert_eq!(
        addresses(&node, &uninitialized(), &instance()),
        Ok(None),
        "not before it is described"
    );
    let mute = InstanceFacts { addresses: vec![], ..instance() };
    assert_eq!(addresses(&node, &[], &mute), Ok(None), "a cloud that names none takes none away");
    let named = InstanceFacts { addresses: vec![address(HostName, "b")], ..instance() };
    assert_eq!(addresses(&node, &[], &named), Ok(Some(vec![address(HostName, "b")])));
}
