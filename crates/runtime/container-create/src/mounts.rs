//! A container's mounts: prepared with the host's privileges, attached with the container's.
//!
//! Rule: everything is a detached mount first (a descriptor without a path), with its flags and id
//! mapping already set, and is then moved onto a target that was opened beneath the root. Nothing
//! is mounted by path. Does not choose mounts.
//!
//! Two steps, because a user namespace is entered in between: [`prepare`] runs as the host's root
//! and opens what belongs to the host; [`PreparedMount::mount_private`] and
//! [`PreparedMount::attach`] run inside.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use crate::error::{CreateError, During, Result};
use crate::nodes::DeviceInodes;
use crate::paths::{ContainerRoot, CreateAs, is_dir, open_source};
use crate::spec::{IdMappings, MountKind, MountSpec, Propagation};
use crate::system::{MountChange, NEW_MOUNT, change_mount, unshare};
use crate::{devices, user_namespace};

pub(crate) mod cgroups;
pub(crate) mod masks;
pub(crate) mod overlay;
#[cfg(test)]
mod tests;

const PROC_MAGIC: u64 = 0x9fa0;
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// What [`prepare`] needs beside the list of mounts.
pub(crate) struct MountContext<'a> {
    pub(crate) user_namespace: Option<BorrowedFd<'a>>,
    /// The container's cgroup, for version 1's cgroup mounts.
    pub(crate) group: Option<&'a cgroup_files::Cgroup>,
    /// The container has a cgroup namespace of its own.
    pub(crate) own_cgroup_namespace: bool,
    pub(crate) proc_options: &'a [String],
    /// The SELinux label of the container's files; empty for none.
    pub(crate) label: &'a str,
}

/// A mount that is prepared and not yet attached.
pub(crate) struct PreparedMount {
    spec: MountSpec,
    kind: MountKind,
    source: MountSource,
}

enum MountSource {
    /// A detached mount of the host.
    Machine {
        tree: OwnedFd,
        dir: bool,
    },
    /// A filesystem that the container mounts for itself; the descriptor is set once it has.
    Private {
        filesystem: &'static str,
        options: Vec<String>,
        tree: Option<OwnedFd>,
    },
    /// `/dev`: a tmpfs, with nodes created beforehand if the container can create none.
    Dev {
        options: Vec<String>,
        tree: Option<OwnedFd>,
        nodes: devices::PrecreatedNodes,
    },
    Cgroup(cgroups::CgroupMount),
}

/// A detached copy of a mount (and of the mounts beneath it).
pub(crate) fn detached_copy(of: impl AsFd, recursive: bool) -> std::io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(of.as_fd(), "", flags).map_err(Into::into)
}

/// A new filesystem as a detached mount.
pub(crate) fn detached_filesystem(
    name: &str,
    options: &[String],
    attributes: MountAttrFlags,
) -> Result<OwnedFd> {
    let step = format!("making a {name}");
    let filesystem = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC).during(&step)?;
    for option in options {
        match option.split_once('=') {
            Some((key, value)) => rustix::mount::fsconfig_set_string(&filesystem, key, value),
            None => rustix::mount::fsconfig_set_flag(&filesystem, option.as_str()),
        }
        .during(format_args!("{step} with the option {option:?}"))?;
    }
    rustix::mount::fsconfig_create(&filesystem).during(&step)?;
    rustix::mount::fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes).during(&step)
}

/// Attaches a detached mount onto the descriptor's file.
pub(crate) fn move_onto(tree: impl AsFd, target: impl AsFd) -> std::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree.as_fd(), "", target.as_fd(), "", flags).map_err(Into::into)
}

/// Opens what belongs to the host. Runs as the host's root, in its mount namespace.
pub(crate) fn prepare(
    specs: &[MountSpec],
    mount_context: &MountContext<'_>,
) -> Result<Vec<PreparedMount>> {
    specs.iter().map(|spec| prepare_one(spec, mount_context)).collect()
}

