//! Preloaded images: a directory of archives and layouts that is imported at startup.
//!
//! Rule: preloaded images are pinned, so garbage collection keeps them. A file is read again only
//! when it has changed or its image is gone; an import error is logged and does not affect the
//! others. Links are not followed; directories count as layouts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use image_store::{ImageStore, ImportOptions, NoProgress};
use serde::{Deserialize, Serialize};

use crate::failure::{CallContext as _, Result};

#[cfg(test)]
mod tests;

const VERSION: u32 = 1;

/// What was imported before, so that an unchanged file is not read again.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PreloadedFiles {
    version: u32,
    files: BTreeMap<PathBuf, PreloadedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PreloadedFile {
    size: u64,
    changed: (i64, i64),
    images: Vec<String>,
}

/// Returns a message for each failure. Imports in the order of the names.
pub(super) fn import(store: &ImageStore, dir: &Path) -> Result<Vec<String>> {
    let place = store.root().join("preloaded.json");
    let before = read(&place);
    let mut after = PreloadedFiles { version: VERSION, ..PreloadedFiles::default() };
    let mut errors = Vec::new();
    let entries = fs::read_dir(dir).doing(format!("reading {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || !(metadata.is_file() || metadata.is_dir()) {
            continue;
        }
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        let same = before.files.get(&path).filter(|known| {
            let there = known.images.iter().all(|image| is_preloaded(store, image));
            known.changed == changed && known.size == metadata.len() && there
        });
        // A layout may change beneath its directory; importing content that exists is cheap.
        if let Some(known) = same.filter(|_| metadata.is_file()) {
            after.files.insert(path, known.clone());
            continue;
        }
        let options = ImportOptions { preloaded: true, ..ImportOptions::default() };
        match store.import(&path, &options, &NoProgress) {
            Ok(images) => {
                let images = images.iter().map(|image| image.record.id.to_string()).collect();
                after.files.insert(path, PreloadedFile { size: metadata.len(), changed, images });
            }
            Err(error) => errors.push(format!("{}: {error}", path.display())),
        }
    }
    if after != before {
        let text = serde_json::to_vec(&after).unwrap_or_default();
        crate::durable::write_durably(&place, &text)?;
    }
    Ok(errors)
}

fn is_preloaded(store: &ImageStore, image: &str) -> bool {
    store.image(image).is_ok_and(|record| record.preloaded)
}

/// An unreadable note counts as missing: everything is imported again.
fn read(place: &Path) -> PreloadedFiles {
    let bytes = fs::read(place).unwrap_or_default();
    let note: PreloadedFiles = serde_json::from_slice(&bytes).unwrap_or_default();
    if note.version == VERSION { note } else { PreloadedFiles::default() }
}
