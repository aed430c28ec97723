//! Detects whether an update differs from the last one without keeping the last one's bytes.
//!
//! Rule: 128 bits under keys that are random for each process, so that a client cannot construct
//! two manifests with the same fingerprint.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use ports::pod_sources::{ManifestContent, SourceSnapshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Fingerprints {
    first: RandomState,
    second: RandomState,
}

impl Fingerprints {
    pub(crate) fn of(&self, snapshot: &SourceSnapshot) -> Fingerprint {
        Fingerprint(hash(&self.first, snapshot), hash(&self.second, snapshot))
    }
}

fn hash(keys: &RandomState, snapshot: &SourceSnapshot) -> u64 {
    let mut hasher = keys.build_hasher();
    match snapshot {
        SourceSnapshot::Unreachable(why) => (0_u8, why).hash(&mut hasher),
        SourceSnapshot::All(files) => {
            (1_u8, files.len()).hash(&mut hasher);
            for file in files {
                file.name.hash(&mut hasher);
                match &file.content {
                    ManifestContent::Bytes(bytes) => (0_u8, bytes).hash(&mut hasher),
                    ManifestContent::Unreadable(why) => (1_u8, why).hash(&mut hasher),
                }
            }
        }
    }
    hasher.finish()
}
