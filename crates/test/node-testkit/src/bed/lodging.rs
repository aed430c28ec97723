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
const FOLDER: &str = "folder";
/// How long processes that were just killed may go on holding files.
const REMOVAL: Duration = Duration::from_secs(10);

/// What is recorded of a bed on disk.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub name: String,
    /// The process for which the bed was made.
    pub owner: i32,
    pub cgroups: Vec<PathBuf>,
}

/// One bed's directory, locked by its warden.
#[derive(Debug)]
pub(super) struct Lodging {
    pub identity: String,
    place: PathBuf,
    _lock: File,
}

/// The directory of all beds of this machine.
#[must_use]
pub fn beds_folder() -> PathBuf {
    std::env::temp_dir().join("keelson-beds")
}

impl Lodging {
    /// Removes what dead wardens left, then creates and locks a directory.
    pub(super) fn take() -> Result<Self> {
        let beds = beds_folder();
        for covered in ["/var", "/etc", "/usr"] {
            // A bed lays an overlay over these, which may not contain its own upper layer.
            if beds.starts_with(covered) {
                bail!("TMPDIR must not be below {covered}: {}", beds.display());
            }
        }
        let _all = lock_all(&beds)?;
        sweep_locked(&beds)?;
        let identity = free_identity(&beds);
        let place = beds.join(&identity);
        for folder in [FOLDER, &format!("{FOLDER}/{LOGS}"), &format!("{FOLDER}/{TEMPORARY}")] {
            let path = place.join(folder);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        let path = place.join(LOCK);
        let lock = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        lock.try_lock().with_context(|| format!("lock {}", path.display()))?;
        Ok(Self { identity, place, _lock: lock })
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.place.join(FOLDER)
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.folder().join(LOGS)
    }

    pub(super) fn write_down(&self, record: &Record) -> Result<()> {
        let path = self.place.join(RECORD);
        fs::write(&path, serde_json::to_vec(record)?)
            .with_context(|| format!("write {}", path.display()))
    }

    /// Removes everything. The bed's processes must have been killed.
    pub(super) fn clear(self) -> Result<()> {
        clear_place(&self.place)
    }
}

/// Removes the beds whose wardens are dead, and returns their names.
///
/// # Errors
/// When something of such a bed cannot be removed.
pub fn sweep() -> Result<Vec<String>> {
    let beds = beds_folder();
    let _all = lock_all(&beds)?;
    sweep_locked(&beds)
}

/// Whether a bed is in use: its warden lives, and so does the process it was made for.
#[must_use]
pub fn is_occupied(identity: &str) -> bool {
    let place = beds_folder().join(identity);
    let held = File::open(place.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_err());
    held && read_record(&place).is_ok_and(|record| {
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
        let place = entry?.path();
        if !place.is_dir() {
            continue;
        }
        let held = match File::open(place.join(LOCK)) {
            Ok(lock) => lock.try_lock().is_err(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error).with_context(|| place.display().to_string()),
        };
        if held {
            continue;
        }
        let name = read_record(&place).map_or_else(|_| "?".to_owned(), |record| record.name);
        eprintln!("bed: sweeping {} of {name}, whose warden is dead", place.display());
        clear_place(&place)?;
        swept.push(name);
    }
    Ok(swept)
}

fn read_record(place: &Path) -> Result<Record> {
    let path = place.join(RECORD);
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

fn clear_place(place: &Path) -> Result<()> {
    // Without a record, only the directory had been created.
    if let Ok(record) = read_record(place) {
        for cgroup in &record.cgroups {
            cgroups::remove(cgroup)?;
        }
    }
    let began = Instant::now();
    loop {
        match fs::remove_dir_all(place) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if began.elapsed() > REMOVAL => {
                return Err(error).with_context(|| format!("remove {}", place.display()));
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
