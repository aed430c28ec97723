//! CDI devices: what their names add to a container.
//!
//! Rule: everything that a name stands for is applied, or the container is refused: of hooks the
//! built-in handler runs those of `createContainer`, and the error names what is not supported. A
//! later edit of a device node, a mount or a variable replaces an earlier one. Reads device nodes
//! of the host.
//!
//! upstream: containerd internal/cri/opts/spec_linux.go (WithCDI)

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

use container_create::hooks::CREATE_CONTAINER;
use container_create::spec::{
    ContainerSpec, DeviceNode, DeviceRuleSpec, HookSpec, MountKind, MountSpec, NamespaceMode,
    Propagation,
};
use cri_wire::v1;
use oci_bundle::cdi::{self, CdiRegistry, ContainerEdits};

use super::{mounts, process};
use crate::failure::{CriError, Result};

#[cfg(test)]
mod tests;

/// The prefix of annotations with device names, used by older clients.
const ANNOTATION: &str = "cdi.k8s.io/";

/// All names without duplicates: those of the field first.
fn names(config: &v1::ContainerConfig) -> Result<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !all.iter().any(|known| known == name) {
            all.push(name.to_owned());
        }
    };
    for device in &config.cdi_devices {
        add(&device.name);
    }
    let ordered: BTreeMap<_, _> = config.annotations.iter().collect();
    for (_, value) in ordered.into_iter().filter(|(key, _)| key.starts_with(ANNOTATION)) {
        for name in value.split(',') {
            if !cdi::is_qualified(name) {
                return Err(CriError::plain(format!(
                    "failed to parse CDI device annotations: invalid CDI device name {name:?}"
                )));
            }
            add(name);
        }
    }
    Ok(all)
}

/// Adds the edits of the devices.
pub(super) fn add(
    spec: &mut ContainerSpec,
    config: &v1::ContainerConfig,
    dirs: &[PathBuf],
) -> Result<()> {
    let names = names(config)?;
    if names.is_empty() {
        return Ok(());
    }
    let wrong = |why: String| CriError::plain(format!("CDI device injection failed: {why}"));
    let registry = CdiRegistry::read(dirs);
    for problem in registry.errors() {
        tracing::warn!(problem, "a description of devices is left out");
    }
    let edits = registry.edits(&names).map_err(|error| wrong(error.to_string()))?;
    apply(spec, &edits).map_err(wrong)
}

fn apply(spec: &mut ContainerSpec, edits: &ContainerEdits) -> std::result::Result<(), String> {
    if edits.intel_rdt.is_some() {
        return Err("intelRdt is not served by this runtime".to_owned());
    }
    if !edits.net_devices.is_empty() {
        return Err("netDevices are not served by this runtime".to_owned());
    }
    if let Some(process) = &mut spec.process {
        let mut all = process::Variables::of(std::mem::take(&mut process.environment));
        for entry in &edits.env {
            all.set(entry.clone());
        }
        process.environment = all.into_entries();
    }
    let user = spec.security.as_ref().map_or((0, 0), |security| (security.uid, security.gid));
    for asked in &edits.device_nodes {
        let node = node(asked, user)?;
        if node.kind != "p" {
            let access = if asked.permissions.is_empty() { "rwm" } else { &asked.permissions };
            spec.cgroup.get_or_insert_default().device_rules.push(DeviceRuleSpec {
                allow: true,
                kind: node.kind.clone(),
                major: Some(node.major),
                minor: Some(node.minor),
                access: access.to_owned(),
            });
        }
        spec.devices.retain(|known| known.path != node.path);
        spec.devices.push(node);
    }
    for asked in &edits.mounts {
        let mount = mount(asked)?;
        spec.mounts.retain(|known| mounts::clean(&known.target) != mounts::clean(&mount.target));
        spec.mounts.push(mount);
    }
    if !edits.mounts.is_empty() {
        // Nested mounts come after their parents.
        spec.mounts.sort_by_key(|mount| mounts::clean(&mount.target).matches('/').count());
    }
    if let Some(security) = &mut spec.security {
        for group in edits.additional_groups.iter().filter(|group| **group != 0) {
            if !security.additional_gids.contains(group) {
                security.additional_gids.push(*group);
            }
        }
    }
    add_hooks(spec, edits)
}