fn prepare_one(spec: &MountSpec, mount_context: &MountContext<'_>) -> Result<PreparedMount> {
    let kind = MountKind::try_from(spec.kind).map_err(|_| {
        CreateError::invalid_spec(format!("the mount at {} is of an unknown kind", spec.target))
    })?;
    if !spec.target.starts_with('/') {
        let target = &spec.target;
        return Err(CreateError::invalid_spec(format!(
            "the mount target {target:?} is not an absolute path"
        )));
    }
    let own = |filesystem, extra: &[&str]| {
        let mut options = spec.options.clone();
        for option in extra {
            let key = option.split('=').next().unwrap_or(option);
            if !options.iter().any(|one| one.split('=').next() == Some(key)) {
                options.push((*option).to_owned());
            }
        }
        options.extend(label_option(filesystem, mount_context.label));
        MountSource::Private { filesystem, options, tree: None }
    };
    let source = match kind {
        MountKind::Bind => prepare_bind(spec, mount_context)?,
        MountKind::Tmpfs => own("tmpfs", &[]),
        MountKind::Proc => MountSource::Private {
            filesystem: "proc",
            options: [spec.options.as_slice(), mount_context.proc_options].concat(),
            tree: None,
        },
        MountKind::Sysfs => own("sysfs", &[]),
        MountKind::Mqueue => own("mqueue", &[]),
        MountKind::Devpts => own("devpts", &["newinstance", "ptmxmode=0666", "mode=0620"]),
        MountKind::Cgroup => MountSource::Cgroup(cgroups::prepare(mount_context)?),
        MountKind::Dev => MountSource::Dev {
            options: dev_options(spec, mount_context.label),
            tree: None,
            nodes: devices::PrecreatedNodes::default(),
        },
    };
    Ok(PreparedMount { spec: spec.clone(), kind, source })
}

/// The label as an option of fsconfig(2). Kernel filesystems keep their own labels, and so does
/// mqueue: a filesystem that the pod's containers share can be mounted with one label only.
pub(crate) fn label_option(filesystem: &str, label: &str) -> Option<String> {
    let labelled = matches!(filesystem, "tmpfs" | "devpts") && !label.is_empty();
    labelled.then(|| format!("context={label}"))
}

fn dev_options(spec: &MountSpec, label: &str) -> Vec<String> {
    let mut options = spec.options.clone();
    if options.is_empty() {
        options = vec!["mode=755".to_owned(), "size=65536k".to_owned()];
    }
    options.extend(label_option("tmpfs", label));
    options
}

fn prepare_bind(spec: &MountSpec, mount_context: &MountContext<'_>) -> Result<MountSource> {
    let source = open_source(&spec.source, &spec.sub_path, spec.no_symlinks_in_source)?;
    let dir = is_dir(&source)?;
    let named = format!("the mount of {} at {}", spec.source, spec.target);
    let tree =
        detached_copy(&source, !spec.not_recursive).during(format_args!("copying {named}"))?;
    if let Some(namespace) = id_namespace(spec, mount_context.user_namespace)? {
        let change = MountChange {
            set: libc::MOUNT_ATTR_IDMAP,
            user_namespace: Some(namespace.as_fd()),
            ..MountChange::default()
        };
        change_mount(tree.as_fd(), change).during(format_args!("mapping the ids of {named}"))?;
    }
    let change = MountChange {
        set: attributes(spec).bits().into(),
        recursive: spec.recursive_read_only,
        ..MountChange::default()
    };
    change_mount(tree.as_fd(), change).during(format_args!("setting the flags of {named}"))?;
    Ok(MountSource::Machine { tree, dir })
}

/// The user namespace of an id-mapped mount, if it is one.
fn id_namespace(spec: &MountSpec, pod: Option<BorrowedFd<'_>>) -> Result<Option<OwnedFd>> {
    let own = spec.id_mappings.as_ref().filter(|ranges| **ranges != IdMappings::default());
    match (own, spec.map_ids, pod) {
        (Some(ranges), ..) => user_namespace::holding(ranges).map(Some),
        (None, true, Some(pod)) => {
            pod.try_clone_to_owned().during("copying a descriptor").map(Some)
        }
        (None, true, None) => {
            let target = &spec.target;
            Err(CreateError::invalid_spec(format!(
                "the mount at {target} maps ids, but the pod has no user namespace"
            )))
        }
        (None, false, _) => Ok(None),
    }
}

