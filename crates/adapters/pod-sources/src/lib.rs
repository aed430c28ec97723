//! Pod sources: a file or a directory that is watched, a URL that is polled.
//!
//! Rule: a source hands over bytes, and every update is the source's full content. It decides
//! nothing about them: no decoding, no merging, no tracking of pods.

mod bundle;
mod fetch;
mod file_source;
mod fingerprint;
mod listing;
mod url_source;
mod watches;

pub use bundle::CA_BUNDLES;
pub use file_source::FileSource;
pub use url_source::UrlSource;

/// Every manifest is shorter than this (upstream: config/common.go).
pub const MAX_MANIFEST_BYTES: usize = 10 << 20;