/// The built-in handler supports one hook point, the only one that CDI specifications of graphics
/// cards use, and only without a user namespace.
fn add_hooks(spec: &mut ContainerSpec, edits: &ContainerEdits) -> std::result::Result<(), String> {
    let own = spec.namespaces.as_ref().map(|namespaces| namespaces.user);
    let of_pod = own == Some(NamespaceMode::Pod.into());
    let served = |hook: &&cdi::Hook| hook.point == CREATE_CONTAINER && !of_pod;
    let odd = edits.hooks.iter().find(|hook| spec.handler.is_none() && !served(hook));
    if let Some(hook) = odd {
        let why = if of_pod { " of a pod with a user namespace" } else { "" };
        return Err(format!(
            "the {} hook {}{why} cannot be run by the built-in handler; \
             choose a RuntimeClass whose handler is an OCI runtime",
            hook.point, hook.path
        ));
    }
    let hooks = edits.hooks.iter().map(|hook| HookSpec {
        point: hook.point.clone(),
        path: hook.path.clone(),
        arguments: hook.args.clone(),
        environment: hook.env.clone(),
        timeout: hook.timeout.unwrap_or_default(),
    });
    match &mut spec.handler {
        Some(handler) => handler.hooks.extend(hooks),
        None => spec.hooks.extend(hooks),
    }
    Ok(())
}

/// Properties that the specification leaves open are those of the host's node.
fn node(asked: &cdi::DeviceNode, user: (u32, u32)) -> std::result::Result<DeviceNode, String> {
    let source = if asked.host_path.is_empty() { &asked.path } else { &asked.host_path };
    let complete = !asked.kind.is_empty() && (asked.major != 0 || asked.kind == "p");
    let found = host_node(source);
    let found = match (found, complete) {
        (Ok(found), _) => Some(found),
        (Err(_), true) => None,
        (Err(error), false) => {
            return Err(format!("failed to stat CDI host device {source:?}: {error}"));
        }
    };
    let kind = match asked.kind.as_str() {
        "u" => "c",
        kind => kind,
    };
    let number =
        |value: i64| u32::try_from(value).map_err(|_| format!("{value} is no device number"));
    let (mut kind, mut major, mut minor) =
        (kind.to_owned(), number(asked.major)?, number(asked.minor)?);
    let mut mode = 0o666;
    if let Some(found) = &found {
        if !complete {
            if !kind.is_empty() && kind != found.kind {
                return Err(format!(
                    "CDI device ({:?}, {source:?}), host type mismatch ({kind}, {})",
                    asked.path, found.kind
                ));
            }
            (kind, major, minor) = (found.kind.to_owned(), found.major, found.minor);
        }
        mode = found.mode;
    }
    Ok(DeviceNode {
        path: asked.path.clone(),
        kind,
        major,
        minor,
        mode: asked.file_mode.map_or(mode, |mode| mode & 0o7777),
        uid: asked.uid.unwrap_or(user.0),
        gid: asked.gid.unwrap_or(user.1),
        source: source.clone(),
    })
}

struct HostNode {
    kind: &'static str,
    major: u32,
    minor: u32,
    mode: u32,
}

fn host_node(path: &str) -> std::io::Result<HostNode> {
    let metadata = std::fs::symlink_metadata(path)?;
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        kind if kind.is_fifo() => "p",
        _ => return Err(std::io::Error::other("not a device node")),
    };
    Ok(HostNode {
        kind,
        major: rustix::fs::major(metadata.rdev()),
        minor: rustix::fs::minor(metadata.rdev()),
        mode: metadata.mode() & 0o7777,
    })
}

fn mount(asked: &cdi::Mount) -> std::result::Result<MountSpec, String> {
    let binds = asked.options.iter().any(|option| option == "bind" || option == "rbind");
    let kind = match asked.kind.as_str() {
        _ if binds => MountKind::Bind,
        "" | "bind" | "none" => MountKind::Bind,
        "tmpfs" => MountKind::Tmpfs,
        other => return Err(format!("the mount at {}: type {other:?}", asked.container_path)),
    };
    let mut all = MountSpec {
        kind: kind.into(),
        source: if kind == MountKind::Bind { asked.host_path.clone() } else { String::new() },
        target: asked.container_path.clone(),
        not_recursive: !asked.options.iter().any(|option| option == "rbind"),
        ..MountSpec::default()
    };
    for option in &asked.options {
        match option.as_str() {
            "bind" | "rbind" | "rw" | "suid" | "dev" | "exec" | "private" | "rprivate"
            | "defaults" | "relatime" => {}
            "ro" => all.read_only = true,
            "rro" => (all.read_only, all.recursive_read_only) = (true, true),
            "nosuid" => all.no_suid = true,
            "nodev" => all.no_dev = true,
            "noexec" => all.no_exec = true,
            "slave" | "rslave" => all.propagation = Propagation::Slave.into(),
            "shared" | "rshared" => all.propagation = Propagation::Shared.into(),
            other if kind == MountKind::Tmpfs => all.options.push(other.to_owned()),
            other => {
                return Err(format!("the mount at {}: option {other:?}", asked.container_path));
            }
        }
    }
    Ok(all)
}
