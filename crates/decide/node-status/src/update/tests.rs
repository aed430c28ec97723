//! Updates: what counts as a change, images, versions, and events of the node itself.

use super::*;
use crate::object::{MachineResources, RuntimeHandler};

const NOW: ApiTime = ApiTime::from_nanos(5_000_000_000);
const LATER: ApiTime = ApiTime::from_nanos(9_000_000_000);

type UpdateCase = fn(&mut NodeStatusInputs);

fn settings() -> NodeSettings {
    NodeSettings {
        node_name: "n1".to_owned(),
        hostname: "n1".to_owned(),
        architecture: "amd64".to_owned(),
        kubelet_version: "v1.36.3".to_owned(),
        max_pods: 110,
        max_images: 2,
        port: 10_250,
        ..NodeSettings::default()
    }
}

fn facts() -> NodeStatusInputs {
    let mut facts = NodeStatusInputs {
        machine: Some(MachineResources {
            cpus: 2,
            memory: 1 << 30,
            boot_id: "b-1".to_owned(),
            ..MachineResources::default()
        }),
        runtime_name: "containerd".to_owned(),
        runtime_version: Some("v2.2.2".to_owned()),
        images: Some(Vec::new()),
        ..NodeStatusInputs::default()
    };
    facts.addresses.default_v4 = pod_model::parse_ip("10.0.0.5").ok();
    facts
}

/// A node whose status is as these facts make it.
fn settled(facts: &NodeStatusInputs) -> NodeObject {
    let mut memory = UpdateState::default();
    update(&settings(), facts, &NodeObject::default(), &mut memory, NOW).node
}

fn reasons(update: &NodeUpdate) -> Vec<&str> {
    update.events.iter().map(|event| event.reason).collect()
}

#[test]
fn heartbeats_alone_are_no_change() {
    let node = settled(&facts());
    let again = update(&settings(), &facts(), &node, &mut UpdateState::default(), LATER);
    assert!(!again.changed);
    assert_eq!(again.events, []);
    assert_eq!(again.errors, [] as [String; 0]);
    assert_eq!(again.node.status.conditions[0].last_heartbeat_time, Some(LATER));
    let mut turned = node.clone();
    turned.status.conditions.reverse();
    assert!(!update(&settings(), &facts(), &turned, &mut UpdateState::default(), LATER).changed);
}

#[test]
fn each_fact_that_differs_is_a_change() {
    let node = settled(&facts());
    let changes: [(&str, UpdateCase); 8] = [
        ("memory", |facts| facts.machine.as_mut().expect("a machine").memory = 2 << 30),
        ("runtime version", |facts| facts.runtime_version = None),
        ("kernel", |facts| facts.kernel_version = "6.18".to_owned()),
        ("pressure", |facts| facts.pressure.disk = true),
        ("error", |facts| facts.errors.push("no network".to_owned())),
        ("image", |facts| {
            facts.images = Some(vec![ImageSummary { size_bytes: 1, ..ImageSummary::default() }]);
        }),
        ("handler", |facts| facts.runtime_handlers.push(RuntimeHandler::default())),
        ("volume", |facts| facts.volumes_in_use = Some(vec!["v".to_owned()])),
    ];
    for (name, change) in changes {
        let mut facts = facts();
        change(&mut facts);
        let found = update(&settings(), &facts, &node, &mut UpdateState::default(), LATER);
        assert!(found.changed, "{name}");
    }
    let mut mislabelled = node;
    mislabelled.metadata.labels.insert(OS_LABEL.to_owned(), "plan9".to_owned());
    let found = update(&settings(), &facts(), &mislabelled, &mut UpdateState::default(), LATER);
    assert!(found.changed);
    assert_eq!(found.node.metadata.labels[OS_LABEL], "linux");
}

#[test]
fn the_largest_images_are_listed_with_at_most_five_names() {
    let image = |id: &str, size_bytes, names: usize| ImageSummary {
        id: id.to_owned(),
        size_bytes,
        digests: vec![format!("{id}@sha256:1")],
        tags: (0..names).map(|at| format!("{id}:{at}")).collect(),
    };
    let images = [image("small", 1, 1), image("b", 7, 9), image("a", 7, 1)];
    // (limit, the first names of what is listed)
    for (most, listed) in [
        (2, vec!["a@sha256:1", "b@sha256:1"]),
        (-1, vec!["a@sha256:1", "b@sha256:1", "small@sha256:1"]),
        (0, vec![]),
    ] {
        let found = image_list(&images, most);
        let first: Vec<&str> = found.iter().map(|image| image.names[0].as_str()).collect();
        assert_eq!(first, listed, "{most}");
    }
    assert_eq!(image_list(&images, -1)[1].names.len(), MAX_NAMES_PER_IMAGE);
}

#[test]
fn unreadable_inputs_are_errors_and_the_rest_is_updated() {
    let unreadable = NodeStatusInputs { images: None, addresses: Default::default(), ..facts() };
    let mut memory = UpdateState::default();
    let found = update(&settings(), &unreadable, &NodeObject::default(), &mut memory, NOW);
    assert_eq!(found.errors.len(), 2, "{:?}", found.errors);
    assert_eq!(found.node.status.node_info.container_runtime_version, "containerd://2.2.2");
    let silent = NodeStatusInputs { runtime_version: None, ..facts() };
    let found = update(&settings(), &silent, &NodeObject::default(), &mut memory, NOW);
    assert_eq!(found.node.status.node_info.container_runtime_version, "containerd://Unknown");
}

#[test]
fn a_reboot_and_a_cordon_are_reported_once_each() {
    let mut node = settled(&facts());
    let mut memory = UpdateState::default();
    let mut rebooted = facts();
    rebooted.machine.as_mut().expect("a machine").boot_id = "b-2".to_owned();
    let first = update(&settings(), &rebooted, &node, &mut memory, LATER);
    assert_eq!(reasons(&first), ["Rebooted"]);
    assert!(first.events[0].warning);
    assert_eq!(first.events[0].message, "Node n1 has been rebooted, boot id: b-2");
    // The patch may have failed: the object still has the old id, and there is no second event.
    assert_eq!(reasons(&update(&settings(), &rebooted, &node, &mut memory, LATER)), [""; 0]);
    node.spec.unschedulable = true;
    let cordoned = update(&settings(), &facts(), &node, &mut memory, LATER);
    assert_eq!(reasons(&cordoned), ["NodeNotSchedulable"]);
    assert_eq!(reasons(&update(&settings(), &facts(), &node, &mut memory, LATER)), [""; 0]);
    node.spec.unschedulable = false;
    let uncordoned = update(&settings(), &facts(), &node, &mut memory, LATER);
    assert_eq!(reasons(&uncordoned), ["NodeSchedulable"]);
}
