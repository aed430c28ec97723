//! What is mounted into a container, and in which order.
//!
//! Rule: the container's own mounts in the order of its specification, preceded by those of
//! devices, then the hosts file unless the container mounts something there itself, and the
//! termination message file last. A sub-path never leaves its volume: one that looks as if it would
//! is rejected before it is opened.
//!
//! upstream: pkg/kubelet/kubelet_pods.go, pkg/kubelet/kuberuntime/kuberuntime_container.go

use std::collections::{BTreeMap, BTreeSet};

use pod_model::pod::container::{MountPropagation, RecursiveReadOnly, VolumeMount};
use pod_model::pod::{Container, Pod};
use ports::runtime_objects::{Mount, Propagation};

use crate::inputs::{ContainerSetupInputs, NodeSetupInputs, PodSetupInputs, ReadyVolume};
use crate::{SetupError, expansion, hosts_file, refuse};

#[cfg(test)]
mod tests;

/// A sub-path to be opened beneath its volume before the container can be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSubPath {
    /// The index of the mount in the container's list.
    pub mount_index: usize,
    pub volume: String,
    pub volume_path: String,
    /// Relative, and validated.
    pub sub_path: String,
}

/// The sub-paths to pin; those of images are handled by the runtime.
pub fn wanted_sub_paths(
    container: &Container,
    facts: &ContainerSetupInputs,
    env: &[(String, String)],
) -> Result<Vec<WantedSubPath>, SetupError> {
    let mut wanted = Vec::new();
    for (mount_index, mount) in container.volume_mounts.iter().enumerate() {
        let volume = volume_of(container, mount, facts)?;
        let sub_path = sub_path_of(mount, env)?;
        if !sub_path.is_empty() && volume.image.is_none() {
            wanted.push(WantedSubPath {
                mount_index,
                volume: mount.name.to_string(),
                volume_path: volume.path.clone(),
                sub_path,
            });
        }
    }
    Ok(wanted)
}

/// What the mounts of a container are made from.
pub struct MountInputs<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub node: &'a NodeSetupInputs,
    pub pod_facts: &'a PodSetupInputs,
    pub facts: &'a ContainerSetupInputs,
    /// What the container's variables have become.
    pub env: &'a [(String, String)],
}

/// All mounts of a container.
pub fn of_container(inputs: &MountInputs<'_>) -> Result<Vec<Mount>, SetupError> {
    let MountInputs { pod, container, node, pod_facts, facts, env } = *inputs;
    let selinux = node.security.selinux_enabled;
    let mut mounts = facts.given.mounts.clone();
    // A volume that several mounts share is relabelled once.
    let mut labelled = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let volume = volume_of(container, mount, facts)?;
        let sub_path = sub_path_of(mount, env)?;
        let is_relabelled = volume.selinux_relabel && labelled.insert(&*mount.name);
        let host_path = match &volume.image {
            Some(_) => String::new(),
            None if sub_path.is_empty() => volume.path.clone(),
            None => match facts.sub_paths.get(&index) {
                Some(pinned) => pinned.clone(),
                None => refuse!(
                    "failed to prepare subPath for volumeMount {:?} of container {:?}",
                    mount.name,
                    container.name
                ),
            },
        };
        mounts.push(Mount {
            container_path: absolute(&mount.mount_path),
            host_path,
            readonly: mount.read_only || volume.read_only,
            selinux_relabel: is_relabelled && selinux,
            propagation: propagation_of(mount)?,
            recursive_read_only: recursive(mount, pod_facts.handler.recursive_read_only_mounts)?,
            image: volume.image.clone(),
            image_sub_path: if volume.image.is_some() { sub_path } else { String::new() },
            ..Mount::default()
        });
    }
    mounts.extend(hosts_file_mount(pod, container, facts, selinux));
    mounts.extend(termination_mount(container, facts, selinux));
    if let Some(users) = &pod_facts.user_namespace {
        for mount in &mut mounts {
            mount.uid_mappings.clone_from(&users.uids);
            mount.gid_mappings.clone_from(&users.gids);
        }
    }
    Ok(mounts)
}

fn volume_of<'f>(
    container: &Container,
    mount: &VolumeMount,
    facts: &'f ContainerSetupInputs,
) -> Result<&'f ReadyVolume, SetupError> {
    let volume = facts.volumes.get(&*mount.name).filter(|volume| volume.device.is_none());
    match volume {
        Some(volume) => Ok(volume),
        None => refuse!(
            "cannot find volume {:?} to mount into container {:?}",
            mount.name,
            container.name
        ),
    }
}

