//! Given devices and block volumes.

use super::*;
use crate::inputs::{AllocatedDevices, ReadyVolume};
use crate::testing::{first, one};

fn device(container: &str, host: &str, permissions: &str) -> Device {
    Device {
        container_path: container.into(),
        host_path: host.into(),
        permissions: permissions.into(),
    }
}

fn facts() -> ContainerSetupInputs {
    let block = |path: &str, read_only| ReadyVolume {
        device: Some(path.into()),
        read_only,
        ..Default::default()
    };
    ContainerSetupInputs {
        volumes: [
            ("disk".to_owned(), block("/d/disk", false)),
            ("fixed".to_owned(), block("/d/fixed", true)),
            ("folder".to_owned(), ReadyVolume { path: "/f".into(), ..Default::default() }),
        ]
        .into(),
        given: AllocatedDevices {
            devices: vec![device("/dev/gpu", "/dev/gpu0", "rw")],
            ..Default::default()
        },
        ..Default::default()
    }
}

#[test]
fn given_ones_come_first() {
    let pod =
        one("volumeDevices: [{name: disk, devicePath: /dev/a}, {name: fixed, devicePath: /dev/b}]");
    let expected = [
        device("/dev/gpu", "/dev/gpu0", "rw"),
        device("/dev/a", "/d/disk", "mrw"),
        device("/dev/b", "/d/fixed", "r"),
    ];
    assert_eq!(of_container(first(&pod), &facts()).expect("devices"), expected);
}

#[test]
fn devices_that_are_refused() {
    for (requested_devices, text) in [
        ("{name: disk, devicePath: dev/a}", "error DevicePath `dev/a` must be an absolute path"),
        (
            "{name: gone, devicePath: /a}",
            "cannot find volume \"gone\" to pass into container \"app\"",
        ),
        (
            "{name: folder, devicePath: /a}",
            "cannot find volume \"folder\" to pass into container \"app\"",
        ),
    ] {
        let pod = one(&format!("volumeDevices: [{requested_devices}]"));
        let error = of_container(first(&pod), &facts()).expect_err(requested_devices);
        assert_eq!(error.to_string(), text);
    }
}
