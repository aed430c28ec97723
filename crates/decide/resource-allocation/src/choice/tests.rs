//! Choices as tables; and a property: no device is ever given twice.

use std::time::Duration;

use pod_model::{Quantity, QuantityFormat};
use ports::plugins::{DevicePluginOptions, PluginDevice};
use proptest::prelude::*;

use super::*;
use crate::device_table::PluginConnection;
use crate::pod_requests::container_requests;

const RESOURCE: &str = "example.com/a";

/// The kind of a container, its name and its limits.
type ContainerRow<'a> = (&'a str, &'a str, &'a [(&'a str, i64)]);

/// Each container: `init`, `sidecar` or `main`, its name and its limits.
pub(crate) fn pod(list: &[ContainerRow<'_>]) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = "uid".into();
    for (kind, name, limits) in list {
        let mut container =
            pod_model::pod::Container { name: (*name).into(), ..Default::default() };
        for (resource, amount) in *limits {
            let amount = Quantity::from_units(*amount, QuantityFormat::DecimalSi);
            container.resources.limits.insert(resource, amount);
        }
        if *kind == "sidecar" {
            container.restart_policy =
                Some(pod_model::pod::container::ContainerRestartPolicy::Always);
        }
        let containers =
            if *kind == "main" { &mut pod.spec.containers } else { &mut pod.spec.init_containers };
        containers.push(container);
    }
    pod
}

/// Such as `1 2 !3@0`: device 3 is unhealthy and on NUMA node 0.
pub(crate) fn devices(text: &str) -> Vec<PluginDevice> {
    let device = |text: &str| {
        let (name, node) = text.split_once('@').unwrap_or((text, ""));
        PluginDevice {
            id: name.trim_start_matches('!').to_owned(),
            healthy: !name.starts_with('!'),
            numa_nodes: node.parse().into_iter().collect(),
        }
    };
    text.split_whitespace().map(device).collect()
}

pub(crate) fn table(text: &str, options: DevicePluginOptions) -> DeviceTable {
    let mut table = DeviceTable::default();
    let connection = PluginConnection { endpoint: "/plugin".to_owned(), options };
    let generation = table.connected(RESOURCE, connection).expect("there is room");
    assert!(table.listed(RESOURCE, generation, devices(text)));
    table
}

/// Allocates as the shell does; the devices of each container, or the error.
fn allocate(table: &mut DeviceTable, pod: &Pod, preferred: &[&str]) -> Vec<String> {
    let mut results = Vec::new();
    for request in container_requests(pod, None, |name| table.is_device_resource(name)) {
        let preferred: Vec<String> = preferred.iter().map(ToString::to_string).collect();
        let mut asked = DeviceRequest { pod, request: &request, preferred: None };
        let mut choice = table.choose(&asked);
        if let Ok(DeviceChoice::AskPreferred { request, .. }) = &choice {
            assert!(request.must_include.iter().all(|id| request.available.contains(id)));
            asked.preferred = Some(&preferred);
            choice = table.choose(&asked);
        }
        match choice {
            Ok(DeviceChoice::Allocate { devices, .. }) => {
                results.push(format!("{}={}", request.container, devices.join("+")));
                table.record(pod, &request, &devices, DeviceAllocation::default());
            }
            Ok(other) => results.push(format!("{other:?}")),
            Err(error) => results.push(error.to_string()),
        }
    }
    results
}

#[test]
fn containers_of_a_pod() {
    let two: &[(&str, i64)] = &[(RESOURCE, 2)];
    let one: &[(&str, i64)] = &[(RESOURCE, 1)];
    let none: &[(&str, i64)] = &[(RESOURCE, 0)];
    type Row<'a> = (&'a str, &'a [ContainerRow<'a>], &'a [&'a str]);
    let rows: &[Row<'_>] = &[
        ("1 2 3", &[("main", "c", two)], &["c=1+2"]),
        ("!1 2 3", &[("main", "c", two)], &["c=2+3"]),
        ("1 2", &[("main", "c", none)], &["Nothing"]),
        // What an init container had is used again, once.
        (
            "1 2",
            &[("init", "i", two), ("main", "c", one), ("main", "d", one)],
            &["i=1+2", "c=1", "d=2"],
        ),
        (
            "1 2 3",
            &[("init", "i", one), ("init", "j", two), ("main", "c", two)],
            &["i=1", "j=1+2", "c=1+2"],
        ),
        // A sidecar keeps its devices.
        ("1 2", &[("sidecar", "s", one), ("main", "c", one)], &["s=1", "c=2"]),
        (
            "1 2",
            &[("init", "i", one), ("sidecar", "s", one), ("main", "c", one)],
            &["i=1", "s=1", "c=2"],
        ),
        (
            "1 2",
            &[("sidecar", "s", two), ("main", "c", one)],
            &[
                "s=1+2",
                "requested number of devices unavailable for example.com/a. Requested: 1, Available: 0",
            ],
        ),
        (
            "1 !2",
            &[("main", "c", two)],
            &[
                "requested number of devices unavailable for example.com/a. Requested: 2, Available: 1",
            ],
        ),
        (
            "!1 !2",
            &[("main", "c", one)],
            &["no healthy devices present; cannot allocate unhealthy devices example.com/a"],
        ),
    ];
    for (listed, containers, expected) in rows {
        let mut table = table(listed, DevicePluginOptions::default());
        assert_eq!(allocate(&mut table, &pod(containers), &[]), *expected, "{listed}");
    }
}