/// The mount's sub-path with its variables expanded; empty where it has none.
fn sub_path_of(mount: &VolumeMount, env: &[(String, String)]) -> Result<String, SetupError> {
    let path = if mount.sub_path_expr.is_empty() {
        mount.sub_path.to_string()
    } else {
        expanded(&mount.sub_path_expr, env)?
    };
    if path.starts_with('/') {
        refuse!("error SubPath `{path}` must not be an absolute path");
    }
    if path.split('/').any(|part| part == "..") {
        refuse!("unable to provision SubPath `{path}`: must not contain '..'");
    }
    if path.contains('\0') {
        refuse!("unable to provision SubPath: must not contain a zero byte");
    }
    Ok(path)
}

/// Every variable must be set and not empty, or a wrong directory would be created.
fn expanded(expression: &str, env: &[(String, String)]) -> Result<String, SetupError> {
    let values: BTreeMap<&str, &str> =
        env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut missing = BTreeSet::new();
    let path = expansion::expand(expression, |name| {
        let value = values.get(name).copied().unwrap_or_default();
        if value.is_empty() {
            missing.insert(name.to_owned());
        }
        Some(value.to_owned())
    });
    if !missing.is_empty() {
        let names: Vec<String> = missing.into_iter().collect();
        refuse!("missing value for {}", names.join(", "));
    }
    Ok(path)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn propagation_of(mount: &VolumeMount) -> Result<Propagation, SetupError> {
    match &mount.mount_propagation {
        None | Some(MountPropagation::NoPropagation) => Ok(Propagation::Private),
        Some(MountPropagation::HostToContainer) => Ok(Propagation::HostToContainer),
        Some(MountPropagation::Bidirectional) => Ok(Propagation::Bidirectional),
        Some(other) => refuse!("invalid MountPropagation mode: {:?}", other.as_str()),
    }
}

fn recursive(mount: &VolumeMount, is_supported: bool) -> Result<bool, SetupError> {
    const FAILED: &str = "failed to resolve recursive read-only mode";
    let name = &mount.name;
    let requested_mode = match &mount.recursive_read_only {
        None | Some(RecursiveReadOnly::Disabled) => return Ok(false),
        Some(requested_mode) => requested_mode,
    };
    if !mount.read_only {
        refuse!(
            "{FAILED}: volume {name:?} requested recursive read-only mode, but it is not read-only"
        );
    }
    if let Some(propagation) = &mount.mount_propagation
        && *propagation != MountPropagation::NoPropagation
    {
        refuse!(
            "{FAILED}: volume {name:?} requested recursive read-only mode, but it is not \
             compatible with propagation {:?}",
            propagation.as_str()
        );
    }
    match requested_mode {
        RecursiveReadOnly::IfPossible => Ok(is_supported),
        RecursiveReadOnly::Enabled if is_supported => Ok(true),
        RecursiveReadOnly::Enabled => refuse!(
            "{FAILED}: volume {name:?} requested recursive read-only mode, but it is not \
             supported by the runtime"
        ),
        other => refuse!("{FAILED}: unknown recursive read-only mode {:?}", other.as_str()),
    }
}

fn hosts_file_mount(
    pod: &Pod,
    container: &Container,
    facts: &ContainerSetupInputs,
    selinux: bool,
) -> Option<Mount> {
    let mut own = container.volume_mounts.iter();
    let is_own = own.any(|mount| &*mount.mount_path == hosts_file::CONTAINER_PATH);
    let file = facts.hosts_file.as_ref()?;
    (!is_own && hosts_file::is_wanted(pod, &facts.pod_ips)).then(|| Mount {
        container_path: hosts_file::CONTAINER_PATH.to_owned(),
        host_path: file.clone(),
        selinux_relabel: selinux,
        ..Mount::default()
    })
}

fn termination_mount(
    container: &Container,
    facts: &ContainerSetupInputs,
    selinux: bool,
) -> Option<Mount> {
    let file = facts.termination_file.as_ref()?;
    (!container.termination_message_path.is_empty()).then(|| Mount {
        container_path: absolute(&container.termination_message_path),
        host_path: file.clone(),
        selinux_relabel: selinux,
        ..Mount::default()
    })
}
