//! Image pull records, in upstream's directories: `<root>/image_manager/pulling` and `pulled`, a
//! file for each image, named by its SHA-256.
//!
//! Rule: as with the agent's own records: complete and on disk when a save returns. Files with
//! other names are ignored.
//!
//! upstream: pkg/kubelet/images/pullmanager/fs_pullrecords.go

use std::path::Path;

use ports::pod_host::{AgentRecords as _, HostFuture, LoadedRecords};
use ports::{PullRecordKind, PullRecords};
use sha2::{Digest as _, Sha256};

use crate::records::HostRecords;

#[cfg(test)]
mod tests;

const IMAGE_MANAGER_DIR: &str = "image_manager";
const PREFIX: &str = "sha256-";
/// Suffix of a file that upstream is still writing.
const TEMPORARY_SUFFIX: &str = ".tmp";

#[derive(Debug, Clone)]
pub struct HostPullRecords {
    files: HostRecords,
}

impl HostPullRecords {
    /// `root` is the kubelet's root directory.
    pub fn new(root: &Path) -> Self {
        Self { files: HostRecords::at(&root.join(IMAGE_MANAGER_DIR)) }
    }
}

fn dir(kind: PullRecordKind) -> &'static str {
    match kind {
        PullRecordKind::Intent => "pulling",
        PullRecordKind::Pulled => "pulled",
    }
}

fn hex_digest(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_name(subject: &str) -> String {
    format!("{PREFIX}{}", hex_digest(subject.as_bytes()))
}

impl PullRecords for HostPullRecords {
    fn read<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
    ) -> HostFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.files.read(dir(kind), &file_name(subject)).await })
    }

    fn all(&self, kind: PullRecordKind) -> HostFuture<'_, LoadedRecords> {
        Box::pin(async move {
            let mut loaded = self.files.load(dir(kind)).await?;
            loaded
                .records
                .retain(|(name, _)| name.starts_with(PREFIX) && !name.ends_with(TEMPORARY_SUFFIX));
            Ok(loaded)
        })
    }

    fn digest(&self, text: &[u8]) -> String {
        hex_digest(text)
    }

    fn save<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
        content: Vec<u8>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move { self.files.save(dir(kind), &file_name(subject), content).await })
    }

    fn remove<'a>(&'a self, kind: PullRecordKind, subject: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.files.remove(dir(kind), &file_name(subject)).await })
    }
}
