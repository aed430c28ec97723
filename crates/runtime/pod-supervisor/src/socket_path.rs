//! A path to a supervisor's socket, however deep its directory is.
//!
//! Rule: a socket address holds 107 bytes of path. A longer path is reached through the open
//! directory (`/proc/self/fd`). The supervisor changes into its directory to listen, which a server
//! with many threads cannot do.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Size of `sun_path` without the final zero byte.
const LONGEST: usize = 107;

/// The path to connect to, valid while the directory is open.
#[derive(Debug)]
pub(crate) struct SocketPath {
    pub(crate) path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// `folder` is the pod's directory.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let path = folder.join(crate::SOCKET);
        if path.as_os_str().len() <= LONGEST {
            return Ok(Self { path, _folder: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), crate::SOCKET).into();
        Ok(Self { path, _folder: Some(folder) })
    }
}
