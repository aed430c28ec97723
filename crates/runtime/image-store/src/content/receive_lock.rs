//! The lock of an ingest.
//!
//! Rule: a second receiver waits for the first, which holds a kernel lock on the file, but only as
//! long as the first makes progress: a registry that delivers a byte at a time must not block other
//! pulls of a layer that it merely lists. Progress is checked only once per timeout.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::durable::lock;
use crate::error::{PathContext as _, Result};

/// How many timeouts a receiver with the minimum progress is waited for.
const MAX_WAITS: u64 = 20;

/// Takes the lock of a file that will have `size` bytes. `false`: another receiver holds it, and
/// receives less than the minimum in one `timeout`.
pub(super) fn take(file: &File, path: &Path, size: u64, timeout: Duration) -> Result<bool> {
    match lock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        other => return other.map(|()| true).doing("locking", path),
    }
    let (sender, receiver) = channel();
    let shared = file.try_clone().doing("sharing", path)?;
    // flock has no timeout. After a timeout this thread ends when it gets the lock, and releases
    // it.
    let waiting = move || {
        let outcome = lock(&shared, FlockOperation::LockExclusive);
        drop(shared);
        let _ = sender.send(outcome);
    };
    let spawned = std::thread::Builder::new().name("receive-lock".to_owned()).spawn(waiting);
    spawned.doing("waiting for", path)?;
    let share = (size / MAX_WAITS).max(1);
    let length = || -> Result<u64> { Ok(file.metadata().doing("looking at", path)?.len()) };
    let mut last_size = length()?;
    loop {
        match receiver.recv_timeout(timeout) {
            Ok(outcome) => return outcome.map(|()| true).doing("locking", path),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the lock thread ended")).doing("locking", path);
            }
        }
        let now = length()?;
        if now < last_size.saturating_add(share) {
            return Ok(false);
        }
        last_size = now;
    }
}
