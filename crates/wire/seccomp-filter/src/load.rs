//! Loads a program into the kernel.
//!
//! Rule: the only unsafe code of the crate; a loaded filter stays until its threads exit, so
//! nothing here can be undone. Does not decide which privileges the caller drops.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::program::{BpfProgram, INSTRUCTION_LIMIT, SeccompInstruction};

#[cfg(test)]
mod tests;

const SET_MODE_FILTER: libc::c_uint = 1;
const FLAG_ALL_THREADS: libc::c_ulong = 1 << 0;
const FLAG_LOG: libc::c_ulong = 1 << 1;
const FLAG_ALLOW_SPECULATION: libc::c_ulong = 1 << 2;
const FLAG_NEW_LISTENER: libc::c_ulong = 1 << 3;
/// If a thread cannot take the filter, returns an error number instead of a thread id, which could
/// not be distinguished from a listener's descriptor.
const FLAG_THREAD_FAILURE_IS_ESRCH: libc::c_ulong = 1 << 4;

// The kernel reads our instructions as its own.
const _: () = assert!(size_of::<SeccompInstruction>() == size_of::<libc::sock_filter>());
const _: () = assert!(INSTRUCTION_LIMIT <= u16::MAX as usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadOptions {
    /// For every thread of the process instead of only the calling one.
    pub all_threads: bool,
    /// Write every action but Allow to the audit log.
    pub log: bool,
    /// Do not enable the speculative-store-bypass mitigation.
    pub allow_speculation: bool,
    /// Return the descriptor for [`crate::SeccompAction::Notify`].
    pub listener: bool,
}

impl LoadOptions {
    fn flags(self) -> libc::c_ulong {
        [
            (self.all_threads, FLAG_ALL_THREADS | FLAG_THREAD_FAILURE_IS_ESRCH),
            (self.log, FLAG_LOG),
            (self.allow_speculation, FLAG_ALLOW_SPECULATION),
            (self.listener, FLAG_NEW_LISTENER),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(0, |flags, (_, flag)| flags | flag)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Neither no_new_privs nor CAP_SYS_ADMIN.
    #[error("the kernel refused the filter: neither no_new_privs nor CAP_SYS_ADMIN")]
    NeedsNoNewPrivileges,
    /// The kernel has no seccomp filters, or another filter forbids to load one.
    #[error("the kernel has no seccomp filters ({0})")]
    Unsupported(io::Error),
    /// Another thread has a filter of its own that this one does not extend.
    #[error("a thread of this process already has another filter")]
    OtherThread,
    #[error("the kernel refused the filter: {0}")]
    Refused(io::Error),
}

/// Sets no_new_privs: the calling thread and its children never gain privileges by executing a
/// program.
pub fn set_no_new_privileges() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true).map_err(Into::into)
}

/// Loads the filter, which applies at once; returns the listener if one was asked for.
pub fn load(program: &BpfProgram, options: LoadOptions) -> Result<Option<OwnedFd>, LoadError> {
    let instructions = program.instructions();
    let filter = libc::sock_fprog {
        // `compile` keeps the limit.
        len: u16::try_from(instructions.len()).unwrap_or(u16::MAX),
        filter: instructions.as_ptr().cast_mut().cast::<libc::sock_filter>(),
    };
    // SAFETY: the call reads `filter` and `len` instructions behind its pointer, which have the
    // layout of `sock_filter` (asserted above for size, `repr(C)` for order) and live until it
    // returns; it writes nothing.
    let outcome = unsafe {
        libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, options.flags(), &raw const filter)
    };
    if outcome < 0 {
        return Err(load_error(io::Error::last_os_error()));
    }
    if !options.listener {
        return Ok(None);
    }
    let descriptor = i32::try_from(outcome)
        .map_err(|_| LoadError::Refused(io::Error::other("no descriptor for the listener")))?;
    // SAFETY: with the listener flag (and thread failures reported as errors) a success returns a
    // new descriptor that has no other owner.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

fn load_error(error: io::Error) -> LoadError {
    match error.raw_os_error() {
        Some(libc::EACCES) => LoadError::NeedsNoNewPrivileges,
        Some(libc::ENOSYS | libc::EPERM) => LoadError::Unsupported(error),
        Some(libc::ESRCH) => LoadError::OtherThread,
        _ => LoadError::Refused(error),
    }
}
