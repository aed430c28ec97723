//! How much a tree takes on the disk: blocks and inodes, each inode once.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

impl Usage {
    /// Walks a tree without following links. Files that vanish meanwhile count as nothing.
    pub(crate) fn of_tree(folder: &Path) -> Result<Self> {
        let mut usage = Self::default();
        let mut linked = BTreeSet::new();
        let mut waiting = vec![folder.to_owned()];
        while let Some(path) = waiting.pop() {
            let metadata = match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.doing("looking at", &path)?,
            };
            if metadata.nlink() > 1
                && !metadata.is_dir()
                && !linked.insert((metadata.dev(), metadata.ino()))
            {
                continue;
            }
            usage.bytes += metadata.blocks() * 512;
            usage.inodes += 1;
            if metadata.is_dir() {
                let entries = match fs::read_dir(&path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    other => other.doing("listing", &path)?,
                };
                for entry in entries {
                    waiting.push(entry.doing("listing", &path)?.path());
                }
            }
        }
        Ok(usage)
    }
}
