//! The container's view of its cgroups at `/sys/fs/cgroup`.
//!
//! Rule: version 2 mounts the hierarchy in the container's own cgroup namespace; version 1 binds
//! the container's cgroup of each controller, so that neither shows anything else. Does not create
//! cgroups.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use cgroup_files::{CgroupVersion, Controller};
use rustix::mount::MountAttrFlags;

use crate::error::{During, Result};
use crate::mounts::{MountContext, detached_copy, detached_filesystem, move_onto};
use crate::paths::{ContainerRoot, CreateAs, open_source};
use crate::system::{MountChange, change_mount};

pub(crate) enum CgroupMount {
    /// Mounted inside the container.
    Unified { tree: Option<OwnedFd> },
    /// The host's whole hierarchy, for containers in the host's cgroup namespace.
    UnifiedMachine { tree: OwnedFd, read_only: bool },
    /// By controller; names that share a hierarchy become links.
    Separate { dir: Option<OwnedFd>, trees: Vec<(String, OwnedFd)>, links: Vec<(String, String)> },
    /// The container has no cgroups.
    None,
}

/// Runs as the host's root, in its mount namespace, after the cgroup was created.
pub(crate) fn prepare(mount_context: &MountContext<'_>) -> Result<CgroupMount> {
    let Some(group) = mount_context.group else { return Ok(CgroupMount::None) };
    if group.hierarchy().version() == CgroupVersion::V2 {
        if mount_context.own_cgroup_namespace {
            return Ok(CgroupMount::Unified { tree: None });
        }
        let root = group.hierarchy().points().first().map(|point| point.display().to_string());
        let source = open_source(&root.unwrap_or_default(), "", false)?;
        let tree =
            detached_copy(&source, false).during("copying the mount of the control groups")?;
        return Ok(CgroupMount::UnifiedMachine { tree, read_only: false });
    }
    let mut trees: Vec<(String, OwnedFd)> = Vec::new();
    let mut links = Vec::new();
    for point in group.hierarchy().points() {
        let Some(name) = point.file_name().and_then(|name| name.to_str()) else { continue };
        let source = open_source(
            &point.join(group.path().trim_start_matches('/')).display().to_string(),
            "",
            true,
        )?;
        let tree = detached_copy(&source, false).during("copying the mount of a control group")?;
        trees.push((name.to_owned(), tree));
        for part in name.split(',').filter(|part| *part != name) {
            links.push((name.to_owned(), part.to_owned()));
        }
    }
    // A controller whose hierarchy is mounted under another's name.
    for controller in group.hierarchy().controllers() {
        let plain = controller.v1_name();
        let point = group.hierarchy().point(controller).and_then(|point| point.file_name());
        let Some(name) = point.and_then(|name| name.to_str()) else { continue };
        let known = controller == Controller::Systemd
            || trees.iter().any(|(tree, _)| tree == plain)
            || links.iter().any(|(_, link)| link == plain);
        if !known {
            links.push((name.to_owned(), plain.to_owned()));
        }
    }
    Ok(CgroupMount::Separate { dir: None, trees, links })
}

impl CgroupMount {
    /// The raw descriptors it holds.
    pub(crate) fn raw_fds(&self) -> Vec<RawFd> {
        match self {
            Self::Unified { tree } => tree.iter().map(AsRawFd::as_raw_fd).collect(),
            Self::UnifiedMachine { tree, .. } => vec![tree.as_raw_fd()],
            Self::Separate { dir, trees, .. } => {
                let trees = trees.iter().map(|(_, tree)| tree);
                dir.iter().chain(trees).map(AsRawFd::as_raw_fd).collect()
            }
            Self::None => Vec::new(),
        }
    }

    /// Runs inside the container, after its cgroup namespace was entered.
    pub(crate) fn mount_private(&mut self, flags: MountAttrFlags) -> Result<()> {
        let usual = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        match self {
            Self::Unified { tree } => {
                *tree = Some(detached_filesystem("cgroup2", &[], flags | usual)?);
            }
            Self::UnifiedMachine { read_only, .. } => {
                *read_only = flags.contains(MountAttrFlags::MOUNT_ATTR_RDONLY);
            }
            Self::Separate { dir, trees, .. } => {
                *dir = Some(detached_filesystem("tmpfs", &["mode=755".to_owned()], usual)?);
                for (name, tree) in trees {
                    let set = u64::from((flags | usual).bits());
                    change_mount(tree.as_fd(), MountChange { set, ..MountChange::default() })
                        .during(format_args!("setting the flags of the {name} control group"))?;
                }
            }
            Self::None => {}
        }
        Ok(())
    }

    pub(crate) fn attach(&self, root: &ContainerRoot, target: &str) -> Result<()> {
        let mount_point = root.find_or_create(target, CreateAs::Dir)?;
        match self {
            Self::Unified { tree: Some(tree) } => {
                move_onto(tree, &mount_point).during(format_args!("mounting onto {target}"))
            }
            Self::UnifiedMachine { tree, read_only } => {
                move_onto(tree, &mount_point).during(format_args!("mounting onto {target}"))?;
                let set = if *read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
                change_mount(tree.as_fd(), MountChange { set, ..MountChange::default() })
                    .during(format_args!("setting the flags of {target}"))
            }
            Self::Separate { dir: Some(dir), trees, links } => {
                move_onto(dir, &mount_point).during(format_args!("mounting onto {target}"))?;
                for (name, tree) in trees {
                    let mount_point =
                        root.find_or_create(&format!("{target}/{name}"), CreateAs::Dir)?;
                    move_onto(tree, &mount_point)
                        .during(format_args!("mounting onto {target}/{name}"))?;
                }
                for (name, link) in links {
                    root.link(name, &format!("{target}/{link}"))?;
                }
                let set = libc::MOUNT_ATTR_RDONLY;
                change_mount(dir.as_fd(), MountChange { set, ..MountChange::default() })
                    .during(format_args!("making {target} read-only"))
            }
            _ => Ok(()),
        }
    }
}
