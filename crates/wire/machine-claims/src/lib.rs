//! Claims on machine-wide resources: cgroups, a bridge, subnets, host ports, a state directory.
//! Several agents may run on one machine, each with a root directory of its own; a claim keeps two
//! of them from using the same resource.
//!
//! Rule: a claim is a file in one directory of the machine, and a lock file (`flock`) that the
//! claiming process holds while it lives. A claim is in force while that lock is held, or while its
//! state directory has pods: pods outlive the agent. A process that reads or changes claims holds a
//! global lock, so two processes never claim the same resource. Claims do not survive a reboot, as
//! the resources do not. Does not decide which resources a root gets.

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
/// Larger than any claim that this crate writes.
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
    /// Whether its process runs; if not, only its pods do.
    pub is_alive: bool,
}

/// A claim of this process, in force until it is dropped.
#[derive(Debug)]
pub struct HeldClaim {
    claims: Claims,
    key: String,
    resources: Mutex<ClaimedResources>,
    _lock: File,
}

fn file_error<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> ClaimError + 'a {
    move |source| ClaimError::File { operation, path: path.to_owned(), source }
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options.open(path).map_err(file_error("opening", path))
}

/// `false` if another process holds it.
fn try_lock(file: &File, path: &Path) -> Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(file_error("locking", path)(error.into())),
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
        let created = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        created.map_err(file_error("creating", directory))?;
        let path = directory.join("turn");
        let lock = open(&path)?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(ClaimsLock { claims: self, _lock: lock }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(file_error("locking", &path)(error.into())),
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
        let temporary = self.directory.join(format!("{key}.new"));
        let text = serde_json::to_vec(resources).unwrap_or_default();
        fs::write(&temporary, text).map_err(file_error("writing", &temporary))?;
        fs::rename(&temporary, &path).map_err(file_error("writing", &path))
    }

    fn read(&self, key: &str) -> Result<ClaimedResources> {
        let path = self.record_path(key);
        let size = fs::metadata(&path).map_err(file_error("getting the size of", &path))?.len();
        let too_large = || io::Error::other("is too large for a claim");
        if size > MAX_CLAIM_BYTES {
            return Err(file_error("reading", &path)(too_large()));
        }
        let text = fs::read(&path).map_err(file_error("reading", &path))?;
        serde_json::from_slice(&text).map_err(|error| file_error("reading", &path)(error.into()))
    }

    fn remove(&self, key: &str) -> Result<()> {
        for path in [self.record_path(key), self.lock_path(key)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(file_error("removing", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn keys(&self) -> Result<Vec<String>> {
        let entries =
            fs::read_dir(&self.directory).map_err(file_error("listing", &self.directory))?;
        let mut keys = Vec::new();
        for entry in entries {
            let name = entry.map_err(file_error("listing", &self.directory))?.file_name();
            let key = name.to_str().and_then(|name| name.strip_suffix(".json"));
            keys.extend(key.map(str::to_owned));
        }
        keys.sort();
        Ok(keys)
    }
}

impl ClaimsLock<'_> {
    /// The claims in force except the one with the key `own`. Removes claims whose process has
    /// exited and that have no pods. A claim that cannot be parsed is skipped and kept.
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

    /// Claims all of `resources` under `key`, or nothing if another claim has one of them. Host
    /// ports that an earlier process claimed under the same key are kept until
    /// [`HeldClaim::set_ports`] replaces them.
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
        if let Ok(previous) = self.claims.read(key)
            && previous.root == resources.root
        {
            resources.ports = previous.ports;
        }
        self.claims.write(key, &resources)?;
        let (claims, key) = (self.claims.clone(), key.to_owned());
        Ok(HeldClaim { claims, key, resources: Mutex::new(resources), _lock: lock })
    }
}

impl HeldClaim {
    /// Replaces the claimed host ports. If another root has one of them, the old ones are kept.
    pub fn set_ports(&self, ports: Vec<ClaimedPort>) -> Result<()> {
        let mut own = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if own.ports == ports {
            return Ok(());
        }
        let lock = self.claims.lock()?;
        let new_ports = ports.iter().filter(|port| !own.ports.contains(port)).cloned().collect();
        let addition = ClaimedResources { ports: new_ports, ..own.only_ports() };
        if let Some(conflict) = conflict::first_conflict(&addition, &lock.others(&self.key)?) {
            return Err(ClaimError::Conflict(Box::new(conflict)));
        }
        let changed = ClaimedResources { ports, ..own.clone() };
        self.claims.write(&self.key, &changed)?;
        *own = changed;
        Ok(())
    }
}

impl Drop for HeldClaim {
    /// Removes a claim that has no pods. If that fails, the next process that reads claims removes
    /// it.
    fn drop(&mut self) {
        let own = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.has_pods()
            && let Ok(_claims_lock) = self.claims.lock()
        {
            let _ = self.claims.remove(&self.key);
        }
    }
}
