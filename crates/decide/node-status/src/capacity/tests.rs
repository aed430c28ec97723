//! Capacity and allocatable from the machine, the reservation and devices.

use std::collections::BTreeMap;

use super::*;
use crate::object::ResourceMap;

fn quantities(of: &[(&str, &str)]) -> ResourceMap {
    of.iter()
        .map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).expect("a quantity")))
        .collect()
}

fn texts(of: &ResourceMap) -> BTreeMap<&str, String> {
    of.iter().map(|(name, amount)| (name.as_str(), amount.to_string())).collect()
}

fn expected<'a>(of: &[(&'a str, &str)]) -> BTreeMap<&'a str, String> {
    of.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
}

fn facts() -> NodeStatusInputs {
    NodeStatusInputs {
        machine: Some(MachineResources { cpus: 4, memory: 8 << 30, ..MachineResources::default() }),
        ephemeral_storage: Some(100 << 20),
        ..NodeStatusInputs::default()
    }
}

fn filled(settings: &NodeSettings, facts: &NodeStatusInputs) -> FullNodeStatus {
    let mut status = FullNodeStatus::default();
    fill(&mut status, settings, facts);
    status
}

#[test]
fn allocatable_is_capacity_without_the_reservation_and_huge_pages() {
    let settings = NodeSettings { max_pods: 110, ..NodeSettings::default() };
    let mut facts = facts();
    facts.reservation =
        quantities(&[("cpu", "500m"), ("memory", "1Gi"), ("ephemeral-storage", "1Gi")]);
    facts.machine.as_mut().expect("a machine").huge_pages =
        BTreeMap::from([("hugepages-2Mi".to_owned(), 1 << 30)]);
    let status = filled(&settings, &facts);
    assert_eq!(
        texts(&status.capacity),
        expected(&[
            ("cpu", "4"),
            ("memory", "8Gi"),
            ("pods", "110"),
            ("ephemeral-storage", "100Mi"),
            ("hugepages-2Mi", "1Gi"),
        ])
    );
    assert_eq!(
        texts(&status.allocatable),
        expected(&[
            ("cpu", "3500m"),
            ("memory", "6Gi"),
            ("pods", "110"),
            ("ephemeral-storage", "0"),
            ("hugepages-2Mi", "1Gi"),
        ])
    );
}

#[test]
fn pods_per_core_lowers_the_number_of_pods_and_never_raises_it() {
    for (max_pods, per_core, pods) in [(110, 0, "110"), (110, 10, "40"), (30, 10, "30")] {
        let settings =
            NodeSettings { max_pods, pods_per_core: per_core, ..NodeSettings::default() };
        let status = filled(&settings, &facts());
        assert_eq!(status.capacity["pods"].to_string(), pods);
    }
}

#[test]
fn devices_are_added_a_removed_one_is_zero_and_resources_of_others_stay() {
    let settings = NodeSettings { max_pods: 1, ..NodeSettings::default() };
    let mut facts = facts();
    facts.devices = DeviceResources {
        capacity: quantities(&[("vendor.com/gpu", "4")]),
        allocatable: quantities(&[("vendor.com/gpu", "3")]),
        removed: vec!["vendor.com/nic".to_owned()],
    };
    let mut status = FullNodeStatus {
        capacity: quantities(&[("vendor.com/nic", "2"), ("cluster.example/dongle", "5")]),
        allocatable: quantities(&[("cluster.example/gone", "5"), ("vendor.com/nic", "2")]),
        ..FullNodeStatus::default()
    };
    fill(&mut status, &settings, &facts);
    let capacity = texts(&status.capacity);
    assert_eq!(capacity["vendor.com/gpu"], "4");
    assert_eq!(capacity["vendor.com/nic"], "0");
    assert_eq!(capacity["cluster.example/dongle"], "5");
    let allocatable = texts(&status.allocatable);
    assert_eq!(allocatable["vendor.com/gpu"], "3");
    assert_eq!(allocatable["vendor.com/nic"], "0");
    assert_eq!(allocatable["cluster.example/dongle"], "5");
    assert!(!allocatable.contains_key("cluster.example/gone"));
}

#[test]
fn a_machine_that_cannot_be_read_has_nothing_but_its_number_of_pods() {
    let settings = NodeSettings { max_pods: 110, pods_per_core: 3, ..NodeSettings::default() };
    let status = filled(&settings, &NodeStatusInputs { machine: None, ..facts() });
    assert_eq!(
        texts(&status.capacity),
        expected(&[("cpu", "0"), ("memory", "0"), ("pods", "110")])
    );
}
