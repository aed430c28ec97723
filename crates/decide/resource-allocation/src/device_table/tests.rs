//! Plugins that come and go.

use super::*;
use crate::choice::tests::devices;

const RESOURCE: &str = "example.com/a";

fn counts(table: &DeviceTable) -> String {
    let counts = table.counts();
    let of = |map: &BTreeMap<String, usize>| {
        map.get(RESOURCE).map_or("-".to_owned(), ToString::to_string)
    };
    let removed = if counts.removed.contains(RESOURCE) { " removed" } else { "" };
    format!("{}/{}{removed}", of(&counts.allocatable), of(&counts.capacity))
}

fn connect(table: &mut DeviceTable) -> u64 {
    table.connected(RESOURCE, PluginConnection::default()).expect("there is room")
}

#[test]
fn a_plugin_s_life_in_the_node_s_capacity() {
    let mut table = DeviceTable::default();
    let first = connect(&mut table);
    assert_eq!(counts(&table), "-/-");
    assert!(!table.is_device_resource(RESOURCE));
    assert!(table.listed(RESOURCE, first, devices("1 2 !3")));
    assert_eq!(counts(&table), "2/3");
    assert!(table.listed(RESOURCE, first, devices("1 2 3")));
    assert_eq!(counts(&table), "3/3");
    assert!(table.stopped(RESOURCE, first, Duration::from_secs(10)));
    assert_eq!(counts(&table), "0/3");
    assert_eq!(table.next_expiry(), Some(Duration::from_secs(310)));
    assert!(!table.expire(Duration::from_secs(309)));
    assert!(table.is_device_resource(RESOURCE));
    assert!(table.expire(Duration::from_secs(310)));
    assert_eq!(counts(&table), "-/- removed");
    assert!(!table.is_device_resource(RESOURCE));
    let second = connect(&mut table);
    assert!(table.listed(RESOURCE, second, devices("1")));
    assert_eq!(counts(&table), "1/1");
}

#[test]
fn a_plugin_whose_list_fails_at_once_is_reported_with_zero() {
    let mut table = DeviceTable::default();
    let generation = connect(&mut table);
    assert!(table.stopped(RESOURCE, generation, Duration::ZERO));
    assert_eq!(counts(&table), "0/0");
}

#[test]
fn reports_of_an_earlier_plugin_are_dropped() {
    let mut table = DeviceTable::default();
    let first = connect(&mut table);
    assert!(table.listed(RESOURCE, first, devices("1 2")));
    let second = connect(&mut table);
    // Until its first list the devices of the first one stay.
    assert_eq!(counts(&table), "2/2");
    assert!(!table.listed(RESOURCE, first, devices("")));
    assert!(!table.stopped(RESOURCE, first, Duration::ZERO));
    assert!(table.listed(RESOURCE, second, devices("3")));
    assert_eq!(counts(&table), "1/1");
    assert!(table.stopped(RESOURCE, second, Duration::ZERO));
    assert!(!table.listed(RESOURCE, second, devices("3 4")));
    assert_eq!(counts(&table), "0/1");
}

#[test]
fn names_without_end_stop_at_the_limit() {
    let mut table = DeviceTable::default();
    for at in 0..MAX_RESOURCES {
        let connected = table.connected(&format!("example.com/{at}"), PluginConnection::default());
        assert!(connected.is_ok());
    }
    assert!(table.connected("example.com/next", PluginConnection::default()).is_err());
    assert!(table.connected("example.com/7", PluginConnection::default()).is_ok());
}

#[test]
fn a_resource_that_a_pod_has_stays_a_device_plugin_s() {
    let mut table = DeviceTable::default();
    table.insert("uid", "c", RESOURCE, AllocatedResource::default());
    assert!(table.is_device_resource(RESOURCE));
    assert_eq!(table.device_resources(), BTreeSet::from([RESOURCE.to_owned()]));
    assert_eq!(table.pods_with(RESOURCE), ["uid"]);
    assert!(table.release("uid"));
    assert!(!table.is_device_resource(RESOURCE));
}
