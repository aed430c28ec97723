//! Checks that this kernel applies the filters that this binary loads.
//!
//! Rule: the filter is loaded on a new thread and ends with it. The calling thread and the rest of
//! the process are not changed.

use std::io;
use std::thread;

use crate::compile::{CompileError, compile};
use crate::load::{LoadError, LoadOptions, load, set_no_new_privileges};
use crate::profile::{Architecture, SeccompAction, SeccompProfile, SyscallRule};

#[cfg(test)]
mod tests;

/// An error number that no system call returns.
const TEST_ERRNO: u16 = 4001;

/// The result of a check that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfCheckReport {
    pub architecture: Architecture,
    pub instructions: usize,
    /// The error that `getcwd` returned under the filter; it succeeds without the filter.
    pub errno: i32,
}

#[derive(Debug, thiserror::Error)]
pub enum SelfCheckError {
    #[error("no system call table for the architecture that this program was built for")]
    UnknownArchitecture,
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("the thread that tried the filter panicked")]
    ThreadDied,
    #[error("cannot set no_new_privs: {0}")]
    NoNewPrivileges(io::Error),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("getcwd fails without any filter: {0}")]
    CallBroken(io::Error),
    #[error("the filter was loaded but has no effect: getcwd gave {0}, expected error 4001")]
    NoEffect(String),
}

/// Loads a filter on a new thread and checks its effect.
pub fn self_check() -> Result<SelfCheckReport, SelfCheckError> {
    let architecture = Architecture::native().ok_or(SelfCheckError::UnknownArchitecture)?;
    let thread = thread::Builder::new()
        .name("seccomp-check".to_owned())
        .spawn(move || try_filter(architecture))
        .map_err(SelfCheckError::Thread)?;
    thread.join().map_err(|_| SelfCheckError::ThreadDied)?
}

fn try_filter(architecture: Architecture) -> Result<SelfCheckReport, SelfCheckError> {
    let program = compile(&SeccompProfile {
        default_action: SeccompAction::Allow,
        architectures: vec![architecture],
        rules: vec![SyscallRule {
            syscalls: vec!["getcwd".to_owned()],
            action: SeccompAction::Errno(TEST_ERRNO),
            conditions: Vec::new(),
        }],
        flags: None,
    })?;
    try_getcwd().map_err(SelfCheckError::CallBroken)?;
    set_no_new_privileges().map_err(SelfCheckError::NoNewPrivileges)?;
    load(&program, LoadOptions::default())?;
    match try_getcwd() {
        Err(error) if error.raw_os_error() == Some(i32::from(TEST_ERRNO)) => {
            let instructions = program.instructions().len();
            Ok(SelfCheckReport { architecture, instructions, errno: i32::from(TEST_ERRNO) })
        }
        Err(error) => Err(SelfCheckError::NoEffect(error.to_string())),
        Ok(()) => Err(SelfCheckError::NoEffect("a path".to_owned())),
    }
}

fn try_getcwd() -> io::Result<()> {
    rustix::process::getcwd(Vec::new()).map(drop).map_err(Into::into)
}
