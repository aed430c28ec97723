//! Answers of several plugins for one container.

use ports::plugins::DevicePluginOptions;
use ports::runtime_objects::{Device, Mount};

use super::*;
use crate::choice::tests::table;

fn answer(value: &str) -> AllocatedResource {
    let mount = |path: &str| Mount {
        container_path: path.to_owned(),
        host_path: value.to_owned(),
        ..Mount::default()
    };
    let device = |path: &str| Device {
        container_path: path.to_owned(),
        host_path: value.to_owned(),
        ..Device::default()
    };
    let map = |own: &str| {
        let entries = [("shared", value), (own, value)];
        entries.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect()
    };
    AllocatedResource {
        by_numa_node: BTreeMap::from([(-1, vec![format!("id-{value}")])]),
        encoded: Vec::new(),
        setup: DeviceSetup {
            env: map(value),
            annotations: map(value),
            mounts: vec![mount("/shared"), mount(&format!("/{value}"))],
            devices: vec![device("/dev/shared"), device(&format!("/dev/{value}"))],
            cdi_devices: vec!["v.com/c=shared".to_owned(), format!("v.com/c={value}")],
        },
    }
}

#[test]
fn the_first_of_several_settings_is_used() {
    let mut table = DeviceTable::default();
    table.insert("uid", "c", "example.com/a", answer("one"));
    table.insert("uid", "c", "example.com/b", answer("two"));
    let setup = table.setup_of("uid", "c");
    let env: Vec<String> =
        setup.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(env, ["one=one", "shared=one", "two=two"]);
    assert_eq!(setup.annotations, setup.env);
    let mounts = setup.mounts.iter().map(|it| format!("{}:{}", it.container_path, it.host_path));
    assert_eq!(mounts.collect::<Vec<_>>(), ["/shared:one", "/one:one", "/two:two"]);
    let devices = setup.devices.iter().map(|it| format!("{}:{}", it.container_path, it.host_path));
    assert_eq!(devices.collect::<Vec<_>>(), ["/dev/shared:one", "/dev/one:one", "/dev/two:two"]);
    assert_eq!(setup.cdi_devices, ["v.com/c=shared", "v.com/c=one", "v.com/c=two"]);
    assert_eq!(table.setup_of("uid", "other"), DeviceSetup::default());
}

#[test]
fn plugins_are_called_before_the_start_where_they_ask_for_it() {
    let asks = DevicePluginOptions { pre_start_required: true, ..DevicePluginOptions::default() };
    let mut silent = table("1", DevicePluginOptions::default());
    let mut called = table("1", asks);
    let no_devices = "no devices found allocated in local cache for pod uid, container c, resource \
                      example.com/a";
    assert_eq!(silent.pre_start("uid", "c", "example.com/a"), Ok(None));
    assert_eq!(called.pre_start("uid", "c", "example.com/a"), Err(no_devices.to_owned()));
    for table in [&mut silent, &mut called] {
        table.insert("uid", "c", "example.com/a", answer("one"));
    }
    assert_eq!(silent.pre_start("uid", "c", "example.com/a"), Ok(None));
    let found = called.pre_start("uid", "c", "example.com/a").expect("it has devices");
    assert_eq!(found.map(|(_, ids)| ids), Some(vec!["id-one".to_owned()]));
    let unknown = "endpoint not found in cache for a registered resource: example.com/b";
    assert_eq!(called.pre_start("uid", "c", "example.com/b"), Err(unknown.to_owned()));
}
