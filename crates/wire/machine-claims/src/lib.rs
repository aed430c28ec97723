//! Claims of root directories on machine-wide names: cgroups, a bridge, subnets, host ports, a
//! state directory.
//!
//! Rule: a claim is a file in one directory of the machine, and an `flock` beside it as long as the
//! claiming process lives. A claim is in force while that lock is held, or while its state
//! directory has pods: pods outlive their server. A process that reads or changes claims holds a
//! global lock, so two processes never take the same name. Claims end with the boot, as what they
//! name does. Does not decide which names a root gets.

mod conflict;
mod resources;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

pub use conflict::ClaimConflict;
pub use resources::{AddressRange, ClaimedPort, ClaimedPortProtocol, ClaimedResources};

#[cfg(test)]
mod tests;

/// The directory of this machine's claims.
pub const CLAIMS_DIR: &str = "/run/keelson/claims";
/// Larger than any claim of ours.
const MAX_CLAIM_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("{operation} {path}: {source}")]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    /// Boxed: it is large and rare.
    #[error(transparent)]
    Conflict(Box<ClaimConflict>),
}

type Result<T, E = ClaimError> = std::result::Result<T, E>;

/// The directory of claims.
#[derive(Debug, Clone)]
pub struct Claims {
    directory: PathBuf,
}

/// The exclusive right to read and change claims.
#[derive(Debug)]
pub struct ClaimsLock<'a> {
    claims: &'a Claims,
    _lock: File,
}

/// A claim of another root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub resources: ClaimedResources,
    /// Its process runs; otherwise only its pods do.
    pub is_alive: bool,
}

/// A claim of this process, in force as long as this value lives.
#[derive(Debug)]
pub struct HeldClaim {
    claims: Claims,
    key: String,
    resources: Mutex<ClaimedResources>,
    _lock: File,
}

fn failed<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> ClaimError + 'a {
    move |source| ClaimError::File { operation, path: path.to_owned(), source }
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options.open(path).map_err(failed("opening", path))
}

/// `false` if another process holds it.
fn try_lock(file: &File, path: &Path) -> Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(failed("locking", path)(error.into())),
    }
}

/// The key of a root's claim: short and deterministic (FNV-1a of the path).
pub fn key(kind: &str, root: &Path) -> String {
    let bytes = root.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{kind}-{hash:016x}")
}

impl Claims {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Waits for other processes that read or change claims, which takes milliseconds.
    pub fn lock(&self) -> Result<ClaimsLock<'_>> {
        let directory = &self.directory;
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(failed("making", directory))?;
        let path = directory.join("turn");
        let lock = open(&path)?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(ClaimsLock { claims: self, _lock: lock }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("locking", &path)(error.into())),
            }
        }
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}.lock"))
    }

    fn record_path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}.json"))
    }

    fn write(&self, key: &str, resources: &ClaimedResources) -> Result<()> {
        let path = self.record_path(key);
        let beside = self.directory.join(format!("{key}.new"));
        let text = serde_json::to_vec(resources).unwrap_or_default();
        fs::write(&beside, text).map_err(failed("writing", &beside))?;
        fs::rename(&beside, &path).map_err(failed("writing", &path))
    }

    fn read(&self, key: &str) -> Result<ClaimedResources> {
        let path = self.record_path(key);
        let size = fs::metadata(&path).map_err(failed("looking at", &path))?.len();
        let too_large = || io::Error::other("is too large for a claim");
        if size > MAX_CLAIM_BYTES {
            return Err(failed("reading", &path)(too_large()));
        }
        let text = fs::read(&path).map_err(failed("reading", &path))?;
        serde_json::from_slice(&text).map_err(|error| failed("reading", &path)(error.into()))
    }

    fn remove(&self, key: &str) -> Result<()> {
        for path in [self.record_path(key), self.lock_path(key)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("removing", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn keys(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.directory).map_err(failed("listing", &self.directory))?;
        let mut keys = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed("listing", &self.directory))?.file_name();
            let key = name.to_str().and_then(|name| name.strip_suffix(".json"));
            keys.extend(key.map(str::to_owned));
        }
        keys.sort();
        Ok(keys)
    }
}

impl ClaimsLock<'_> {
    /// The claims in force except that of `own`. One whose process has exited and that has no pods
    /// is removed; one that cannot be parsed names nothing and is kept.
    pub fn others(&self, own: &str) -> Result<Vec<Claim>> {
        let mut found = Vec::new();
        for key in self.claims.keys()?.into_iter().filter(|key| key != own) {
            let path = self.claims.lock_path(&key);
            let lock = open(&path)?;
            let is_alive = !try_lock(&lock, &path)?;
            let Ok(resources) = self.claims.read(&key) else { continue };
            if is_alive || resources.has_pods() {
                found.push(Claim { resources, is_alive });
            } else {
                self.claims.remove(&key)?;
            }
        }
        Ok(found)
    }

    /// Claims all of this under `key`, or nothing if another claim has some of it. Host ports of an
    /// earlier process under the same key stay until they are set again.
    pub fn acquire(&self, key: &str, mut resources: ClaimedResources) -> Result<HeldClaim> {
        if let Some(conflict) = conflict::first_conflict(&resources, &self.others(key)?) {
            return Err(ClaimError::Conflict(Box::new(conflict)));
        }
        let path = self.claims.lock_path(key);
        let lock = open(&path)?;
        if !try_lock(&lock, &path)? {
            let other = Claim { resources: self.claims.read(key)?, is_alive: true };
            return Err(ClaimError::Conflict(Box::new(ClaimConflict::for_root(other))));
        }
        if let Ok(former) = self.claims.read(key)
            && former.root == resources.root
        {
            resources.ports = former.ports;
        }
        self.claims.write(key, &resources)?;
        let (claims, key) = (self.claims.clone(), key.to_owned());
        Ok(HeldClaim { claims, key, resources: Mutex::new(resources), _lock: lock })
    }
}

impl HeldClaim {
    /// Replaces the host ports, or, if another root has one of them, keeps the old ones.
    pub fn set_ports(&self, ports: Vec<ClaimedPort>) -> Result<()> {
        let mut own = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if own.ports == ports {
            return Ok(());
        }
        let lock = self.claims.lock()?;
        let more = ports.iter().filter(|port| !own.ports.contains(port)).cloned().collect();
        let added_ports = ClaimedResources { ports: more, ..own.only_ports() };
        if let Some(conflict) = conflict::first_conflict(&added_ports, &lock.others(&self.key)?) {
            return Err(ClaimError::Conflict(Box::new(conflict)));
        }
        let changed = ClaimedResources { ports, ..own.clone() };
        self.claims.write(&self.key, &changed)?;
        *own = changed;
        Ok(())
    }
}

impl Drop for HeldClaim {
    /// A claim without pods ends with its process; if it cannot be removed now, the next process
    /// that reads claims does it.
    fn drop(&mut self) {
        let own = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.has_pods()
            && let Ok(_turn) = self.claims.lock()
        {
            let _ = self.claims.remove(&self.key);
        }
    }
}
