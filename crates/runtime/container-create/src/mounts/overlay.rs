//! The container's root as a detached mount: a directory, or an overlay with id-mapped layers.
//!
//! Rule: an overlay is mounted in a private mount namespace, so the host's mount table does not
//! change. Does not create or remove layers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountAttrFlags, MountFlags};

use crate::error::{CreateError, During, Result};
use crate::mounts::{detached_copy, detached_filesystem, move_onto};
use crate::paths::open_source;
use crate::spec::{OverlaySpec, RootFilesystem};
use crate::system::{MountChange, change_mount};

/// Runs as the host's root in a private mount namespace (see [`crate::nodes`]). It mounts there if
/// there is an overlay, so everything else of the host must be opened before. `owner` is the pod's
/// root id on the host.
pub(crate) fn prepare_root(
    spec: &RootFilesystem,
    user_namespace: Option<BorrowedFd<'_>>,
    owner: Option<(u32, u32)>,
    label: &str,
) -> Result<OwnedFd> {
    let namespace = match (spec.map_ids, user_namespace) {
        (false, _) => None,
        (true, Some(namespace)) => Some(namespace),
        (true, None) => {
            return Err(CreateError::invalid_spec(
                "the root maps ids, but the pod has no user namespace",
            ));
        }
    };
    match &spec.overlay {
        Some(overlay) => {
            let owner = owner.filter(|_| namespace.is_some());
            mount_overlay(overlay, namespace, owner, label)
        }
        None => layer(&spec.path, namespace, true),
    }
}

fn layer(path: &str, ids: Option<BorrowedFd<'_>>, recursive: bool) -> Result<OwnedFd> {
    let source = open_source(path, "", false)?;
    let tree =
        detached_copy(&source, recursive).during(format_args!("copying the mount of {path}"))?;
    if let Some(namespace) = ids {
        let change = MountChange {
            set: libc::MOUNT_ATTR_IDMAP,
            user_namespace: Some(namespace),
            ..MountChange::default()
        };
        change_mount(tree.as_fd(), change).during(format_args!("mapping the ids of {path}"))?;
    }
    Ok(tree)
}

/// The layers get short names on a private tmpfs: the kernel takes one page of options, and
/// id-mapped layers have no path at all.
fn mount_overlay(
    spec: &OverlaySpec,
    ids: Option<BorrowedFd<'_>>,
    owner: Option<(u32, u32)>,
    label: &str,
) -> Result<OwnedFd> {
    if spec.lower.is_empty() {
        return Err(CreateError::invalid_spec("the root's overlay has no layers"));
    }
    let mut layers: Vec<(String, OwnedFd)> = Vec::new();
    for (number, path) in spec.lower.iter().enumerate() {
        layers.push((number.to_string(), layer(path, ids, false)?));
    }
    let mut data = format!(
        "lowerdir={}",
        layers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(":")
    );
    if !spec.upper.is_empty() {
        let (parent, upper, work) = upper_names(spec)?;
        // Not id-mapped: overlayfs writes with the credentials of its mounter, which a mapped layer
        // would refuse. Files of the container are stored with the ids that they have on the host.
        layers.push(("u".to_owned(), layer(parent, None, false)?));
        if let Some(owner) = owner {
            std::os::unix::fs::lchown(&spec.upper, Some(owner.0), Some(owner.1))
                .during(format_args!("giving {} to the pod's root", spec.upper))?;
        }
        data.push_str(&format!(",upperdir=u/{upper},workdir=u/{work}"));
    }
    for option in &spec.options {
        data.push(',');
        data.push_str(option);
    }
    data.push_str(&quoted_label(label)?);
    let table = detached_filesystem("tmpfs", &["mode=700".to_owned()], MountAttrFlags::empty())?;
    // Any directory but the root itself, onto which the container's root is about to be mounted.
    let mount_point = spec.lower.first().map_or("", String::as_str);
    let mount_point = open_source(mount_point, "", false)?;
    move_onto(&table, &mount_point).during("mounting a place for layers")?;
    rustix::process::fchdir(&table).during("entering the place for layers")?;
    for (name, tree) in &layers {
        rustix::fs::mkdirat(&table, name.as_str(), Mode::from_raw_mode(0o755))
            .during("making a place for a layer")?;
        let mount_point = rustix::fs::openat(
            &table,
            name.as_str(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .during("opening the place for a layer")?;
        move_onto(tree, &mount_point).during("placing a layer")?;
    }
    rustix::fs::mkdirat(&table, "m", Mode::from_raw_mode(0o755))
        .during("making a place for the root")?;
    let data_text = std::ffi::CString::new(data.as_str()).map_err(|_| {
        CreateError::invalid_spec("an option of the root's overlay contains a zero byte")
    })?;
    rustix::mount::mount(
        "overlay",
        "m",
        "overlay",
        MountFlags::empty(),
        Some(data_text.as_c_str()),
    )
    .during(format_args!("mounting the root's overlay with {data}"))?;
    let mounted = rustix::fs::openat(
        &table,
        "m",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .during("opening the root's overlay")?;
    detached_copy(&mounted, false).during("copying the root's overlay")
}

/// The label as a mount(2) option: the comma between categories requires quotes.
pub(super) fn quoted_label(label: &str) -> Result<String> {
    if label.contains(['"', '\\']) {
        return Err(CreateError::invalid_spec(format!("{label:?} is no SELinux label")));
    }
    Ok(if label.is_empty() { String::new() } else { format!(",context=\"{label}\"") })
}

/// Upper and work directories must be on one mount, so their common parent is the layer.
fn upper_names(spec: &OverlaySpec) -> Result<(&str, &str, &str)> {
    let invalid_spec = || {
        let (upper, work) = (&spec.upper, &spec.work);
        CreateError::invalid_spec(format!("the overlay's {upper} and {work} are not side by side"))
    };
    let (parent, upper) = spec.upper.rsplit_once('/').ok_or_else(invalid_spec)?;
    let (other, work) = spec.work.rsplit_once('/').ok_or_else(invalid_spec)?;
    if parent != other
        || [upper, work].iter().any(|name| name.is_empty() || name.contains([',', ':']))
    {
        return Err(invalid_spec());
    }
    Ok((parent, upper, work))
}
