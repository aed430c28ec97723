//! Rules for mounts and block devices of a container.

use std::collections::BTreeSet;

use pod_model::pod::container::{MountPropagation, RecursiveReadOnly, VolumeMount};
use pod_model::pod::{Container, VolumeSource};

use super::ValidationContext;
use super::findings::{FieldPath, PodFindings};
use super::formats::{check_descending, has_backsteps};

pub(super) fn check(
    container: &Container,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    check_mounts(container, around, findings, &path.child("volumeMounts"));
    check_devices(container, around, findings, &path.child("volumeDevices"));
}

fn check_mounts(
    container: &Container,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    list: &FieldPath,
) {
    let mut taken = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let path = list.index(index);
        let (name, mount_path) = (path.child("name"), path.child("mountPath"));
        findings.require(&mount.name, &name);
        if !around.volumes.contains_key(&*mount.name) {
            findings.not_found(&name, &mount.name);
        }
        findings.require(&mount.mount_path, &mount_path);
        if !taken.insert(&*mount.mount_path) {
            findings.duplicate(&mount_path, &mount.mount_path);
        }
        let devices = &container.volume_devices;
        if devices.iter().any(|device| device.name == mount.name) {
            findings.invalid(&name, &mount.name, "is given in volumeDevices as well");
        }
        if devices.iter().any(|device| device.device_path == mount.mount_path) {
            findings.invalid(&mount_path, &mount.mount_path, "is a path of volumeDevices as well");
        }
        if !mount.sub_path.is_empty() {
            check_descending(findings, &list.child("subPath"), &mount.sub_path);
        }
        if !mount.sub_path_expr.is_empty() {
            if !mount.sub_path.is_empty() {
                let path = path.child("subPathExpr");
                findings.invalid(&path, &mount.sub_path_expr, "subPath is given already");
            }
            check_descending(findings, &list.child("subPathExpr"), &mount.sub_path_expr);
        }
        check_propagation(mount, container, findings, &list.child("mountPropagation"));
        check_recursive(mount, findings, &list.child("recursiveReadOnly"));
    }
}

fn check_propagation(
    mount: &VolumeMount,
    container: &Container,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let Some(propagation) = &mount.mount_propagation else { return };
    if !propagation.is_known() {
        findings.unsupported(path, propagation, MountPropagation::KNOWN);
    }
    let privileged =
        container.security_context.as_ref().is_some_and(|context| context.is_privileged());
    if *propagation == MountPropagation::Bidirectional && !privileged {
        findings.forbidden(path, "Bidirectional needs a privileged container");
    }
}

fn check_recursive(mount: &VolumeMount, findings: &mut PodFindings, path: &FieldPath) {
    match &mount.recursive_read_only {
        None | Some(RecursiveReadOnly::Disabled) => {}
        Some(RecursiveReadOnly::Enabled | RecursiveReadOnly::IfPossible) => {
            if !mount.read_only {
                findings.forbidden(path, "needs readOnly: true");
            }
            let propagation = mount.mount_propagation.as_ref();
            if propagation.is_some_and(|mode| *mode != MountPropagation::NoPropagation) {
                findings.forbidden(path, "needs mountPropagation None or none at all");
            }
        }
        Some(other) => findings.unsupported(path, other, RecursiveReadOnly::KNOWN),
    }
}

fn check_devices(
    container: &Container,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    list: &FieldPath,
) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in container.volume_devices.iter().enumerate() {
        let path = list.index(index);
        let (name, device_path) = (path.child("name"), path.child("devicePath"));
        if findings.require(&device.name, &name) && !names.insert(&*device.name) {
            findings.duplicate(&name, &device.name);
        }
        match around.volumes.get(&*device.name) {
            None => findings.not_found(&name, &device.name),
            Some(VolumeSource::PersistentVolumeClaim(_) | VolumeSource::Ephemeral(_)) => {}
            Some(_) => {
                let why = "only a persistentVolumeClaim or an ephemeral volume can be a device";
                findings.invalid(&name, &device.name, why);
            }
        }
        findings.require(&device.device_path, &device_path);
        if paths.contains(&*device.device_path) {
            findings.duplicate(&device_path, &device.device_path);
        }
        if has_backsteps(&device.device_path) {
            findings.invalid(&device_path, &device.device_path, "the path may not contain '..'");
        } else {
            paths.insert(&*device.device_path);
        }
        let mounts = &container.volume_mounts;
        if mounts.iter().any(|mount| mount.name == device.name) {
            findings.invalid(&name, &device.name, "is given in volumeMounts as well");
        }
        if mounts.iter().any(|mount| mount.mount_path == device.device_path) {
            let why = "is a path of volumeMounts as well";
            findings.invalid(&device_path, &device.device_path, why);
        }
    }
}
