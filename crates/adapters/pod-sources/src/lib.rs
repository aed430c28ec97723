//! Where manifests come from: a file or a folder that is watched, a URL that is asked.
//!
//! Rule: a source hands over bytes, and every telling is all that it has. It decides nothing about
//! them: no decoding, no merging, no keeping of pods.

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

/// No manifest is this long or longer (upstream: config/common.go).
pub const LONGEST_MANIFEST: usize = 10 << 20;
