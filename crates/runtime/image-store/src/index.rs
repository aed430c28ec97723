//! The index of images and their names.
//!
//! One small file, replaced atomically under a lock: a name moves between images in one step, and
//! an image appears with all its names or not at all. An image is identified by the digest of its
//! configuration; a name belongs to one image only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::durable::{Lock, write_durably};
use crate::error::{Error, PathContext as _, Result};
use crate::reference::ImageReference;

#[cfg(test)]
mod tests;

const VERSION: u32 = 1;
/// A shorter id prefix would match by accident.
const SHORTEST_ID: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// Digest of the configuration.
    pub id: Digest,
    pub manifest: Digest,
    /// Names by tag, each with the digest it resolved to (of an index or the manifest).
    pub names: BTreeMap<String, Digest>,
    /// Names by digest.
    pub digests: BTreeSet<String>,
    /// All content of the image, with sizes.
    pub blobs: BTreeMap<Digest, u64>,
    pub layers: Vec<LayerRecord>,
    /// Exempt from image garbage collection.
    pub pinned: bool,
    /// Imported from the node's directory of preloaded images.
    pub preloaded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    pub digest: Digest,
    pub size: u64,
    pub diff_id: Digest,
}

impl StoredImage {
    /// The chain ids of its snapshots, the lowest first.
    pub fn chain_ids(&self) -> Vec<Digest> {
        chain_ids(self.layers.iter().map(|layer| &layer.diff_id))
    }

    /// Size of the compressed content, as image listings show it.
    pub fn content_bytes(&self) -> u64 {
        self.blobs.values().sum()
    }

    /// Merges another record of the same image, perhaps from another manifest.
    fn merge_names(&mut self, other: StoredImage) {
        self.names.extend(other.names);
        self.digests.extend(other.digests);
        self.blobs.extend(other.blobs);
        self.pinned |= other.pinned;
        self.preloaded |= other.preloaded;
    }
}

pub(crate) fn chain_ids<'a>(diff_ids: impl Iterator<Item = &'a Digest>) -> Vec<Digest> {
    let mut found: Vec<Digest> = Vec::new();
    for diff_id in diff_ids {
        found.push(Digest::chain(found.last(), diff_id));
    }
    found
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageIndex {
    version: u32,
    pub(crate) images: BTreeMap<Digest, StoredImage>,
}

impl Default for ImageIndex {
    fn default() -> Self {
        Self { version: VERSION, images: BTreeMap::new() }
    }
}

impl ImageIndex {
    /// Adds an image, or names to an existing one; names of other images move to it.
    pub(crate) fn add(&mut self, record: StoredImage) {
        for other in self.images.values_mut().filter(|other| other.id != record.id) {
            other.names.retain(|name, _| !record.names.contains_key(name));
        }
        match self.images.get_mut(&record.id) {
            Some(known) => known.merge_names(record),
            None => {
                self.images.insert(record.id, record);
            }
        }
    }

    /// Finds an image by id (or a prefix of it), by tag or by digest.
    pub(crate) fn find(&self, name: &str) -> Result<&StoredImage> {
        if let Some(record) = Digest::parse(name).ok().and_then(|digest| self.images.get(&digest)) {
            return Ok(record);
        }
        if let Ok(reference) = ImageReference::parse(name)
            && let Some(record) = self.by_reference(&reference)
        {
            return Ok(record);
        }
        self.by_start_of_id(name)
    }

    fn by_reference(&self, reference: &ImageReference) -> Option<&StoredImage> {
        // With a digest, the tag is ignored.
        if let Some(digest) = reference.digest() {
            let by_digest = reference.at_digest(digest);
            return self.images.values().find(|record| record.digests.contains(&by_digest));
        }
        let tagged = reference.tagged()?;
        self.images.values().find(|record| record.names.contains_key(&tagged))
    }

    fn by_start_of_id(&self, text: &str) -> Result<&StoredImage> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let missing = || Error::ImageMissing(text.to_owned());
        let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() < SHORTEST_ID || !digits.bytes().all(hexadecimal) {
            return Err(missing());
        }
        let matching: Vec<_> =
            self.images.values().filter(|record| record.id.hex().starts_with(digits)).collect();
        match matching.as_slice() {
            [] => Err(missing()),
            [record] => Ok(record),
            several => {
                let ids: Vec<_> = several.iter().map(|record| record.id.to_string()).collect();
                Err(Error::Ambiguous { name: text.to_owned(), found: ids.join(", ") })
            }
        }
    }

    /// Removes one name; an image without names stays until it is removed by id.
    pub(crate) fn remove_name(&mut self, reference: &ImageReference) -> bool {
        let tagged = reference.tagged();
        let by_digest = reference.digest().map(|digest| reference.at_digest(digest));
        let mut removed = false;
        for record in self.images.values_mut() {
            removed |= match (&by_digest, &tagged) {
                (Some(name), _) => record.digests.remove(name),
                (None, Some(name)) => record.names.remove(name).is_some(),
                (None, None) => false,
            };
        }
        removed
    }
}

/// The file and its lock.
#[derive(Clone, Debug)]
pub(crate) struct IndexFile {
    path: PathBuf,
    lock: PathBuf,
}

impl IndexFile {
    pub(crate) fn open(root: &Path) -> Self {
        Self { path: root.join("images.json"), lock: root.join("images.lock") }
    }

    pub(crate) fn read(&self) -> Result<ImageIndex> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ImageIndex::default());
            }
            other => other.doing("reading", &self.path)?,
        };
        let images: ImageIndex =
            serde_json::from_slice(&bytes).map_err(|error| Error::damaged(&self.path, error))?;
        if images.version != VERSION {
            let (path, found) = (self.path.clone(), images.version.to_string());
            return Err(Error::UnknownVersion { path, found, expected: VERSION });
        }
        Ok(images)
    }

    /// Reads, changes and writes the index under its lock. Without a change nothing is written.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut ImageIndex) -> Result<T>) -> Result<T> {
        let _held = Lock::exclusive(&self.lock)?;
        let before = self.read()?;
        let mut images = before.clone();
        let answer = change(&mut images)?;
        if images != before {
            let bytes = serde_json::to_vec_pretty(&images)
                .map_err(|error| Error::damaged(&self.path, error))?;
            write_durably(&self.path, &bytes)?;
        }
        Ok(answer)
    }
}
