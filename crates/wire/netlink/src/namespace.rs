//! Network namespaces with a name in the file system.
//!
//! Rule: a namespace lives as long as its file is mounted or a process is in it. It is created and
//! mounted on a thread of its own, which ends; no other thread changes its namespace.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::UnshareFlags;

use crate::socket::{NetlinkError, Result};

const OWN_NETNS: &str = "/proc/thread-self/ns/net";

/// Creates a network namespace and mounts it at `path`, a file that is created. Returns the
/// namespace.
pub fn pin_new_namespace(path: &Path) -> Result<OwnedFd> {
    let operation = || format!("making the network namespace {}", path.display());
    let refused = |cause| NetlinkError::Refused { operation: operation(), cause };
    let failed = |error: std::io::Error| NetlinkError::Invalid {
        operation: operation(),
        reason: error.to_string(),
    };
    OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed)?;
    std::thread::scope(|scope| {
        let work = || {
            unshare_network().map_err(refused)?;
            mount_bind(OWN_NETNS, path).map_err(refused)?;
            File::open(OWN_NETNS).map(OwnedFd::from).map_err(failed)
        };
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work);
        thread.map_err(failed)?.join().unwrap_or_else(|_| {
            Err(NetlinkError::Invalid {
                operation: operation(),
                reason: "the thread panicked".to_owned(),
            })
        })
    })
}

#[expect(deprecated, reason = "unsafe is only the flag for descriptor tables, which is not given")]
fn unshare_network() -> std::result::Result<(), Errno> {
    rustix::thread::unshare(UnshareFlags::NEWNET)
}

/// Unmounts and removes the file; one that does not exist is no error.
pub fn unpin_namespace(path: &Path) -> Result<()> {
    let operation = || format!("releasing the network namespace {}", path.display());
    loop {
        match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // Mounted more than once by an interrupted attempt.
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(cause) => return Err(NetlinkError::Refused { operation: operation(), cause }),
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(NetlinkError::Invalid { operation: operation(), reason: error.to_string() })
        }
        _ => Ok(()),
    }
}
