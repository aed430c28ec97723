//! The initial node, reconciliation of an existing one, and which machine may use a name.

use std::collections::BTreeMap;

use pod_model::QuantityFormat;

use super::*;
use crate::object::FullNodeStatus;

const NOW: ApiTime = ApiTime::from_nanos(100_000_000_000);

type RegistrationCase = fn(&mut NodeObject);

fn map(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn settings() -> NodeSettings {
    NodeSettings {
        node_name: "n1".to_owned(),
        hostname: "host-1".to_owned(),
        architecture: "amd64".to_owned(),
        labels: map(&[("disk", "ssd"), ("topology.kubernetes.io/zone", "z1")]),
        controller_attaches_volumes: true,
        ..NodeSettings::default()
    }
}

fn initial(settings: &NodeSettings) -> NodeObject {
    initial_node(settings, &NodeStatusInputs::default(), NOW).0
}

#[test]
fn a_node_registers_with_default_labels_and_those_of_the_flag_on_top() {
    let node = initial(&NodeSettings {
        labels: map(&[("kubernetes.io/hostname", "other"), ("disk", "ssd")]),
        ..settings()
    });
    assert_eq!(
        node.metadata.labels,
        map(&[
            ("beta.kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", "linux"),
            ("disk", "ssd"),
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/hostname", "other"),
            ("kubernetes.io/os", "linux"),
        ])
    );
    assert_eq!(node.metadata.annotations, map(&[(ATTACH_ANNOTATION, "true")]));
    let (_, events, errors) = initial_node(&settings(), &NodeStatusInputs::default(), NOW);
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(errors.len(), 2, "addresses and images: {errors:?}");
}

#[test]
fn taints_come_from_the_flag_the_cloud_and_being_unschedulable() {
    let by_flag =
        NodeTaint { key: "k".to_owned(), effect: "NoExecute".to_owned(), ..NodeTaint::default() };
    // (by flag, unschedulable, external cloud, keys)
    let rows: &[(bool, bool, bool, &[&str])] = &[
        (false, false, false, &[]),
        (true, false, true, &["k", UNINITIALIZED_TAINT]),
        (false, true, false, &[UNSCHEDULABLE_TAINT]),
        (true, true, true, &["k", UNSCHEDULABLE_TAINT, UNINITIALIZED_TAINT]),
    ];
    for (flag, unschedulable, cloud, keys) in rows {
        let node = initial(&NodeSettings {
            taints: flag.then(|| by_flag.clone()).into_iter().collect(),
            unschedulable: *unschedulable,
            external_cloud_provider: *cloud,
            ..settings()
        });
        let found: Vec<&str> = node.spec.taints.iter().map(|taint| taint.key.as_str()).collect();
        assert_eq!(found, *keys);
        let body = create_body(&node);
        assert_eq!(body["spec"].get("unschedulable").is_some(), *unschedulable);
        assert_eq!(body["spec"].get("taints").is_some(), !keys.is_empty());
    }
}

#[test]
fn the_body_of_a_create_has_the_whole_status_and_nothing_of_the_servers() {
    let body = create_body(&initial(&settings()));
    assert_eq!(body["metadata"]["name"], "n1");
    assert_eq!(body["metadata"].get("uid"), None);
    assert_eq!(body["status"]["conditions"][3]["type"], "Ready");
    assert_eq!(body["status"]["nodeInfo"]["operatingSystem"], "linux");
    assert_eq!(body["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 0);
    let read: NodeObject = serde_json::from_value(body).expect("a node");
    assert_eq!(read.metadata.labels["disk"], "ssd");
}

#[test]
fn only_fields_owned_by_the_agent_are_reconciled_on_an_existing_node() {
    let fresh = initial(&settings());
    let mut existing = fresh.clone();
    existing.metadata.labels.insert("team".to_owned(), "blue".to_owned());
    existing.metadata.labels.remove("disk");
    existing.spec.taints.push(taint("by-hand", ""));
    assert_eq!(reconciled(&fresh, &existing, false), None, "labels of the flag are set once only");
    let changes: [(&str, RegistrationCase); 4] = [
        ("host name", |node| {
            node.metadata.labels.insert(HOSTNAME_LABEL.to_owned(), "old".to_owned());
        }),
        ("zone", |node| {
            node.metadata.labels.remove("topology.kubernetes.io/zone");
        }),
        ("attach", |node| node.metadata.annotations.clear()),
        ("capacity", |node| {
            node.status = FullNodeStatus { capacity: BTreeMap::new(), ..node.status.clone() }
        }),
    ];
    for (name, change) in changes {
        let mut wrong = existing.clone();
        change(&mut wrong);
        assert_eq!(reconciled(&fresh, &wrong, false).as_ref(), Some(&existing), "{name}");
    }
    let without = initial(&NodeSettings { controller_attaches_volumes: false, ..settings() });
    let node = reconciled(&without, &existing, false).expect("a change");
    assert_eq!(node.metadata.annotations, BTreeMap::new());
    let empty = NodeSettings { labels: map(&[("topology.kubernetes.io/zone", "")]), ..settings() };
    let node = reconciled(&initial(&empty), &existing, false).expect("a change");
    assert!(!node.metadata.labels.contains_key("topology.kubernetes.io/zone"));
}

#[test]
fn huge_pages_follow_the_machine_and_devices_are_zeroed_on_a_new_one() {
    let mut fresh = initial(&settings());
    let mut existing = fresh.clone();
    let amount = |units| Quantity::from_units(units, QuantityFormat::DecimalSi);
    for status in [&mut fresh.status.capacity, &mut fresh.status.allocatable] {
        status.insert("hugepages-2Mi".to_owned(), amount(4));
    }
    for status in [&mut existing.status.capacity, &mut existing.status.allocatable] {
        status.insert("hugepages-1Gi".to_owned(), amount(1));
        status.insert("vendor.com/gpu".to_owned(), amount(2));
    }
    for (resets, gpu) in [(false, 2), (true, 0)] {
        let node = reconciled(&fresh, &existing, resets).expect("a change");
        for status in [&node.status.capacity, &node.status.allocatable] {
            assert_eq!(status.get("hugepages-2Mi"), Some(&amount(4)));
            assert_eq!(status.get("hugepages-1Gi"), None);
            assert_eq!(status.get("vendor.com/gpu"), Some(&amount(gpu)));
        }
    }
}

#[test]
fn only_another_machine_that_is_alive_keeps_its_name() {
    let mut existing = NodeObject::default();
    existing.metadata.name = "n1".to_owned();
    existing.status.node_info.machine_id = "m-1".to_owned();
    existing.status.node_info.system_uuid = "S-1".to_owned();
    let lease = |seconds_ago: i64| {
        let renewed = ApiTime::from_nanos(NOW.nanos() - seconds_ago * 1_000_000_000);
        Some(ObservedLease { renewed, duration_seconds: 40 })
    };
    // (machine id, system uuid, lease, held)
    for (machine_id, system_uuid, lease, held) in [
        ("m-2", "s-2", lease(5), true),
        ("m-2", "s-2", lease(40), false),
        ("m-2", "s-2", None, false),
        ("m-1", "s-1", lease(5), false),
        ("m-2", "s-1", lease(5), false),
        ("m-1", "s-2", lease(5), false),
        ("", "s-2", lease(5), false),
    ] {
        let machine = MachineResources {
            machine_id: machine_id.to_owned(),
            system_uuid: system_uuid.to_owned(),
            ..MachineResources::default()
        };
        let found = name_conflict(&existing, &machine, lease, NOW);
        assert_eq!(found.is_some(), held, "{machine_id} {system_uuid} {lease:?}");
        assert!(found.is_none_or(|text| text.contains("n1") && text.contains("5 s ago")));
    }
}