#[test]
fn preferred_devices_come_first_where_they_are_free() {
    let options = DevicePluginOptions { preferred_allocation: true, ..Default::default() };
    let rows: &[(&[&str], &str)] = &[
        (&["3", "4"], "c=3+4"),
        (&["4"], "c=1+4"),
        (&[], "c=1+2"),
        (&["5", "nothing", "3"], "c=1+3"),
        (&["1", "2", "3", "4"], "c=1+2"),
    ];
    for (preferred, expected) in rows {
        let mut table = table("1 2 3 4 !5", options);
        let pod = pod(&[("main", "c", &[(RESOURCE, 2)])]);
        assert_eq!(allocate(&mut table, &pod, preferred), [*expected], "{preferred:?}");
    }
}

#[test]
fn what_a_container_has_it_keeps() {
    let one = pod(&[("main", "c", &[(RESOURCE, 1)])]);
    let mut table = table("1 2", DevicePluginOptions::default());
    assert_eq!(allocate(&mut table, &one, &[]), ["c=1"]);
    assert_eq!(allocate(&mut table, &one, &[]), ["Nothing"]);
    let changed = pod(&[("main", "c", &[(RESOURCE, 2)])]);
    let text =
        "pod \"uid\" container \"c\" changed request for resource \"example.com/a\" from 1 to 2";
    assert_eq!(allocate(&mut table, &changed, &[]), [text]);
    let connection = table.plugin(RESOURCE).expect("it is connected");
    let generation = table.connected(RESOURCE, connection).expect("there is room");
    assert!(table.listed(RESOURCE, generation, devices("!1 2")));
    let text = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices \
                example.com/a";
    assert_eq!(allocate(&mut table, &one, &[]), [text]);
    assert!(table.stopped(RESOURCE, generation, Duration::ZERO));
    let text = "no healthy devices present; cannot allocate unhealthy devices example.com/a";
    assert_eq!(allocate(&mut table, &one, &[]), [text]);
    assert!(table.expire(Duration::from_secs(300)));
    assert_eq!(
        allocate(&mut table, &one, &[]),
        ["cannot allocate unregistered device example.com/a"]
    );
}

#[test]
fn a_reservation_ends_with_the_answer_or_with_the_pod() {
    let pod = pod(&[("main", "c", &[(RESOURCE, 1)])]);
    let mut table = table("1", DevicePluginOptions::default());
    let request =
        ContainerRequest { container: "c".to_owned(), resource: RESOURCE.to_owned(), count: 1 };
    let asked = DeviceRequest { pod: &pod, request: &request, preferred: None };
    let one = DeviceChoice::Allocate { endpoint: "/plugin".to_owned(), devices: vec!["1".into()] };
    let too_few = AllocationError::TooFew { resource: RESOURCE.into(), requested: 1, available: 0 };
    assert_eq!(table.choose(&asked), Ok(one.clone()));
    assert_eq!(table.choose(&asked), Err(too_few.clone()));
    table.cancel(RESOURCE, &["1".to_owned()]);
    assert_eq!(table.choose(&asked), Ok(one.clone()));
    assert!(!table.release("uid"));
    assert_eq!(table.choose(&asked), Ok(one));
    table.record(&pod, &request, &["1".to_owned()], DeviceAllocation::default());
    assert!(table.has_devices("uid", "c", RESOURCE));
    assert!(!table.retain(|uid| uid == "uid"));
    assert!(table.retain(|uid| uid == "other"));
    assert!(!table.has_pod("uid"));
}

#[test]
fn devices_are_recorded_by_numa_node() {
    let mut table = table("1@0 2@1 3", DevicePluginOptions::default());
    let pod = pod(&[("main", "c", &[(RESOURCE, 3)])]);
    allocate(&mut table, &pod, &[]);
    let devices = table.allocated("uid", "c", RESOURCE).expect("it has devices");
    let node = |node: i64, id: &str| (node, vec![id.to_owned()]);
    assert_eq!(devices.by_numa_node, BTreeMap::from([node(-1, "3"), node(0, "1"), node(1, "2")]));
}

proptest! {
    #[test]
    fn no_device_is_given_twice(steps in prop::collection::vec((0_usize..4, 0_i64..4, any::<bool>()), 1..40)) {
        let mut table = table("1 2 3 4 5 6", DevicePluginOptions::default());
        for (pod_number, count, ends) in steps {
            let mut pod = pod(&[("init", "i", &[(RESOURCE, count)]), ("main", "c", &[(RESOURCE, count)])]);
            pod.metadata.uid = format!("pod-{pod_number}").into();
            if ends {
                table.release(&pod.metadata.uid);
            } else {
                allocate(&mut table, &pod, &[]);
            }
            let mut seen = BTreeSet::new();
            for containers in table.pods.values() {
                let devices = containers.values().flat_map(|it| it.values());
                let of_pod: BTreeSet<&str> = devices.flat_map(AllocatedResource::ids).collect();
                for id in of_pod {
                    prop_assert!(seen.insert(id), "{id} twice");
                }
            }
        }
    }
}