fn attributes(spec: &MountSpec) -> MountAttrFlags {
    [
        (spec.read_only || spec.recursive_read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (spec.no_suid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (spec.no_exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (spec.no_dev, MountAttrFlags::MOUNT_ATTR_NODEV),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .fold(MountAttrFlags::empty(), |all, (_, one)| all | one)
}

impl PreparedMount {
    /// Creates the nodes that a container in a user namespace cannot create. Runs as the host's
    /// root; `owner` is the pod's root id on the host.
    pub(crate) fn make_nodes(&mut self, from: &DeviceInodes, owner: (u32, u32)) -> Result<()> {
        if let MountSource::Dev { nodes, .. } = &mut self.source {
            *nodes = devices::PrecreatedNodes::make(from, owner)?;
        }
        Ok(())
    }

    /// Creates the filesystems of the container's own namespaces. Runs inside, while the host's
    /// `/proc` and `/sys` are still visible: only then does the kernel let a user namespace mount
    /// its own.
    pub(crate) fn mount_private(&mut self) -> Result<()> {
        let flags = attributes(&self.spec);
        match &mut self.source {
            MountSource::Private { filesystem, options, tree } => {
                // Mount points in a read-only tmpfs are created first.
                let flags = flags - MountAttrFlags::MOUNT_ATTR_RDONLY;
                *tree = Some(detached_filesystem(filesystem, options, flags)?);
            }
            MountSource::Dev { options, tree, .. } => {
                let flags = MountAttrFlags::MOUNT_ATTR_NOSUID;
                *tree = Some(detached_filesystem("tmpfs", options, flags)?);
            }
            MountSource::Cgroup(mount) => mount.mount_private(flags)?,
            MountSource::Machine { .. } => {}
        }
        Ok(())
    }

    /// Attaches the mount. Runs inside, with the container's root as root.
    pub(crate) fn attach(&self, root: &ContainerRoot) -> Result<()> {
        let target = &self.spec.target;
        let tree = match &self.source {
            MountSource::Machine { tree, .. } => tree,
            MountSource::Private { tree, .. } | MountSource::Dev { tree, .. } => {
                tree.as_ref().ok_or_else(|| CreateError::other(format!("no mount for {target}")))?
            }
            MountSource::Cgroup(mount) => return mount.attach(root, target),
        };
        let missing = match &self.source {
            MountSource::Machine { dir: false, .. } => CreateAs::File,
            _ => CreateAs::Dir,
        };
        let mount_point = self.target(root, missing)?;
        move_onto(tree, &mount_point).during(format_args!("mounting onto {target}"))?;
        let propagation = Propagation::try_from(self.spec.propagation).map_err(|_| {
            CreateError::invalid_spec(format!("the propagation of {target} is unknown"))
        })?;
        set_propagation(tree, propagation, true)
            .during(format_args!("setting the propagation of {target}"))?;
        if let MountSource::Dev { nodes, .. } = &self.source {
            nodes.fill(root, target)?;
        }
        Ok(())
    }

    pub(crate) fn target_path(&self) -> &str {
        &self.spec.target
    }

    /// Only a process in the container's own PID and cgroup namespaces can create it.
    pub(crate) fn is_per_process(&self, has_cgroup: bool) -> bool {
        match &self.source {
            MountSource::Cgroup(cgroups::CgroupMount::Unified { .. }) => has_cgroup,
            _ => self.kind == MountKind::Proc,
        }
    }

    /// Creates the mount point beforehand. What is in `/proc` comes with its mount.
    pub(crate) fn create_mount_point(&self, root: &ContainerRoot) -> Result<()> {
        match self.kind {
            MountKind::Proc => self.target(root, CreateAs::Dir).map(drop),
            MountKind::Cgroup => root.find_or_create(&self.spec.target, CreateAs::Dir).map(drop),
            _ => Ok(()),
        }
    }

    /// The raw descriptors it holds.
    pub(crate) fn raw_fds(&self) -> Vec<RawFd> {
        match &self.source {
            MountSource::Machine { tree, .. } => vec![tree.as_raw_fd()],
            MountSource::Private { tree, .. } => tree.iter().map(AsRawFd::as_raw_fd).collect(),
            MountSource::Dev { tree, nodes, .. } => {
                tree.iter().map(AsRawFd::as_raw_fd).chain(nodes.raw_fds()).collect()
            }
            MountSource::Cgroup(mount) => mount.raw_fds(),
        }
    }

    /// Must come after all mounts: makes filesystems read-only.
    pub(crate) fn finish(&self) -> Result<()> {
        let MountSource::Private { tree: Some(tree), .. } = &self.source else { return Ok(()) };
        if !(self.spec.read_only || self.spec.recursive_read_only) {
            return Ok(());
        }
        let change = MountChange { set: libc::MOUNT_ATTR_RDONLY, ..MountChange::default() };
        change_mount(tree.as_fd(), change)
            .during(format_args!("making {} read-only", self.spec.target))
    }

    /// `/proc` and `/sys` may not be links: their masks would apply elsewhere.
    fn target(&self, root: &ContainerRoot, missing: CreateAs) -> Result<OwnedFd> {
        let target = &self.spec.target;
        if matches!(self.kind, MountKind::Proc | MountKind::Sysfs) {
            match root.find_without_links(target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                outcome => {
                    return outcome.during(format_args!("{target} must be a directory, no link"));
                }
            }
        }
        let mount_point = root.find_or_create(target, missing)?;
        if is_dir(&mount_point)? != (missing == CreateAs::Dir) {
            return Err(CreateError::invalid_spec(format!(
                "{target} in the container is {} and what is mounted there is not",
                if missing == CreateAs::Dir { "a file" } else { "a directory" }
            )));
        }
        self.reject_kernel_filesystems(root, &mount_point)?;
        Ok(mount_point)
    }

    /// A bind onto the container's `/proc` or something in it would undo the masks there. Upstream
    /// allows the host's whole `/proc` and a few files that resource emulators replace, and so do
    /// we.
    ///
    /// upstream: runc libcontainer/rootfs_linux.go (checkProcMount)
    fn reject_kernel_filesystems(&self, root: &ContainerRoot, mount_point: &OwnedFd) -> Result<()> {
        const REPLACEABLE: &[&str] = &[
            "/proc/cpuinfo",
            "/proc/diskstats",
            "/proc/meminfo",
            "/proc/stat",
            "/proc/swaps",
            "/proc/uptime",
            "/proc/loadavg",
            "/proc/slabinfo",
            "/proc/net/dev",
            "/proc/sys/kernel/ns_last_pid",
            "/proc/sys/crypto/fips_enabled",
        ];
        if self.kind == MountKind::Proc {
            return Ok(());
        }
        let target = &self.spec.target;
        let named = without_dots(target);
        let is_proc =
            named == "/proc" || is_same(mount_point, root.find_without_links("/proc").ok())?;
        if is_proc {
            return if self.is_a_procfs()? {
                Ok(())
            } else {
                Err(CreateError::invalid_spec(format!(
                    "{target:?} is the container's /proc; only a procfs is mounted there"
                )))
            };
        }
        let kind = rustix::fs::fstatfs(mount_point).during("looking at a mount target")?.f_type;
        let is_within = named.starts_with("/proc/") || u64::try_from(kind) == Ok(PROC_MAGIC);
        if is_within && !REPLACEABLE.contains(&named.as_str()) {
            return Err(CreateError::invalid_spec(format!(
                "{target} lies in /proc; nothing is mounted there"
            )));
        }
        Ok(())
    }

    /// Binding the host's whole `/proc` is a common way to give it to a monitoring agent.
    fn is_a_procfs(&self) -> Result<bool> {
        let MountSource::Machine { tree, .. } = &self.source else { return Ok(false) };
        let kind = rustix::fs::fstatfs(tree).during("looking at a mount source")?.f_type;
        Ok(matches!(u64::try_from(kind), Ok(PROC_MAGIC | SYSFS_MAGIC)))
    }
}

/// A path without `.`, `..` and doubled slashes.
fn without_dots(path: &str) -> String {
    use std::path::Component;
    let mut parts: Vec<&str> = Vec::new();
    for component in std::path::Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

fn is_same(one: &OwnedFd, other: Option<OwnedFd>) -> Result<bool> {
    let Some(other) = other else { return Ok(false) };
    let step = "looking at a mount target";
    let (one, other) =
        (rustix::fs::fstat(one).during(step)?, rustix::fs::fstat(other).during(step)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Sets the propagation of mounts.
pub(crate) fn set_propagation(
    tree: impl AsFd,
    propagation: Propagation,
    recursive: bool,
) -> std::io::Result<()> {
    let propagation = match propagation {
        Propagation::Private => libc::MS_PRIVATE,
        Propagation::Slave => libc::MS_SLAVE,
        Propagation::Shared => libc::MS_SHARED,
        Propagation::Unbindable => libc::MS_UNBINDABLE,
    };
    let change = MountChange { propagation, recursive, ..MountChange::default() };
    change_mount(tree.as_fd(), change)
}

/// Makes a detached tree the root, and drops the old one.
pub(crate) fn become_root(tree: &OwnedFd) -> Result<()> {
    move_onto(tree, &isolate_mounts()?).during("mounting the root")?;
    change_root(tree)
}

/// Mounts the future root at a path, where hooks find it while the host's root is still there.
pub(crate) fn mount_root_at(tree: &OwnedFd, mount_point: &str) -> Result<()> {
    drop(isolate_mounts()?);
    let mount_point = open_source(mount_point, "", false)?;
    move_onto(tree, &mount_point).during("mounting the root")
}

/// Enters a new mount namespace with private mounts. Returns its root.
pub(crate) fn enter_mount_namespace() -> Result<OwnedFd> {
    unshare(NEW_MOUNT).during("leaving the machine's mount namespace")?;
    isolate_mounts()
}

/// Makes all mounts private, so that new ones do not propagate to the host. Returns the root.
fn isolate_mounts() -> Result<OwnedFd> {
    let everything = rustix::fs::open(
        "/",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .during("opening /")?;
    set_propagation(&everything, Propagation::Slave, true)
        .during("leaving the machine's mounts")?;
    Ok(everything)
}

/// From the host's root into one that is already mounted.
pub(crate) fn change_root(tree: &OwnedFd) -> Result<()> {
    rustix::process::fchdir(tree).during("entering the root")?;
    crate::system::pivot_here().during("changing the root")?;
    rustix::process::chdir("/").during("entering the root")
}

/// Unmounts a pinned namespace; no error if there is none.
pub(crate) fn unmount_pin(path: &str) {
    let _ = rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}
