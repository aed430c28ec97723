//! A container's mounts: the default file systems, files that the pod shares, and mounts of the
//! caller.
//!
//! Rule: a mount of the caller replaces a default one at the same target, and with a `/dev` of its
//! own all default ones below it; shorter targets come first, so that no mount hides another.
//! Choosing is pure; [`prepare_sources`] creates missing directories and resolves links on the
//! host.
//!
//! upstream: containerd internal/cri/opts/spec_linux_opts.go (withMounts)

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use container_create::spec::{IdMappings, IdRange, MountKind, MountSpec, Propagation};
use cri_wire::v1;
use mount_table::{MountTable, PropagationType};

use crate::failure::{CallContext as _, CriError, Result};

#[cfg(test)]
mod tests;

/// A path without dots and doubled slashes, as text.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
            Component::ParentDir => {
                parts.pop();
            }
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

fn own(kind: MountKind, target: &str, options: &[&str]) -> MountSpec {
    MountSpec {
        kind: kind.into(),
        target: target.to_owned(),
        no_suid: true,
        no_exec: !matches!(kind, MountKind::Dev),
        no_dev: !matches!(kind, MountKind::Dev | MountKind::Devpts),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..MountSpec::default()
    }
}

/// The default mounts of a container, unless the caller mounts something else there.
pub(super) fn usual(privileged: bool) -> Vec<MountSpec> {
    let mut all = vec![
        own(MountKind::Proc, "/proc", &[]),
        own(MountKind::Dev, "/dev", &["mode=755", "size=65536k"]),
        own(MountKind::Devpts, "/dev/pts", &["newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        own(MountKind::Mqueue, "/dev/mqueue", &[]),
        own(MountKind::Sysfs, "/sys", &[]),
        own(MountKind::Cgroup, "/sys/fs/cgroup", &[]),
    ];
    for mount in &mut all {
        let kernel = [MountKind::Sysfs.into(), MountKind::Cgroup.into()].contains(&mount.kind);
        mount.read_only = kernel && !privileged;
    }
    all
}

/// All mounts in order: default ones, then the caller's, shorter targets first.
pub(super) fn arranged(usual: Vec<MountSpec>, asked: Vec<MountSpec>) -> Vec<MountSpec> {
    let taken: BTreeSet<String> = asked.iter().map(|mount| clean(&mount.target)).collect();
    let hidden = |target: &str| {
        let target = clean(target);
        taken.contains(&target) || (taken.contains("/dev") && target.starts_with("/dev/"))
    };
    let mut all: Vec<MountSpec> =
        usual.into_iter().filter(|mount| !hidden(&mount.target)).collect();
    let mut asked = asked;
    asked.sort_by_key(|mount| clean(&mount.target).matches('/').count());
    all.extend(asked);
    all
}

/// A CRI mount. `source` is the path on the host, with links resolved.
pub(super) fn asked(mount: &v1::Mount, source: &Path) -> Result<MountSpec> {
    let host = &mount.host_path;
    let propagation = match mount.propagation() {
        v1::MountPropagation::PropagationPrivate => Propagation::Private,
        v1::MountPropagation::PropagationHostToContainer => Propagation::Slave,
        v1::MountPropagation::PropagationBidirectional => Propagation::Shared,
    };
    if mount.recursive_read_only && !mount.readonly {
        return Err(CriError::plain(format!(
            "recursive read-only mount conflicts with RW mount (hostPath={host:?})"
        )));
    }
    if mount.recursive_read_only && propagation != Propagation::Private {
        return Err(CriError::plain(format!(
            "recursive read-only mount needs private propagation, got {:?} (hostPath={host:?})",
            mount.propagation().as_str_name()
        )));
    }
    if !mount.container_path.starts_with('/') {
        return Err(CriError::invalid(format!(
            "mount container_path {:?} is no absolute path",
            mount.container_path
        )));
    }
    let ranges = |list: &[v1::IdMapping]| -> Vec<IdRange> {
        list.iter()
            .map(|range| IdRange {
                inside: range.container_id,
                outside: range.host_id,
                count: range.length,
            })
            .collect()
    };
    let mappings =
        IdMappings { users: ranges(&mount.uid_mappings), groups: ranges(&mount.gid_mappings) };
    Ok(MountSpec {
        kind: MountKind::Bind.into(),
        // A lossy conversion would give another path.
        source: source.to_str().map(str::to_owned).ok_or_else(|| {
            CriError::invalid(format!("mount host_path {host:?} leads to {source:?}, not UTF-8"))
        })?,
        target: mount.container_path.clone(),
        read_only: mount.readonly,
        recursive_read_only: mount.recursive_read_only,
        propagation: propagation.into(),
        id_mappings: (mappings != IdMappings::default()).then_some(mappings),
        ..MountSpec::default()
    })
}

/// A mount of the caller. Its links were resolved; a link that is put there before the start is not
/// followed, so that write access beside a source does not choose what is mounted.
pub(super) fn of_caller(mount: &v1::Mount, table: &MountTable) -> Result<MountSpec> {
    let spec = asked(mount, &prepare_source(mount, table)?)?;
    Ok(MountSpec { no_symlinks_in_source: true, ..spec })
}

/// Creates a missing source directory, resolves its links, and checks its propagation.
pub(super) fn prepare_source(mount: &v1::Mount, table: &MountTable) -> Result<PathBuf> {
    let path = Path::new(&mount.host_path);
    if !path.is_absolute() {
        return Err(CriError::invalid(format!(
            "mount host_path {:?} is no absolute path",
            mount.host_path
        )));
    }
    match fs::metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(path).doing(format!("failed to mkdir {:?}", mount.host_path))?;
        }
        Err(error) => return Err(error).doing(format!("failed to stat {:?}", mount.host_path)),
    }
    let source =
        fs::canonicalize(path).doing(format!("failed to resolve symlink {:?}", mount.host_path))?;
    let shared = match mount.propagation() {
        v1::MountPropagation::PropagationPrivate => return Ok(source),
        v1::MountPropagation::PropagationBidirectional => true,
        v1::MountPropagation::PropagationHostToContainer => false,
    };
    let (at, propagation_type) = match table.containing_mount(&source) {
        Some(mount) => (mount.point, mount.propagation_type),
        None => (Path::new("/").into(), PropagationType::Private),
    };
    match (shared, propagation_type) {
        (_, PropagationType::Shared) | (false, PropagationType::Slave) => Ok(source),
        (true, _) => Err(CriError::plain(format!(
            "path {:?} is mounted on {:?} but it is not a shared mount",
            source.display().to_string(),
            at
        ))),
        (false, _) => Err(CriError::plain(format!(
            "path {:?} is mounted on {:?} but it is not a shared or slave mount",
            source.display().to_string(),
            at
        ))),
    }
}

/// The propagation of the container's root: the widest that its mounts need.
pub(super) fn root_propagation(mounts: &[v1::Mount]) -> Propagation {
    let any = |wanted| mounts.iter().any(|mount| mount.propagation() == wanted);
    if any(v1::MountPropagation::PropagationBidirectional) {
        Propagation::Shared
    } else if any(v1::MountPropagation::PropagationHostToContainer) {
        Propagation::Slave
    } else {
        Propagation::Private
    }
}
