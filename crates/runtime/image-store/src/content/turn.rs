//! Whose turn it is to receive content.
//!
//! Rule: who comes second waits for the first, who holds the kernel's lock on the file, but only as
//! long as the first gets on: a registry that keeps its pull alive a byte at a time must not hold up
//! everybody who needs a layer that it merely named. Nothing is looked at between two waits.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::durable::lock;
use crate::error::{Doing as _, Result};

/// How often somebody may be waited for who brings just enough.
const WAITS: u64 = 20;

/// Takes the lock of a file that is to have `size` bytes. `false`: another has it, and brings less
/// than its share of them in each `patience`.
pub(super) fn take(file: &File, path: &Path, size: u64, patience: Duration) -> Result<bool> {
    match lock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        other => return other.map(|()| true).doing("locking", path),
    }
    let (sender, turn) = channel();
    let shared = file.try_clone().doing("sharing", path)?;
    // The kernel's wait for a lock has no end of its own. Where nobody waits any more, this one ends
    // with the other's turn and gives the lock back.
    let waiting = move || {
        let outcome = lock(&shared, FlockOperation::LockExclusive);
        drop(shared);
        let _ = sender.send(outcome);
    };
    let spawned = std::thread::Builder::new().name("content-turn".to_owned()).spawn(waiting);
    spawned.doing("waiting for", path)?;
    let share = (size / WAITS).max(1);
    let length = || -> Result<u64> { Ok(file.metadata().doing("looking at", path)?.len()) };
    let mut seen = length()?;
    loop {
        match turn.recv_timeout(patience) {
            Ok(outcome) => return outcome.map(|()| true).doing("locking", path),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("whoever waited is gone")).doing("locking", path);
            }
        }
        let now = length()?;
        if now < seen.saturating_add(share) {
            return Ok(false);
        }
        seen = now;
    }
}
