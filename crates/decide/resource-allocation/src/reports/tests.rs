//! Health and the pod resources API.

use ports::plugins::{DeviceAllocation, DevicePluginOptions};

use super::*;
use crate::choice::tests::{devices, pod, table};
use crate::pod_requests::ContainerRequest;

const RESOURCE: &str = "example.com/a";

fn give(table: &mut DeviceTable, pod: &Pod, container: &str, ids: &[&str]) {
    let request = ContainerRequest {
        container: container.to_owned(),
        resource: RESOURCE.to_owned(),
        count: ids.len(),
    };
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    table.record(pod, &request, &ids, DeviceAllocation::default());
}

#[test]
fn health_is_the_plugin_s_last_word() {
    let mut table = table("1 2", DevicePluginOptions::default());
    let pod = pod(&[("main", "c", &[(RESOURCE, 2)])]);
    give(&mut table, &pod, "c", &["1", "2"]);
    let health = |table: &DeviceTable| -> Vec<String> {
        let reports = table.health_of("uid").remove("c").unwrap_or_default();
        let devices = reports.iter().flat_map(|report| &report.devices);
        devices.map(|device| format!("{}:{}", device.id, device.healthy)).collect()
    };
    assert_eq!(health(&table), ["1:true", "2:true"]);
    let connection = table.plugin(RESOURCE).expect("it is connected");
    let generation = table.connected(RESOURCE, connection).expect("there is room");
    table.listed(RESOURCE, generation, devices("!1"));
    assert_eq!(health(&table), ["1:false", "2:true"]);
    assert!(table.health_of("other").is_empty());
}

#[test]
fn pods_are_reported_with_sidecars_and_numa_nodes() {
    let mut table = table("1@0 2@1 !3 4", DevicePluginOptions::default());
    let limits: &[(&str, i64)] = &[(RESOURCE, 1)];
    let pod = pod(&[("init", "i", limits), ("sidecar", "s", limits), ("main", "c", limits)]);
    give(&mut table, &pod, "i", &["1"]);
    give(&mut table, &pod, "s", &["1"]);
    give(&mut table, &pod, "c", &["2", "4"]);
    let text = |devices: &[ReportedDevices]| -> String {
        let devices = devices.iter().map(|it| format!("{}{:?}", it.ids.join("+"), it.numa_nodes));
        devices.collect::<Vec<_>>().join(" ")
    };
    let reported = table.reported_pod(&pod);
    let containers = reported.containers.iter();
    let containers =
        containers.map(|it| format!("{} {} {}", it.name, it.sidecar, text(&it.devices)));
    assert_eq!(containers.collect::<Vec<_>>(), ["s true 1[0]", "c false 2[1] 4[]"]);
    assert_eq!(text(&table.reported_allocatable()), "1[0] 2[1] 4[]");
}
