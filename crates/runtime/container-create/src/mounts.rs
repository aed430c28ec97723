//! A container's mounts: prepared with the host's privileges, attached with the container's.
//!
//! Rule: everything is a detached mount first (a descriptor without a path), with its flags and id
//! mapping already set, and is then moved onto a target that was opened beneath the root. Nothing
//! is mounted by path. Does not choose mounts.
//!
//! Two steps, because a user namespace is entered in between: [`prepare`] runs as the host's root
//! and opens what belongs to the host; [`Prepared::make_own`] and [`Prepared::attach`] run inside.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use crate::error::{During, Result, Trouble};
use crate::nodes::Nodes;
use crate::paths::{Missing, Root, is_folder, open_source};
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
pub(crate) struct Surroundings<'a> {
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
pub(crate) struct Prepared {
    spec: MountSpec,
    kind: MountKind,
    source: Source,
}

enum Source {
    /// A detached mount of the host.
    Machine {
        tree: OwnedFd,
        folder: bool,
    },
    /// A filesystem that the container mounts for itself; the descriptor is set once it has.
    Own {
        filesystem: &'static str,
        options: Vec<String>,
        tree: Option<OwnedFd>,
    },
    /// `/dev`: a tmpfs, with nodes created beforehand if the container can create none.
    Dev {
        options: Vec<String>,
        tree: Option<OwnedFd>,
        nodes: devices::ReadyNodes,
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
pub(crate) fn prepare(specs: &[MountSpec], around: &Surroundings<'_>) -> Result<Vec<Prepared>> {
    specs.iter().map(|spec| prepare_one(spec, around)).collect()
}

fn prepare_one(spec: &MountSpec, around: &Surroundings<'_>) -> Result<Prepared> {
    let kind = MountKind::try_from(spec.kind)
        .map_err(|_| Trouble::bad(format!("the mount at {} is of an unknown kind", spec.target)))?;
    if !spec.target.starts_with('/') {
        let target = &spec.target;
        return Err(Trouble::bad(format!("the mount target {target:?} is not an absolute path")));
    }
    let own = |filesystem, extra: &[&str]| {
        let mut options = spec.options.clone();
        for option in extra {
            let key = option.split('=').next().unwrap_or(option);
            if !options.iter().any(|one| one.split('=').next() == Some(key)) {
                options.push((*option).to_owned());
            }
        }
        options.extend(label_option(filesystem, around.label));
        Source::Own { filesystem, options, tree: None }
    };
    let source = match kind {
        MountKind::Bind => prepare_bind(spec, around)?,
        MountKind::Tmpfs => own("tmpfs", &[]),
        MountKind::Proc => Source::Own {
            filesystem: "proc",
            options: [spec.options.as_slice(), around.proc_options].concat(),
            tree: None,
        },
        MountKind::Sysfs => own("sysfs", &[]),
        MountKind::Mqueue => own("mqueue", &[]),
        MountKind::Devpts => own("devpts", &["newinstance", "ptmxmode=0666", "mode=0620"]),
        MountKind::Cgroup => Source::Cgroup(cgroups::prepare(around)?),
        MountKind::Dev => Source::Dev {
            options: dev_options(spec, around.label),
            tree: None,
            nodes: devices::ReadyNodes::default(),
        },
    };
    Ok(Prepared { spec: spec.clone(), kind, source })
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

fn prepare_bind(spec: &MountSpec, around: &Surroundings<'_>) -> Result<Source> {
    let source = open_source(&spec.source, &spec.sub_path, spec.no_symlinks_in_source)?;
    let folder = is_folder(&source)?;
    let named = format!("the mount of {} at {}", spec.source, spec.target);
    let tree =
        detached_copy(&source, !spec.not_recursive).during(format_args!("copying {named}"))?;
    if let Some(namespace) = id_namespace(spec, around.user_namespace)? {
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
    Ok(Source::Machine { tree, folder })
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
            Err(Trouble::bad(format!(
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

impl Prepared {
    /// Creates the nodes that a container in a user namespace cannot create. Runs as the host's
    /// root; `owner` is the pod's root id on the host.
    pub(crate) fn make_nodes(&mut self, from: &Nodes, owner: (u32, u32)) -> Result<()> {
        if let Source::Dev { nodes, .. } = &mut self.source {
            *nodes = devices::ReadyNodes::make(from, owner)?;
        }
        Ok(())
    }

    /// Creates the filesystems of the container's own namespaces. Runs inside, while the host's
    /// `/proc` and `/sys` are still visible: only then does the kernel let a user namespace mount
    /// its own.
    pub(crate) fn make_own(&mut self) -> Result<()> {
        let flags = attributes(&self.spec);
        match &mut self.source {
            Source::Own { filesystem, options, tree } => {
                // Mount points in a read-only tmpfs are created first.
                let flags = flags - MountAttrFlags::MOUNT_ATTR_RDONLY;
                *tree = Some(detached_filesystem(filesystem, options, flags)?);
            }
            Source::Dev { options, tree, .. } => {
                let flags = MountAttrFlags::MOUNT_ATTR_NOSUID;
                *tree = Some(detached_filesystem("tmpfs", options, flags)?);
            }
            Source::Cgroup(mount) => mount.make_own(flags)?,
            Source::Machine { .. } => {}
        }
        Ok(())
    }

    /// Attaches the mount. Runs inside, with the container's root as root.
    pub(crate) fn attach(&self, root: &Root) -> Result<()> {
        let target = &self.spec.target;
        let tree = match &self.source {
            Source::Machine { tree, .. } => tree,
            Source::Own { tree, .. } | Source::Dev { tree, .. } => {
                tree.as_ref().ok_or_else(|| Trouble::other(format!("no mount for {target}")))?
            }
            Source::Cgroup(mount) => return mount.attach(root, target),
        };
        let missing = match &self.source {
            Source::Machine { folder: false, .. } => Missing::File,
            _ => Missing::Folder,
        };
        let place = self.target(root, missing)?;
        move_onto(tree, &place).during(format_args!("mounting onto {target}"))?;
        let propagation = Propagation::try_from(self.spec.propagation)
            .map_err(|_| Trouble::bad(format!("the propagation of {target} is unknown")))?;
        set_propagation(tree, propagation, true)
            .during(format_args!("setting the propagation of {target}"))?;
        if let Source::Dev { nodes, .. } = &self.source {
            nodes.fill(root, target)?;
        }
        Ok(())
    }

    pub(crate) fn target_path(&self) -> &str {
        &self.spec.target
    }

    /// Only a process in the container's own PID and cgroup namespaces can create it.
    pub(crate) fn shows_the_process(&self, own_groups: bool) -> bool {
        match &self.source {
            Source::Cgroup(cgroups::CgroupMount::Unified { .. }) => own_groups,
            _ => self.kind == MountKind::Proc,
        }
    }

    /// Creates the mount point beforehand. What is in `/proc` comes with its mount.
    pub(crate) fn make_place(&self, root: &Root) -> Result<()> {
        match self.kind {
            MountKind::Proc => self.target(root, Missing::Folder).map(drop),
            MountKind::Cgroup => root.find_or_make(&self.spec.target, Missing::Folder).map(drop),
            _ => Ok(()),
        }
    }

    /// The raw descriptors it holds.
    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        match &self.source {
            Source::Machine { tree, .. } => vec![tree.as_raw_fd()],
            Source::Own { tree, .. } => tree.iter().map(AsRawFd::as_raw_fd).collect(),
            Source::Dev { tree, nodes, .. } => {
                tree.iter().map(AsRawFd::as_raw_fd).chain(nodes.numbers()).collect()
            }
            Source::Cgroup(mount) => mount.numbers(),
        }
    }

    /// Must come after all mounts: makes filesystems read-only.
    pub(crate) fn finish(&self) -> Result<()> {
        let Source::Own { tree: Some(tree), .. } = &self.source else { return Ok(()) };
        if !(self.spec.read_only || self.spec.recursive_read_only) {
            return Ok(());
        }
        let change = MountChange { set: libc::MOUNT_ATTR_RDONLY, ..MountChange::default() };
        change_mount(tree.as_fd(), change)
            .during(format_args!("making {} read-only", self.spec.target))
    }

    /// `/proc` and `/sys` may not be links: their masks would apply elsewhere.
    fn target(&self, root: &Root, missing: Missing) -> Result<OwnedFd> {
        let target = &self.spec.target;
        if matches!(self.kind, MountKind::Proc | MountKind::Sysfs) {
            match root.find_without_links(target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                outcome => {
                    return outcome.during(format_args!("{target} must be a directory, no link"));
                }
            }
        }
        let place = root.find_or_make(target, missing)?;
        if is_folder(&place)? != (missing == Missing::Folder) {
            return Err(Trouble::bad(format!(
                "{target} in the container is {} and what is mounted there is not",
                if missing == Missing::Folder { "a file" } else { "a directory" }
            )));
        }
        self.refuse_kernel_trees(root, &place)?;
        Ok(place)
    }

    /// A bind onto the container's `/proc` or something in it would undo the masks there. Upstream
    /// allows the host's whole `/proc` and a few files that resource emulators replace, and so do
    /// we.
    ///
    /// upstream: runc libcontainer/rootfs_linux.go (checkProcMount)
    fn refuse_kernel_trees(&self, root: &Root, place: &OwnedFd) -> Result<()> {
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
        let is_proc = named == "/proc" || is_same(place, root.find_without_links("/proc").ok())?;
        if is_proc {
            return if self.is_a_procfs()? {
                Ok(())
            } else {
                Err(Trouble::bad(format!(
                    "{target:?} is the container's /proc; only a procfs is mounted there"
                )))
            };
        }
        let kind = rustix::fs::fstatfs(place).during("looking at a mount target")?.f_type;
        let is_within = named.starts_with("/proc/") || u64::try_from(kind) == Ok(PROC_MAGIC);
        if is_within && !REPLACEABLE.contains(&named.as_str()) {
            return Err(Trouble::bad(format!("{target} lies in /proc; nothing is mounted there")));
        }
        Ok(())
    }

    /// Binding the host's whole `/proc` is a common way to give it to a monitoring agent.
    fn is_a_procfs(&self) -> Result<bool> {
        let Source::Machine { tree, .. } = &self.source else { return Ok(false) };
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
    move_onto(tree, &leave_machine()?).during("mounting the root")?;
    change_root(tree)
}

/// Mounts the future root at a path, where hooks find it while the host's root is still there.
pub(crate) fn show_root(tree: &OwnedFd, place: &str) -> Result<()> {
    drop(leave_machine()?);
    let place = open_source(place, "", false)?;
    move_onto(tree, &place).during("mounting the root")
}

/// Enters a new mount namespace with private mounts. Returns its root.
pub(crate) fn part_from_machine() -> Result<OwnedFd> {
    unshare(NEW_MOUNT).during("leaving the machine's mount namespace")?;
    leave_machine()
}

/// Makes all mounts private, so that new ones do not propagate to the host. Returns the root.
fn leave_machine() -> Result<OwnedFd> {
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
