//! Starts a supervisor so that it outlives the process that started it.
//!
//! Rule: the program runs from a sealed memfd: an upgrade of the installed file does not affect it,
//! and no container can write to it or remove its execute permission, although root in a container
//! may find a path to it below `/proc`. Where the kernel cannot seal the mode, every pod has its
//! own file and can damage only that. The supervisor runs in its own session and outside the
//! launcher's cgroup, and is not its child. Blocks until the supervisor listens or has failed: call
//! it where blocking is allowed. If the launcher dies before that, the half-started supervisor
//! exits too: either a supervisor can be found by its socket, or there is none.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;

/// How long a start may take on a busy machine.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);
const LOG: &str = "supervisor.log";

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("creating a memfd of {path}: {source}")]
    SupervisorProgram { path: PathBuf, source: io::Error },
    #[error("starting the supervisor of {dir}: {source}")]
    Start { dir: PathBuf, source: io::Error },
    #[error("the supervisor of {dir} did not start: {message}")]
    Failed { dir: PathBuf, message: String },
}

/// The program in memory; created once and used for every pod, so that all share its pages.
#[derive(Debug)]
pub struct SupervisorProgram {
    memory: OwnedFd,
    seal: SealedParts,
}

/// Which properties of a memfd are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SealedParts {
    /// Content and execute permission (Linux 6.3).
    ContentAndMode,
    Content,
}

impl SupervisorProgram {
    /// The running executable, which calls [`crate::supervisor::run_if_called`] first of all.
    pub fn own() -> Result<Self, LaunchError> {
        Self::from_file(Path::new("/proc/self/exe"))
    }

    pub fn from_file(path: &Path) -> Result<Self, LaunchError> {
        let failed = |source| LaunchError::SupervisorProgram { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        Self::from_reader(&mut file, SealedParts::ContentAndMode).map_err(failed)
    }

    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, LaunchError> {
        let failed =
            |source| LaunchError::SupervisorProgram { path: PathBuf::from("memory"), source };
        Self::from_reader(&mut bytes, SealedParts::ContentAndMode).map_err(failed)
    }

    /// Behaves as on a kernel that cannot seal the mode.
    #[must_use]
    pub fn one_file_per_pod(mut self) -> Self {
        self.seal = SealedParts::Content;
        self
    }

    fn from_reader(source: &mut impl Read, wanted: SealedParts) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Newer kernels may make a memfd non-executable without the flag; older ones reject it.
        let memory = rustix::fs::memfd_create("keelson-pod", flags | MemfdFlags::EXEC)
            .or_else(|_| rustix::fs::memfd_create("keelson-pod", flags))?;
        let mut file = File::from(memory);
        io::copy(source, &mut file)?;
        let memory = OwnedFd::from(file);
        rustix::fs::fchmod(&memory, Mode::from_raw_mode(0o555))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        if wanted == SealedParts::ContentAndMode {
            match rustix::fs::fcntl_add_seals(&memory, seals | SealFlags::EXEC) {
                Ok(()) => return Ok(Self { memory, seal: wanted }),
                Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        Ok(Self { memory, seal: SealedParts::Content })
    }

    /// None: several pods may share this one.
    fn copy_for_one_pod(&self) -> io::Result<Option<Self>> {
        match self.seal {
            SealedParts::ContentAndMode => Ok(None),
            SealedParts::Content => {
                let mut file = File::open(self.path())?;
                Self::from_reader(&mut file, SealedParts::Content).map(Some)
            }
        }
    }

    /// The path from which this process executes it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.memory.as_raw_fd())
    }

    /// `dir` is the pod's directory: it exists and only root can enter it. `cgroup` is where the
    /// supervisor runs: a path, or `SLICE:SCOPE` for a scope created by systemd; none leaves it in
    /// the caller's.
    pub fn launch(&self, dir: &Path, cgroup: Option<&str>) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Start { dir: dir.to_owned(), source };
        let log = File::options().create(true).append(true).open(dir.join(LOG)).map_err(failed)?;
        let before = log.metadata().map_err(failed)?.len();
        let copy = self.copy_for_one_pod().map_err(failed)?;
        let mut child = Command::new(copy.as_ref().unwrap_or(self).path())
            .arg0(crate::supervisor::NAME)
            .arg(dir)
            .arg(cgroup.unwrap_or_default())
            // The parent that it must still have when it has requested its death signal.
            .arg(std::process::id().to_string())
            .arg(crate::descriptors::before().map(|soft| soft.to_string()).unwrap_or_default())
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let until = Instant::now() + LAUNCH_TIMEOUT;
        let pidfd = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pidfd =
            pidfd.ok_or_else(|| failed(io::Error::other("no process"))).and_then(|pid| {
                let flags = rustix::process::PidfdFlags::empty();
                rustix::process::pidfd_open(pid, flags).map_err(|errno| failed(errno.into()))
            })?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = rustix::event::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or_default(),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut watched = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
            match rustix::event::poll(&mut watched, Some(&left)) {
                Err(Errno::INTR) => {}
                Ok(0) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let message = format!("it did not listen within {LAUNCH_TIMEOUT:?}");
                    return Err(LaunchError::Failed { dir: dir.to_owned(), message });
                }
                _ => break,
            }
        }
        let status = child.wait().map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        let log_text = std::fs::read(dir.join(LOG)).unwrap_or_default();
        let log_text =
            log_text.get(usize::try_from(before).unwrap_or_default()..).unwrap_or_default();
        let log_text = String::from_utf8_lossy(log_text).trim().to_owned();
        let message = if log_text.is_empty() { status.to_string() } else { log_text };
        Err(LaunchError::Failed { dir: dir.to_owned(), message })
    }
}
