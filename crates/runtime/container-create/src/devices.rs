//! Device nodes and the links beside them in a container's `/dev`.
//!
//! Rule: every node is the container's own, never an inode of the host. With a user namespace, in
//! which nodes cannot be created, they are created beforehand with the host's privileges. Only if
//! that fails is the host's node bound read-only: the device can be written to all the same, its
//! mode and owner cannot be changed. If the image has something else at the path, that is an error.
//! Which devices may be opened is up to the cgroup's device rules.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{CreateError, During, Result};
use crate::mounts::{detached_copy, move_onto};
use crate::nodes::{DeviceInode, DeviceInodes, read_only};
use crate::paths::{ContainerRoot, CreateAs, open_source, split};
use crate::spec::DeviceNode;

/// In every container, readable and writable for all users.
const STANDARD: &[(&str, u32, u32)] = &[
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Nodes created beforehand, for containers that cannot create their own.
#[derive(Default)]
pub(crate) struct PrecreatedNodes(Option<Vec<(&'static str, OwnedFd)>>);

impl PrecreatedNodes {
    /// Runs as the host's root. `owner` is the pod's root id on the host.
    pub(crate) fn make(nodes: &DeviceInodes, owner: (u32, u32)) -> Result<Self> {
        let mut ready = Vec::new();
        for (name, major, minor) in STANDARD {
            let node = DeviceInode::standard(*major, *minor, owner);
            let tree = nodes.node(name, node).or_else(|_| {
                let path = format!("/dev/{name}");
                bind_machine_node(&machine_node(&path, *major, *minor)?, &path)
            })?;
            ready.push((*name, tree));
        }
        Ok(Self(Some(ready)))
    }

    /// The raw descriptors it holds.
    pub(crate) fn raw_fds(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().flatten().map(|(_, node)| node.as_raw_fd())
    }

    /// Runs inside the container; `dev` has just been mounted.
    pub(crate) fn fill(&self, root: &ContainerRoot, dev: &str) -> Result<()> {
        match &self.0 {
            Some(nodes) => {
                for (name, tree) in nodes {
                    let mount_point =
                        root.find_or_create(&format!("{dev}/{name}"), CreateAs::File)?;
                    move_onto(tree, &mount_point)
                        .during(format_args!("mounting onto {dev}/{name}"))?;
                }
            }
            None => {
                for (name, major, minor) in STANDARD {
                    let node = DeviceNode {
                        path: format!("{dev}/{name}"),
                        kind: "c".to_owned(),
                        major: *major,
                        minor: *minor,
                        mode: 0o666,
                        ..DeviceNode::default()
                    };
                    make(root, &node)?;
                }
            }
        }
        LINKS.iter().try_for_each(|(name, target)| root.link(target, &format!("{dev}/{name}")))
    }
}

/// Opens a node of the host, which must be the expected device.
fn machine_node(path: &str, major: u32, minor: u32) -> Result<OwnedFd> {
    let node = open_source(path, "", false)?;
    let stat = rustix::fs::fstat(&node).during(format_args!("looking at {path}"))?;
    let found = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if found != (major, minor) {
        let (have_major, have_minor) = found;
        return Err(CreateError::invalid_spec(format!(
            "{path} is the device {have_major}:{have_minor}; expected {major}:{minor}"
        )));
    }
    Ok(node)
}

fn bind_machine_node(node: &OwnedFd, path: &str) -> Result<OwnedFd> {
    read_only(detached_copy(node, false).during(format_args!("copying the mount of {path}"))?)
}

/// A new inode with the device, mode and owner of the host's node.
fn copied_node(node: &OwnedFd, path: &str, nodes: &DeviceInodes) -> Result<OwnedFd> {
    let stat = rustix::fs::fstat(node).during(format_args!("looking at {path}"))?;
    let copy = DeviceInode {
        kind: FileType::from_raw_mode(stat.st_mode),
        number: stat.st_rdev,
        mode: stat.st_mode & 0o777,
        owner: (stat.st_uid, stat.st_gid),
    };
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("device");
    nodes.node(name, copy).or_else(|_| bind_machine_node(node, path))
}

/// A device of the specification, created beforehand if the container cannot create it.
pub(crate) struct PreparedDevice {
    node: DeviceNode,
    tree: Option<OwnedFd>,
}

/// Runs as the host's root. `bind`: the container cannot create nodes.
pub(crate) fn prepare(
    devices: &[DeviceNode],
    nodes: &DeviceInodes,
    bind: bool,
) -> Result<Vec<PreparedDevice>> {
    let of_machine = |device: &DeviceNode| {
        let source = if device.source.is_empty() { &device.path } else { &device.source };
        let node = machine_node(source, device.major, device.minor)?;
        copied_node(&node, source, nodes)
    };
    devices
        .iter()
        .map(|device| {
            let tree = bind.then(|| of_machine(device)).transpose()?;
            Ok(PreparedDevice { node: device.clone(), tree })
        })
        .collect()
}

impl PreparedDevice {
    /// Runs inside the container, after all mounts.
    pub(crate) fn attach(&self, root: &ContainerRoot) -> Result<()> {
        let path = &self.node.path;
        match &self.tree {
            None => make(root, &self.node),
            Some(tree) => {
                let mount_point = root.find_or_create(path, CreateAs::File)?;
                move_onto(tree, &mount_point).during(format_args!("mounting onto {path}"))
            }
        }
    }
}

fn make(root: &ContainerRoot, node: &DeviceNode) -> Result<()> {
    let path = &node.path;
    let kind = match node.kind.as_str() {
        "c" | "u" => FileType::CharacterDevice,
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        other => {
            return Err(CreateError::invalid_spec(format!(
                "{path}: {other:?} is no kind of device; expected c, b or p"
            )));
        }
    };
    let (parent, name) = split(path)?;
    let dir = root.find_or_create(parent, CreateAs::Dir)?;
    let mode = Mode::from_raw_mode(node.mode & 0o7777);
    let number = rustix::fs::makedev(node.major, node.minor);
    match rustix::fs::mknodat(&dir, name, kind, mode, number) {
        Ok(()) => {}
        Err(Errno::EXIST) => return require_same(&dir, name, kind, number, path),
        Err(errno) => return Err(errno).during(format_args!("making the device {path}")),
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&dir, name, flags, Mode::empty())
        .during(format_args!("opening the device {path}"))?;
    let owner = rustix::fs::Uid::from_raw(node.uid);
    let group = rustix::fs::Gid::from_raw(node.gid);
    let empty = rustix::fs::AtFlags::EMPTY_PATH;
    rustix::fs::chownat(made.as_fd(), "", Some(owner), Some(group), empty)
        .during(format_args!("giving away the device {path}"))
}

fn require_same(dir: &OwnedFd, name: &str, kind: FileType, number: u64, path: &str) -> Result<()> {
    let stat = rustix::fs::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .during(format_args!("looking at {path}"))?;
    let same_number = kind == FileType::Fifo || stat.st_rdev == number;
    if FileType::from_raw_mode(stat.st_mode) == kind && same_number {
        return Ok(());
    }
    Err(CreateError::invalid_spec(format!("{path} is there already and is another thing")))
}
