//! The process's limit of open files (`RLIMIT_NOFILE`).
//!
//! Rule: a server has several descriptors open per pod and soon reaches the usual soft limit of
//! 1024, so it is raised to the hard limit. Processes started for pods get the previous limit back:
//! some programs iterate over all descriptor numbers up to it, or cannot handle numbers that large.
//!
//! upstream: Go's os package raises it for containerd, and syscall.Exec gives it back to children

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before it was raised.
static ORIGINAL_SOFT_LIMIT: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of this process to the hard limit. Idempotent.
pub fn raise() -> io::Result<()> {
    let now = getrlimit(Resource::Nofile);
    let room = match (now.current, now.maximum) {
        (Some(current), Some(maximum)) => current < maximum,
        (Some(_), None) => true,
        (None, _) => false,
    };
    let Some(current) = now.current.filter(|_| room) else { return Ok(()) };
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })?;
    let _ = ORIGINAL_SOFT_LIMIT.set(current);
    Ok(())
}

/// The limit for child processes; none where it was not raised.
pub(crate) fn before() -> Option<u64> {
    ORIGINAL_SOFT_LIMIT.get().copied()
}

/// Restores this process's previous limit.
pub(crate) fn lower_to(soft: u64) -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum.map_or(soft, |maximum| soft.min(maximum));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).map_err(Into::into)
}
