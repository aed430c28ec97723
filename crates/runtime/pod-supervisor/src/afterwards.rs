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

use crate::protocol::{ContainerState, Exit};
use crate::socket_path::SocketPath;
use crate::supervisor::recorded;

#[cfg(test)]
mod tests;

/// State of a container's first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Running,
    /// As recorded by its supervisor, or as the kernel reports it.
    Exited(Exit),
    /// It has exited, and its exit code is lost.
    Unknown,
}

/// Whether a supervisor listens in this pod directory. After its death or a reboot none does.
pub fn supervisor_lives(folder: &Path) -> bool {
    SocketPath::of(folder).is_ok_and(|socket| UnixStream::connect(&socket.path).is_ok())
}

/// The container states that the supervisor recorded; an unreadable record is an error in the list.
pub fn records(folder: &Path) -> io::Result<Vec<io::Result<ContainerState>>> {
    recorded(folder)
}

/// Opens a pidfd for a container's first process. While it is open, the kernel can report how the
/// process exited. None if the process is not running any more.
pub fn hold(state: &ContainerState) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(state.pid).ok()?)?;
    let held = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let files = container_create::ProcessFiles::open().ok()?;
    // Checked after the open: with the same start time it is the same process.
    (files.start_ticks(state.pid)? == state.start_ticks).then_some(held)
}

/// Status of a container. `held` is the pidfd that [`hold`] opened while it ran, if any.
pub fn fate(state: &ContainerState, held: Option<&OwnedFd>) -> Fate {
    if let Some(exit) = state.exit {
        return Fate::Exited(exit);
    }
    let own;
    let held = match held {
        Some(held) => held,
        None => match hold(state) {
            Some(held) => {
                own = held;
                &own
            }
            None => return Fate::Unknown,
        },
    };
    if !has_ended(held) {
        return Fate::Running;
    }
    // Until the process is reaped its exit status is in /proc, afterwards in the pidfd; it may be
    // reaped between the reads.
    let exit = exit_code(held).or_else(|| unreaped_exit(state)).or_else(|| exit_code(held));
    exit.map_or(Fate::Unknown, Fate::Exited)
}

/// Exit status of a zombie.
fn unreaped_exit(state: &ContainerState) -> Option<Exit> {
    let files = container_create::ProcessFiles::open().ok()?;
    let status = files.unreaped_status(state.pid, state.start_ticks)?;
    Some(exit_from(status))
}

fn exit_from(status: i32) -> Exit {
    let signal = status & 0x7f;
    let code = if signal == 0 { (status >> 8) & 0xff } else { 128 + signal };
    Exit { code, signal, ..Exit::default() }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut watched = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// `struct pidfd_info`, first version.
#[repr(C)]
#[derive(Default)]
struct Information {
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
pub fn exit_code(pidfd: impl AsFd) -> Option<Exit> {
    let mut information = Information { mask: WANT_EXIT, ..Information::default() };
    let number = request(size_of::<Information>());
    // SAFETY: the kernel writes at most as many bytes as the request's number says, which is the size
    // of the structure.
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
        && let Ok(hierarchy) = cgroup_files::Hierarchy::detect()
    {
        let group = hierarchy.group(&state.cgroup).and_then(|group| group.kill());
        return group.map_err(|error| io::Error::other(error.to_string()));
    }
    match hold(state) {
        Some(held) => rustix::process::pidfd_send_signal(&held, rustix::process::Signal::KILL)
            .map_err(Into::into),
        None => Ok(()),
    }
}
