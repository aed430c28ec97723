//! A container's configuration as a CRI message.
//!
//! Rule: every field is translated; a stop signal that CRI has no value for is an error here,
//! before a container is created that could not be stopped as asked.

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{ContainerConfig, Device, Mount, Propagation};

use super::image::spec_to_wire;
use super::security::{container_to_wire, id_mapping_to_wire, resources_to_wire};

#[cfg(test)]
mod tests;

pub(super) fn to_wire(
    config: &ContainerConfig,
) -> Result<v1::ContainerConfig, ContainerRuntimeError> {
    let env = config.env.iter();
    let devices = config.cdi_devices.iter();
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: config.name.clone(),
            attempt: config.attempt,
        }),
        image: Some(spec_to_wire(&config.image)),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone(),
        envs: env
            .map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone().into() })
            .collect(),
        mounts: config.mounts.iter().map(mount_to_wire).collect(),
        devices: config.devices.iter().map(device_to_wire).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        log_path: config.log_path.clone(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources_to_wire(&config.resources)),
            security_context: Some(container_to_wire(&config.security)),
        }),
        windows: None,
        cdi_devices: devices.map(|name| v1::CdiDevice { name: name.clone() }).collect(),
        stop_signal: signal_to_wire(&config.stop_signal)?,
    })
}

fn signal_to_wire(name: &str) -> Result<i32, ContainerRuntimeError> {
    if name.is_empty() {
        return Ok(v1::Signal::RuntimeDefault.into());
    }
    // CRI's enum names have no signs.
    let signal_name = name.replace('+', "PLUS").replace('-', "MINUS");
    v1::Signal::from_str_name(&signal_name).map(Into::into).ok_or_else(|| {
        ContainerRuntimeError::Refused {
            call: "CreateContainer",
            code: "InvalidArgument".to_owned(),
            message: format!("stop signal {name:?}: the interface knows no such signal"),
        }
    })
}

fn mount_to_wire(mount: &Mount) -> v1::Mount {
    let propagation = match mount.propagation {
        Propagation::Private => v1::MountPropagation::PropagationPrivate,
        Propagation::HostToContainer => v1::MountPropagation::PropagationHostToContainer,
        Propagation::Bidirectional => v1::MountPropagation::PropagationBidirectional,
    };
    v1::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.readonly,
        selinux_relabel: mount.selinux_relabel,
        propagation: propagation.into(),
        uid_mappings: mount.uid_mappings.iter().map(id_mapping_to_wire).collect(),
        gid_mappings: mount.gid_mappings.iter().map(id_mapping_to_wire).collect(),
        recursive_read_only: mount.recursive_read_only,
        image: mount.image.as_ref().map(spec_to_wire),
        image_sub_path: mount.image_sub_path.clone(),
    }
}

fn device_to_wire(device: &Device) -> v1::Device {
    v1::Device {
        container_path: device.container_path.clone(),
        host_path: device.host_path.clone(),
        permissions: device.permissions.clone(),
    }
}
