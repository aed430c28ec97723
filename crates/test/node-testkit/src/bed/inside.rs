//! The bed as the test in it sees it: its directories and its deadline.
//!
//! Rule: paths inside are the same in every bed, and short: unix sockets allow about a hundred
//! bytes. It starts nothing; see [`crate::start`].

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};

use super::handover::BedSpec;

/// Where the bed's directory is mounted inside.
pub(crate) const DIR: &str = "/run/bed";
/// Written by the test's body when it is reached.
pub(super) const ENTERED: &str = ".entered";
/// The directory of logs within the bed's directory.
pub(super) const LOGS: &str = "logs";
/// The directory for temporary files within the bed's directory.
pub(super) const TEMPORARY: &str = "tmp";

/// A bed, from inside.
#[derive(Debug)]
pub struct Bed {
    name: String,
    ends: Instant,
}

impl Bed {
    pub(super) fn new(spec: &BedSpec) -> Self {
        // The warden's clock started earlier, and the warden enforces the deadline.
        let deadline = Duration::from_millis(spec.deadline_milliseconds);
        Self { name: spec.name.clone(), ends: Instant::now() + deadline }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bed's own directory: on the host's file system, removed with the bed.
    #[must_use]
    pub fn dir(&self) -> &'static Path {
        Path::new(DIR)
    }

    /// A directory in the bed's own directory, created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create_dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir().join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// Mounts file systems at names that the mount table escapes and that are not UTF-8: everything
    /// started afterwards must cope with them.
    ///
    /// # Errors
    /// When they cannot be mounted.
    pub fn mount_odd_names(&self) -> Result<()> {
        for name in [&b"\xff\xfe"[..], b"a b\\040\n\t#-"] {
            let target = self.dir().join("odd").join(OsStr::from_bytes(name));
            fs::create_dir_all(&target).with_context(|| format!("make {}", target.display()))?;
            mount("", &target, "tmpfs", MountFlags::empty(), None)
                .with_context(|| format!("mount a tmpfs on {}", target.display()))?;
        }
        Ok(())
    }

    /// The directory whose files are kept when the test fails.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.dir().join(LOGS)
    }

    /// The time until the deadline.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    pub(super) fn mark_entered(&self) -> Result<()> {
        let path = self.dir().join(ENTERED);
        fs::write(&path, b"").with_context(|| format!("write {}", path.display()))
    }
}
