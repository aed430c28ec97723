//! Leases of containers: a lease keeps the snapshots of a view although its image may be removed.
//!
//! A lease is a file that persists across processes and reboots and ends when its view is removed.
//! It is written before the view's directories are created and removed after them, so a view
//! without a lease is half created or half removed, or so new that a power cut undid its lease,
//! which also ended its container.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::durable::{create_dir, names_in, sync_dir, write_atomically};
use crate::error::{Error, PathContext as _, Result};

const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ViewLease {
    version: u32,
    pub(crate) image: Digest,
    #[serde(rename = "chains")]
    pub(crate) chain_ids: Vec<Digest>,
    pub(crate) writable: bool,
}

impl ViewLease {
    pub(crate) fn new(image: Digest, chain_ids: Vec<Digest>, writable: bool) -> Self {
        Self { version: VERSION, image, chain_ids, writable }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Leases {
    dir: PathBuf,
}

impl Leases {
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let dir = root.join("leases");
        create_dir(&dir)?;
        Ok(Self { dir })
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    pub(crate) fn read(&self, id: &str) -> Result<Option<ViewLease>> {
        let path = self.path(id);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.doing("reading", &path)?,
        };
        let lease: ViewLease =
            serde_json::from_slice(&bytes).map_err(|error| Error::damaged(&path, error))?;
        if lease.version != VERSION {
            let found = lease.version.to_string();
            return Err(Error::UnknownVersion { path, found, expected: VERSION });
        }
        Ok(Some(lease))
    }

    pub(crate) fn write(&self, id: &str, lease: &ViewLease) -> Result<()> {
        let path = self.path(id);
        let bytes = serde_json::to_vec(lease).map_err(|error| Error::damaged(&path, error))?;
        write_atomically(&path, &bytes)
    }

    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.doing("removing", &path)?,
        }
        sync_dir(&self.dir)
    }

    pub(crate) fn list(&self) -> Result<Vec<String>> {
        let names = names_in(&self.dir)?;
        Ok(names
            .iter()
            .filter(|name| !name.starts_with(crate::durable::UNFINISHED))
            .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
            .collect())
    }
}
