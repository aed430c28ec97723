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
const MAX_LENGTH: usize = 107;

/// The path to connect to, valid while the directory is open.
#[derive(Debug)]
pub(crate) struct SocketPath {
    pub(crate) path: PathBuf,
    _dir: Option<OwnedFd>,
}

impl SocketPath {
    /// `dir` is the pod's directory.
    pub(crate) fn of(dir: &Path) -> io::Result<Self> {
        let path = dir.join(crate::SOCKET);
        if path.as_os_str().len() <= MAX_LENGTH {
            return Ok(Self { path, _dir: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), crate::SOCKET).into();
        Ok(Self { path, _dir: Some(dir) })
    }
}
