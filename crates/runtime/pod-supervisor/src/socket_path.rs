//! A way to a supervisor's socket, however deep its folder lies.
//!
//! Rule: a socket's name has 107 letters, a path has none to spare for that; what is longer is reached
//! through its folder, held open. The supervisor listens by entering the folder, which a server with
//! many threads cannot.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// What `sun_path` holds, without the end of the text.
const LONGEST: usize = 107;

/// The path to connect to, as long as the folder is held.
#[derive(Debug)]
pub(crate) struct SocketPath {
    pub(crate) path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// `folder` is the pod's.
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
