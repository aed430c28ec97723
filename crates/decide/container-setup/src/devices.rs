//! Devices of a container: allocated devices, and its block volumes.
//!
//! A privileged container's `/dev` is set up by the runtime, as in the reference.
//!
//! upstream: pkg/kubelet/kubelet_pods.go

use pod_model::pod::Container;
use ports::runtime_objects::Device;

use crate::inputs::ContainerSetupInputs;
use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

pub fn of_container(
    container: &Container,
    facts: &ContainerSetupInputs,
) -> Result<Vec<Device>, SetupError> {
    let mut devices = facts.given.devices.clone();
    for wanted in &container.volume_devices {
        let path = &*wanted.device_path;
        if !path.starts_with('/') {
            refuse!("error DevicePath `{path}` must be an absolute path");
        }
        let volume = facts.volumes.get(&*wanted.name);
        let Some((volume, device)) = volume.and_then(|it| Some((it, it.device.as_ref()?))) else {
            refuse!(
                "cannot find volume {:?} to pass into container {:?}",
                wanted.name,
                container.name
            );
        };
        devices.push(Device {
            container_path: path.to_owned(),
            host_path: device.clone(),
            permissions: if volume.read_only { "r" } else { "mrw" }.to_owned(),
        });
    }
    Ok(devices)
}
