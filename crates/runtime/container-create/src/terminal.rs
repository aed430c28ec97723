//! A terminal in the container's own `/dev/pts`.
//!
//! Rule: the master is opened on a filesystem that was checked to be a devpts; the other side is
//! opened by the master and not by a path. Does not copy data.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, ResolveFlags};

use crate::error::{CreateError, During, Result};
use crate::mounts::{detached_copy, move_onto};
use crate::paths::{ContainerRoot, CreateAs};
use crate::spec::{SecuritySpec, TerminalSize};
use crate::system::{set_terminal_size, terminal_peer};

const DEVPTS_MAGIC: u64 = 0x1cd1;

pub(crate) struct ContainerTerminal {
    pub(crate) master: OwnedFd,
    pub(crate) peer: OwnedFd,
}

/// Runs inside, with the container's root as root.
pub(crate) fn open(
    root: &ContainerRoot,
    size: Option<TerminalSize>,
    security: &SecuritySpec,
) -> Result<ContainerTerminal> {
    let step = "opening a terminal in the container's /dev/pts";
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let master = root.open("/dev/pts/ptmx", flags, ResolveFlags::NO_SYMLINKS).during(step)?;
    let kind = rustix::fs::fstatfs(&master).during(step)?.f_type;
    if u64::try_from(kind) != Ok(DEVPTS_MAGIC) {
        return Err(CreateError::invalid_spec("/dev/pts in the container is no devpts"));
    }
    let peer = terminal_peer(master.as_fd()).during(step)?;
    if let Some(size) = size.filter(|size| size.rows > 0 && size.columns > 0) {
        set_terminal_size(&master, size).during("setting the terminal's size")?;
    }
    let owner = rustix::fs::Uid::from_raw(security.uid);
    rustix::fs::fchown(&peer, Some(owner), None).during("giving the terminal to its user")?;
    Ok(ContainerTerminal { master, peer })
}

/// Binds the terminal to the container's `/dev/console`. An image may have put a link there: it
/// would choose what the terminal covers, including files of `/proc` that are not masked yet.
pub(crate) fn bind_console(root: &ContainerRoot, terminal: &ContainerTerminal) -> Result<()> {
    const CONSOLE: &str = "/dev/console";
    let mount_point = match root.find_without_links(CONSOLE) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            root.find_or_create(CONSOLE, CreateAs::File)?
        }
        found => found.during("opening /dev/console, which may be no link, in the container")?,
    };
    let tree = detached_copy(&terminal.peer, false).during("copying the terminal's mount")?;
    move_onto(&tree, &mount_point).during("mounting onto /dev/console")
}
