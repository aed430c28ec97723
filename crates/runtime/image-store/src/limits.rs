//! How much of what others wrote is taken before it is refused.
//!
//! Values only; each is enforced where the thing is read. The defaults are far above what images
//! in use have and far below what would hurt a small machine's memory.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One JSON document: manifest, index, configuration.
    pub document_bytes: u64,
    /// Manifests of one index.
    pub index_entries: usize,
    /// How deep an index may lie in an index.
    pub index_depth: usize,
    /// Layers of one image. Overlay's own limit is 500; this many short paths fit in one page.
    pub layers: usize,
    /// One blob, compressed as it came.
    pub blob_bytes: u64,
    /// One layer, unpacked, counted on the tar stream.
    pub layer_bytes: u64,
    /// Entries of one layer.
    pub layer_entries: u64,
    /// Files of one archive that holds images.
    pub archive_entries: u64,
    /// One archive, uncompressed.
    pub archive_bytes: u64,
    /// A path inside a layer, and a link's target.
    pub path_bytes: usize,
    /// Folders below each other in a path.
    pub path_depth: usize,
    /// Extended headers of one tar entry, together.
    pub extension_bytes: u64,
    /// Threads that fetch and unpack layers.
    pub parallel_layers: usize,
    /// What a broken pull left, whole or in part, is given up when nobody has touched it for so long.
    pub partial_age: Duration,
    /// Whoever receives content that others wait for brings a twentieth of it in this time, or they
    /// receive it themselves.
    pub turn_patience: Duration,
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
            turn_patience: Duration::from_secs(30),
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
