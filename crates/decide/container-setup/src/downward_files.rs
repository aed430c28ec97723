//! The content of one file of a downwardAPI volume.
//!
//! Rule: of the pod's fields only its metadata, which may change while it runs; addresses and the
//! like are for variables. A resource's container is always named, and its unset limits are the
//! node's allocatable, also those of an init container.
//!
//! upstream: pkg/volume/downwardapi, pkg/fieldpath/fieldpath.go, pkg/api/v1/resource/helpers.go

use pod_model::pod::Pod;
use pod_model::pod::container::ResourceFieldSelector;
use pod_model::pod::volume::DownwardApiFile;

use crate::inputs::NodeSetupInputs;
use crate::{SetupError, fields, refuse, resource_fields};

#[cfg(test)]
mod tests;

pub fn value(
    item: &DownwardApiFile,
    pod: &Pod,
    node: &NodeSetupInputs,
) -> Result<String, SetupError> {
    if let Some(field) = &item.field_ref {
        let path = &*field.field_path;
        if !path.starts_with("metadata.") {
            refuse!("unsupported fieldPath: {path}");
        }
        return fields::value(field, pod, node, &[]);
    }
    let Some(resource) = &item.resource_field_ref else { return Ok(String::new()) };
    let name = &*resource.container_name;
    let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let Some(container) = containers.find(|container| &*container.name == name) else {
        refuse!("container {name} not found");
    };
    let selector = ResourceFieldSelector { container_name: "".into(), ..(**resource).clone() };
    resource_fields::value(&selector, pod, container, node)
}
