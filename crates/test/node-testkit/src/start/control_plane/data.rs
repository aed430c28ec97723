//! The data of a control plane: saved, and put back as a restored backup would be.
//!
//! Rule: etcd is stopped while its files are copied, so a copy is always whole. The API server
//! is killed before older data appears below it: its caches would hide it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::ControlPlane;
use super::launch::{self, ETCD_DATA};
use crate::bed::Bed;

/// A copy of etcd's data.
#[derive(Debug)]
pub struct SavedData {
    dir: PathBuf,
}

impl ControlPlane {
    /// Saves all objects as they are now. The API server waits for etcd meanwhile.
    ///
    /// # Errors
    /// When the files cannot be copied, or etcd does not come back.
    pub fn save_data(&mut self, bed: &Bed) -> Result<SavedData> {
        let saved = SavedData { dir: self.dir.join("etcd-saved") };
        self.etcd.stop();
        copy_dir(&self.dir.join(ETCD_DATA), &saved.dir)?;
        self.etcd = launch::etcd(bed, &self.dir, self.etcd_ports)?;
        Ok(saved)
    }

    /// Kills the API server and etcd, and starts both with the saved data.
    ///
    /// # Errors
    /// When the files cannot be copied, or a part does not come back.
    pub fn restore_data(&mut self, bed: &Bed, saved: &SavedData) -> Result<()> {
        self.kill_api_server()?;
        self.etcd.kill()?;
        let data = self.dir.join(ETCD_DATA);
        fs::remove_dir_all(&data).with_context(|| format!("remove {}", data.display()))?;
        copy_dir(&saved.dir, &data)?;
        self.etcd = launch::etcd(bed, &self.dir, self.etcd_ports)?;
        self.start_api_server(bed)
    }
}

/// Copies files and directories; there is nothing else in etcd's data.
fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("read {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("read {}", from.display()))?;
        let target = to.join(entry.file_name());
        if entry.file_type().context("the type of a file")?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}
