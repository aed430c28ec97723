//! A signal descriptor for SIGCHLD, sending signals, and allocator settings.
//!
//! Rule: SIGCHLD is only ever read from the descriptor; other signals that would end or stop the
//! supervisor are ignored, because its pod must go on (only SIGKILL ends it).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// A descriptor that is ready when a child has exited.
pub(super) fn children() -> io::Result<OwnedFd> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE, libc::SIGQUIT] {
        // SAFETY: sets a disposition; no handler runs.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: all zero is a valid set, which is then filled in.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the calls get a valid set; the last returns a new descriptor.
    let descriptor = unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Reads all pending signals; only their arrival matters.
pub(super) fn drain(signals: &OwnedFd) {
    let mut space = [0; 128 * 8];
    debug_assert!(signals.as_raw_fd() >= 0);
    while rustix::io::read(signals, &mut space).is_ok_and(|count| count > 0) {}
}

/// The kernel's last signal. Real-time signals are sent by number: where they begin depends on the
/// receiver's libc, and images use them as stop signal (systemd, for one).
const LAST: i32 = 64;

pub(super) fn is_signal(number: i32) -> bool {
    (1..=LAST).contains(&number)
}

/// Sends any signal that the kernel knows.
pub(super) fn send(pidfd: &OwnedFd, number: i32) -> Result<(), Errno> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor lives throughout; without a siginfo nothing is read.
    let answer = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), number, none, 0_u32)
    };
    if answer < 0 {
        let code = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(())
}

/// Limits the allocator to one arena and makes it return freed memory.
pub(super) fn limit_allocator_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets options of the allocator before any thread exists.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 * 1024);
    }
}
