//! The status of containers whose supervisor has died.
//!
//! Rule: an exit code comes from a record or from the kernel, or is unknown; none is invented. A
//! PID is trusted only with the start time that was recorded beside it. Starts and ends nothing
//! except in [`kill`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags};

use crate::protocol::{ContainerState, ProcessExit};
use crate::socket_path::SocketPath;
use crate::supervisor::recorded;

#[cfg(test)]
mod tests;

/// State of a container's first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanStatus {
    Running,
    /// As recorded by its supervisor, or as the kernel reports it.
    Exited(ProcessExit),
    /// It has exited, and its exit code is lost.
    Unknown,
}

/// Whether a supervisor listens in this pod directory. After its death or a reboot none does.
pub fn supervisor_is_alive(dir: &Path) -> bool {
    SocketPath::of(dir).is_ok_and(|socket| UnixStream::connect(&socket.path).is_ok())
}

/// The container states that the supervisor recorded; an unreadable record is an error in the list.
pub fn records(dir: &Path) -> io::Result<Vec<io::Result<ContainerState>>> {
    recorded(dir)
}

/// Opens a pidfd for a container's first process. While it is open, the kernel can report how the
/// process exited. None if the process is not running any more.
pub fn open_pidfd(state: &ContainerState) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(state.pid).ok()?)?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let files = container_create::ProcessFiles::open().ok()?;
    // Checked after the open: with the same start time it is the same process.
    (files.start_ticks(state.pid)? == state.start_ticks).then_some(pidfd)
}

/// Status of a container. `pidfd` is the pidfd that [`open_pidfd`] opened while it ran, if any.
pub fn orphan_status(state: &ContainerState, pidfd: Option<&OwnedFd>) -> OrphanStatus {
    if let Some(exit) = state.exit {
        return OrphanStatus::Exited(exit);
    }
    let own;
    let pidfd = match pidfd {
        Some(pidfd) => pidfd,
        None => match open_pidfd(state) {
            Some(pidfd) => {
                own = pidfd;
                &own
            }
            None => return OrphanStatus::Unknown,
        },
    };
    if !has_ended(pidfd) {
        return OrphanStatus::Running;
    }
    // Until the process is reaped its exit status is in /proc, afterwards in the pidfd; it may be
    // reaped between the reads.
    let exit = exit_code(pidfd).or_else(|| unreaped_exit(state)).or_else(|| exit_code(pidfd));
    exit.map_or(OrphanStatus::Unknown, OrphanStatus::Exited)
}

/// Exit status of a zombie.
fn unreaped_exit(state: &ContainerState) -> Option<ProcessExit> {
    let files = container_create::ProcessFiles::open().ok()?;
    let status = files.unreaped_status(state.pid, state.start_ticks)?;
    Some(exit_from(status))
}

fn exit_from(status: i32) -> ProcessExit {
    let signal = status & 0x7f;
    let code = if signal == 0 { (status >> 8) & 0xff } else { 128 + signal };
    ProcessExit { code, signal, ..ProcessExit::default() }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut watched = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// `struct pidfd_info`, first version.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    group: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const WANT_EXIT: u64 = 1 << 3;
/// `_IOWR(0xFF, 11, struct pidfd_info)` with the size of the first version, 64 bytes, which the
/// kernel reads.
const fn request(size: usize) -> libc::c_ulong {
    (3 << 30) | ((size as libc::c_ulong) << 16) | (0xFF << 8) | 11
}

/// Exit status from the kernel (6.15 and later), which also works after the parent that reaped the
/// process has exited.
pub fn exit_code(pidfd: impl AsFd) -> Option<ProcessExit> {
    let mut information = PidfdInfo { mask: WANT_EXIT, ..PidfdInfo::default() };
    let number = request(size_of::<PidfdInfo>());
    // SAFETY: the kernel writes at most as many bytes as the request's number says, which is the
    // size of the structure.
    let outcome =
        unsafe { libc::ioctl(pidfd.as_fd().as_raw_fd(), number as _, &raw mut information) };
    if outcome < 0 || information.mask & WANT_EXIT == 0 {
        return None;
    }
    Some(exit_from(information.exit_code))
}

/// Sends SIGKILL to all processes of a container through its cgroup, or else to its first process.
pub fn kill(state: &ContainerState) -> io::Result<()> {
    if !state.cgroup.is_empty()
        && let Ok(hierarchy) = cgroup_files::CgroupHierarchies::detect()
    {
        let group = hierarchy.group(&state.cgroup).and_then(|group| group.kill());
        return group.map_err(|error| io::Error::other(error.to_string()));
    }
    match open_pidfd(state) {
        Some(pidfd) => rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL)
            .map_err(Into::into),
        None => Ok(()),
    }
}
