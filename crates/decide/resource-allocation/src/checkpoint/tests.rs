//! Checkpoints that the reference wrote, our own, and damaged ones.

use std::time::Duration;

use ports::plugins::{DeviceSetup, PluginDevice};

use super::*;
use crate::device_table::{AllocatedResource, PluginConnection};

/// Both are printed in public documents about the reference kubelet.
const EMPTY_OF_REFERENCE: &str = r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}"#;
const USED_OF_REFERENCE: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}"#;

fn table() -> DeviceTable {
    let mut table = DeviceTable::default();
    let generation = table.connected("example.com/a", PluginConnection::default());
    let device = |id: &str| PluginDevice { id: id.to_owned(), healthy: true, numa_nodes: vec![] };
    let generation = generation.expect("there is room");
    assert!(table.listed("example.com/a", generation, vec![device("1"), device("2")]));
    let allocated = AllocatedResource {
        by_numa_node: BTreeMap::from([(-1, vec!["1".to_owned()]), (0, vec!["2".to_owned()])]),
        encoded: vec![10, 0, 255],
        setup: DeviceSetup::default(),
    };
    table.insert("uid", "main", "example.com/a", allocated);
    table
}

#[test]
fn the_reference_s_checkpoints_are_read() {
    let empty = decode(EMPTY_OF_REFERENCE.as_bytes()).expect("it is whole");
    assert_eq!(empty.resources, ["nvidia.com/gpu"]);
    assert!(empty.entries.is_empty());
    let used = decode(USED_OF_REFERENCE.as_bytes()).expect("it is whole");
    let [entry] = used.entries.as_slice() else { panic!("{used:?}") };
    assert_eq!(entry.container, "check");
    assert_eq!(entry.by_numa_node, BTreeMap::from([(-1, vec!["tegra".to_owned()])]));
    assert_eq!(entry.encoded.len(), 33);
}

#[test]
fn what_is_written_is_read_again() {
    let bytes = table().checkpoint().expect("it can be written");
    let read = decode(&bytes).expect("it is whole");
    let entry = CheckpointEntry {
        uid: "uid".to_owned(),
        container: "main".to_owned(),
        resource: "example.com/a".to_owned(),
        by_numa_node: BTreeMap::from([(-1, vec!["1".to_owned()]), (0, vec!["2".to_owned()])]),
        encoded: vec![10, 0, 255],
    };
    assert_eq!(read, Checkpoint { entries: vec![entry], resources: vec!["example.com/a".into()] });
    let nothing = DeviceTable::default().checkpoint().expect("it can be written");
    let text = r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":"#;
    assert!(nothing.starts_with(text.as_bytes()));
    assert_eq!(decode(&nothing).expect("it is whole"), Checkpoint::default());
}

#[test]
fn damaged_checkpoints_are_distinguished() {
    let changed = USED_OF_REFERENCE.replace("\"tegra\"", "\"other\"");
    let cut = &USED_OF_REFERENCE[..200];
    let bad_answer = USED_OF_REFERENCE.replace("Ch8KFk5W", "????");
    let foreign = r#"{"policyName":"none","checksum":1353318690}"#;
    let rows = [
        (changed.as_str(), "its checksum is 3660592824, but"),
        (cut, "it is no checkpoint of devices"),
        (bad_answer.as_str(), "the answer of nvidia.com/gpu's plugin in it cannot be decoded"),
        (foreign, "it is no checkpoint of devices"),
        ("", "it is no checkpoint of devices"),
        ("{\"Data\":{},\"Checksum\":0}", "its checksum is 0, but"),
    ];
    for (text, expected) in rows {
        let error = decode(text.as_bytes()).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_recovered_table_knows_its_resources_and_gives_none() {
    let bytes = table().checkpoint().expect("it can be written");
    let read = decode(&bytes).expect("it is whole");
    let allocated = read.entries.iter().map(|entry| {
        let devices = AllocatedResource {
            by_numa_node: entry.by_numa_node.clone(),
            encoded: entry.encoded.clone(),
            setup: DeviceSetup::default(),
        };
        (&*entry.uid, &*entry.container, &*entry.resource, devices)
    });
    let recovered = DeviceTable::recover(allocated, read.resources.clone(), Duration::ZERO);
    assert!(recovered.has_pod("uid"));
    let counts = recovered.counts();
    assert_eq!(counts.capacity, BTreeMap::from([("example.com/a".to_owned(), 0)]));
    assert_eq!(counts.allocatable, counts.capacity);
    assert_eq!(recovered.next_expiry(), Some(Duration::from_secs(300)));
}
