//! How many descriptors this process may have: as many as the machine lets it.
//!
//! Rule: a server holds several for each pod, so the usual soft limit of 1024 is soon reached; it is
//! raised to the hard one. What it starts for pods gets the limit that was there before: programs
//! exist that walk through all numbers up to it, or that cannot count so far.
//!
//! upstream: Go's os package raises it for containerd, and syscall.Exec gives it back to children

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before it was raised.
static BEFORE: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of this process to the hard one; once is enough.
pub fn raise() -> io::Result<()> {
    let now = getrlimit(Resource::Nofile);
    let room = match (now.current, now.maximum) {
        (Some(current), Some(maximum)) => current < maximum,
        (Some(_), None) => true,
        (None, _) => false,
    };
    let Some(current) = now.current.filter(|_| room) else { return Ok(()) };
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })?;
    let _ = BEFORE.set(current);
    Ok(())
}

/// For whoever is started; none where nothing was raised.
pub(crate) fn before() -> Option<u64> {
    BEFORE.get().copied()
}

/// Gives this process what there was before.
pub(crate) fn lower_to(soft: u64) -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum.map_or(soft, |maximum| soft.min(maximum));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).map_err(Into::into)
}
