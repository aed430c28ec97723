//! The last good version of a manifest as a record on disk.
//!
//! Rule: versioned JSON with the manifest's own text; a record of an unknown version is ignored.

use pod_manifest::static_pod::SourceKind;
use serde::{Deserialize, Serialize};

use super::MANIFESTS_DIR;
use crate::record::{RecordChange, record_name};

#[cfg(test)]
mod tests;

const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedManifest {
    version: u32,
    pub(super) source: String,
    pub(super) file: String,
    pub(super) manifest: String,
}

fn name(kind: SourceKind, file: &str) -> String {
    record_name(&format!("{} {file}", kind.word()))
}

/// None where the manifest is not text; such a one has no pods either.
pub(super) fn saved_record(kind: SourceKind, file: &str, bytes: &[u8]) -> Option<RecordChange> {
    let saved = SavedManifest {
        version: VERSION,
        source: kind.word().to_owned(),
        file: file.to_owned(),
        manifest: String::from_utf8(bytes.to_vec()).ok()?,
    };
    let content = serde_json::to_vec(&saved).ok()?;
    Some(RecordChange { dir: MANIFESTS_DIR, name: name(kind, file), content: Some(content) })
}

pub(super) fn removed_record(kind: SourceKind, file: &str) -> RecordChange {
    RecordChange { dir: MANIFESTS_DIR, name: name(kind, file), content: None }
}

pub(super) fn read(content: &[u8]) -> Option<SavedManifest> {
    let saved: SavedManifest = serde_json::from_slice(content).ok()?;
    (saved.version == VERSION).then_some(saved)
}
