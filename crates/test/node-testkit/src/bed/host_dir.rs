//! Where beds are on the host: one directory per bed with a lock that its warden holds, and what
//! must be removed when the bed has ended.
//!
//! Rule: a bed whose lock can be taken has no warden any more, and the process that takes it
//! removes the bed. What will be created is recorded on disk first.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use super::cgroups;
use super::inside::{LOGS, TEMPORARY};

const LOCK: &str = "lock";
const RECORD: &str = "bed.json";
const DIR: &str = "folder";
/// How long processes that were just killed may go on holding files.
const REMOVAL: Duration = Duration::from_secs(10);

/// What is recorded of a bed on disk.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BedRecord {
    pub name: String,
    /// The process for which the bed was made.
    pub owner: i32,
    pub cgroups: Vec<PathBuf>,
}

/// One bed's directory, locked by its warden.
#[derive(Debug)]
pub(super) struct BedHostDir {
    pub identity: String,
    bed_root: PathBuf,
    _lock: File,
}

/// The directory of all beds of this machine.
#[must_use]
pub fn beds_dir() -> PathBuf {
    std::env::temp_dir().join("keelson-beds")
}

impl BedHostDir {
    /// Removes what dead wardens left, then creates and locks a directory.
    pub(super) fn take() -> Result<Self> {
        let beds = beds_dir();
        for covered in ["/var", "/etc", "/usr"] {
            // A bed lays an overlay over these, which may not contain its own upper layer.
            if beds.starts_with(covered) {
                bail!("TMPDIR must not be below {covered}: {}", beds.display());
            }
        }
        let _all = lock_all(&beds)?;
        sweep_locked(&beds)?;
        let identity = free_identity(&beds);
        let bed_root = beds.join(&identity);
        for dir in [DIR, &format!("{DIR}/{LOGS}"), &format!("{DIR}/{TEMPORARY}")] {
            let path = bed_root.join(dir);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        let path = bed_root.join(LOCK);
        let lock = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        lock.try_lock().with_context(|| format!("lock {}", path.display()))?;
        Ok(Self { identity, bed_root, _lock: lock })
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.bed_root.join(DIR)
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.dir().join(LOGS)
    }

    pub(super) fn save_record(&self, record: &BedRecord) -> Result<()> {
        let path = self.bed_root.join(RECORD);
        fs::write(&path, serde_json::to_vec(record)?)
            .with_context(|| format!("write {}", path.display()))
    }

    /// Removes everything. The bed's processes must have been killed.
    pub(super) fn clear(self) -> Result<()> {
        clear_bed_root(&self.bed_root)
    }
}

/// Removes the beds whose wardens are dead, and returns their names.
///
/// # Errors
/// When something of such a bed cannot be removed.
pub fn sweep() -> Result<Vec<String>> {
    let beds = beds_dir();
    let _all = lock_all(&beds)?;
    sweep_locked(&beds)
}

/// Whether a bed is in use: its warden lives, and so does the process it was made for.
#[must_use]
pub fn is_occupied(identity: &str) -> bool {
    let bed_root = beds_dir().join(identity);
    let held = File::open(bed_root.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_err());
    held && read_record(&bed_root).is_ok_and(|record| {
        Pid::from_raw(record.owner).is_some_and(|owner| test_kill_process(owner).is_ok())
    })
}

/// One process at a time creates or removes beds, so that no other sees a half-made one.
fn lock_all(beds: &Path) -> Result<File> {
    fs::create_dir_all(beds).with_context(|| format!("make {}", beds.display()))?;
    let path = beds.join(".lock");
    let lock = File::create(&path).with_context(|| format!("make {}", path.display()))?;
    lock.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(lock)
}

fn sweep_locked(beds: &Path) -> Result<Vec<String>> {
    let mut swept = Vec::new();
    for entry in fs::read_dir(beds).with_context(|| beds.display().to_string())? {
        let bed_root = entry?.path();
        if !bed_root.is_dir() {
            continue;
        }
        let held = match File::open(bed_root.join(LOCK)) {
            Ok(lock) => lock.try_lock().is_err(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error).with_context(|| bed_root.display().to_string()),
        };
        if held {
            continue;
        }
        let name = read_record(&bed_root).map_or_else(|_| "?".to_owned(), |record| record.name);
        eprintln!("bed: sweeping {} of {name}, whose warden is dead", bed_root.display());
        clear_bed_root(&bed_root)?;
        swept.push(name);
    }
    Ok(swept)
}

fn read_record(bed_root: &Path) -> Result<BedRecord> {
    let path = bed_root.join(RECORD);
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

fn clear_bed_root(bed_root: &Path) -> Result<()> {
    // Without a record, only the directory had been created.
    if let Ok(record) = read_record(bed_root) {
        for cgroup in &record.cgroups {
            cgroups::remove(cgroup)?;
        }
    }
    let began = Instant::now();
    loop {
        match fs::remove_dir_all(bed_root) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if began.elapsed() > REMOVAL => {
                return Err(error).with_context(|| format!("remove {}", bed_root.display()));
            }
            // Processes that are just dying may still write.
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

/// Short, because it is part of socket paths on the host.
fn free_identity(beds: &Path) -> String {
    let process = std::process::id();
    (0_u32..)
        .map(|count| format!("{process:x}-{count}"))
        .find(|identity| !beds.join(identity).exists())
        .unwrap_or_default()
}
