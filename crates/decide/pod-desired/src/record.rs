//! A small record to be kept on disk: its directory, its name, and its bytes, or none when it is to
//! be removed.
//!
//! Rule: a name is a hash, so that any text can be a key and none is too long for a file name.

use pod_manifest::static_pod::fnv128a;

/// A change to the records that outlive the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    pub dir: &'static str,
    pub name: String,
    /// None: the record is to be removed.
    pub content: Option<Vec<u8>>,
}

/// The name of the record of this key.
pub(crate) fn record_name(key: &str) -> String {
    format!("{:032x}", fnv128a(key.as_bytes()))
}
