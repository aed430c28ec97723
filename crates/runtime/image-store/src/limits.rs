//! Limits on untrusted input.
//!
//! Values only; each is enforced where the input is read. The defaults are far above what real
//! images need and far below what would exhaust a small node's memory.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One JSON document: manifest, index, configuration.
    pub document_bytes: u64,
    /// Manifests in one index.
    pub index_entries: usize,
    /// Nesting depth of indexes.
    pub index_depth: usize,
    /// Layers of one image. Overlay's own limit is 500; this many short paths fit in one page.
    pub layers: usize,
    /// One blob, as received (compressed).
    pub blob_bytes: u64,
    /// One layer, uncompressed, counted on the tar stream.
    pub layer_bytes: u64,
    /// Entries of one layer.
    pub layer_entries: u64,
    /// Files in one archive that contains images.
    pub archive_entries: u64,
    /// One archive, uncompressed.
    pub archive_bytes: u64,
    /// A path in a layer, and a link target.
    pub path_bytes: usize,
    /// Nesting depth of directories in a path.
    pub path_depth: usize,
    /// All extended headers of one tar entry together.
    pub extension_bytes: u64,
    /// Threads that fetch and unpack layers.
    pub parallel_layers: usize,
    /// Age after which leftovers of an interrupted pull, complete or partial, are removed.
    pub partial_age: Duration,
    /// A receiver must deliver a twentieth of the content in this time, or waiting pulls receive it
    /// themselves.
    pub wait_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        Self {
            document_bytes: 8 * MIB,
            index_entries: 1024,
            index_depth: 4,
            layers: 200,
            blob_bytes: 64 * GIB,
            layer_bytes: 128 * GIB,
            layer_entries: 4_000_000,
            archive_entries: 16_384,
            archive_bytes: 256 * GIB,
            path_bytes: 4096,
            path_depth: 512,
            extension_bytes: MIB,
            parallel_layers: 4,
            partial_age: Duration::from_secs(24 * 60 * 60),
            wait_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// An error when `found` exceeds `limit`.
    pub(crate) fn check(
        what: impl FnOnce() -> String,
        found: u64,
        limit: u64,
    ) -> crate::error::Result<()> {
        if found > limit {
            return Err(crate::error::Error::Limit { what: what(), found, limit });
        }
        Ok(())
    }
}
