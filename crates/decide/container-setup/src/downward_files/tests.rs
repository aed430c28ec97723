//! Fields and resources as files.

use super::*;
use crate::testing::{node, pod_with};
use pod_model::pod::VolumeSource;

#[test]
fn files() {
    let metadata = "labels: {app: web, zone: b}, annotations: {note: 'a\"b'}";
    for (item, expected) in [
        ("fieldRef: {apiVersion: v1, fieldPath: metadata.name}", Ok("web")),
        ("fieldRef: {apiVersion: v1, fieldPath: metadata.uid}", Ok("u-1")),
        ("fieldRef: {apiVersion: v1, fieldPath: metadata.labels}", Ok("app=\"web\"\nzone=\"b\"")),
        ("fieldRef: {apiVersion: v1, fieldPath: metadata.annotations}", Ok("note=\"a\\\"b\"")),
        ("fieldRef: {apiVersion: v1, fieldPath: \"metadata.labels['app']\"}", Ok("web")),
        ("fieldRef: {apiVersion: v1, fieldPath: \"metadata.labels['none']\"}", Ok("")),
        (
            "fieldRef: {apiVersion: v1, fieldPath: status.podIP}",
            Err("unsupported fieldPath: status.podIP"),
        ),
        ("resourceFieldRef: {containerName: app, resource: limits.cpu}", Ok("2")),
        ("resourceFieldRef: {containerName: app, resource: limits.cpu, divisor: 1m}", Ok("2000")),
        (
            "resourceFieldRef: {containerName: app, resource: limits.memory, divisor: 1Mi}",
            Ok("8192"),
        ),
        ("resourceFieldRef: {containerName: init, resource: limits.cpu}", Ok("4")),
        ("resourceFieldRef: {containerName: app, resource: requests.memory}", Ok("0")),
        (
            "resourceFieldRef: {containerName: none, resource: limits.cpu}",
            Err("container none not found"),
        ),
    ] {
        let pod = pod_with(
            metadata,
            &format!(
                "{{containers: [{{name: app, image: i, resources: {{limits: {{cpu: 2}}}}}}], \
                 initContainers: [{{name: init, image: i}}], \
                 volumes: [{{name: v, downwardAPI: {{items: [{{path: p, {item}}}]}}}}]}}"
            ),
        );
        let Some(VolumeSource::DownwardApi(volume)) = &pod.spec.volumes[0].source else {
            panic!("{item}")
        };
        let outcome = value(&volume.items[0], &pod, &node()).map_err(|error| error.0);
        assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{item}");
    }
}
