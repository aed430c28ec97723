//! Allocates ranges of host user ids to pods with a user namespace (`hostUsers: false`).
//!
//! Rules: the node's ids are divided into ranges of equal length; a pod has one range, no two pods
//! the same, and id 0 of the host is in none. A pod's range is written in its directory in the
//! reference's format, so either agent can adopt the other's pods; a file with anything but a range
//! of ours is an error, never repaired.
//!
//! upstream: pkg/kubelet/userns/userns_manager.go, pkg/kubelet/kubelet_pods.go

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// The file in the pod's directory.
pub const FILE_NAME: &str = "userns";
/// The default of `userNamespaces.idsPerPod`, and what it must be a multiple of.
pub const USUAL_LENGTH: u32 = 65_536;

/// Why the node's ids cannot be divided into ranges, in the reference's words where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserNamespacePoolError {
    #[error("{output:?}: expected one line of subordinate ids")]
    LineCount { output: String },
    #[error("{line:?}: expected four words, such as 0: kubelet 65536 7208960")]
    WordCount { line: String },
    #[error("{line:?}: {word}: expected a number of 32 bits")]
    Number { line: String, word: String },
    #[error("kubelet user namespace length {length} is not a multiple of {USUAL_LENGTH}")]
    Length { length: u32 },
    #[error("kubelet user assigned ID {first} is not a multiple of {length}")]
    FirstNotAligned { first: u32, length: u32 },
    #[error("kubelet user assigned ID {first} must be greater or equal to {length}")]
    FirstTooLow { first: u32, length: u32 },
    #[error("kubelet user assigned IDs length {count} is not a multiple of {length}")]
    Count { count: u32, length: u32 },
    #[error("kubelet user assigned IDs are not enough to support {pods} pods")]
    TooFew { pods: i64 },
}

/// Why a pod has no range, in the reference's words where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserNamespaceRangeError {
    #[error("different user namespace range already used by pod {uid:?}")]
    OtherRange { uid: String },
    #[error("range picked for pod {uid:?} already taken")]
    Taken { uid: String },
    #[error("invalid user namespace mappings file: {reason}")]
    InvalidFile { reason: String },
    #[error("invalid user namespace configuration: {reason}")]
    InvalidMapping { reason: &'static str },
    #[error("wrong user namespace length {length}")]
    Length { length: u32 },
    #[error("wrong user namespace offset specified {host_id}")]
    NotAligned { host_id: u32 },
    #[error("id {host_id} is out of range")]
    OutOfRange { host_id: u32 },
    #[error("could not find an empty slot to allocate a user namespace")]
    NoneFree,
    /// In the serializer's words.
    #[error("{0}")]
    Serialize(String),
}

/// The pool of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserNamespacePool {
    pub first: u32,
    pub count: u32,
    /// For each pod.
    pub length: u32,
}

impl UserNamespacePool {
    /// All ids of the host but the first range.
    pub fn whole(length: u32) -> Self {
        Self { first: length, count: 0_u32.wrapping_sub(length), length }
    }

    /// Parses the output of `getsubids`: `0: kubelet 65536 7208960`.
    ///
    /// # Errors
    /// Where it is not one line of that form.
    pub fn parse(subids: &str, length: u32) -> Result<Self, UserNamespacePoolError> {
        let mut lines = subids.trim().lines();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(UserNamespacePoolError::LineCount { output: subids.to_owned() });
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, first, count] = words.as_slice() else {
            return Err(UserNamespacePoolError::WordCount { line: line.to_owned() });
        };
        let number = |word: &str| {
            word.parse().map_err(|_| UserNamespacePoolError::Number {
                line: line.to_owned(),
                word: word.to_owned(),
            })
        };
        Ok(Self { first: number(first)?, count: number(count)?, length })
    }
}

/// The allocated ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNamespaceRangeAllocator {
    pool: UserNamespacePool,
    /// The first id of the range, by the pod's UID.
    allocated: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

impl UserNamespaceRangeAllocator {
    /// # Errors
    /// Where the pool cannot be cut into that many ranges, in the reference's words.
    pub fn new(pool: UserNamespacePool, most_pods: i64) -> Result<Self, UserNamespacePoolError> {
        let UserNamespacePool { first, count, length } = pool;
        if length == 0 || !length.is_multiple_of(USUAL_LENGTH) {
            return Err(UserNamespacePoolError::Length { length });
        }
        if !first.is_multiple_of(length) {
            return Err(UserNamespacePoolError::FirstNotAligned { first, length });
        }
        if first < length {
            return Err(UserNamespacePoolError::FirstTooLow { first, length });
        }
        if !count.is_multiple_of(length) {
            return Err(UserNamespacePoolError::Count { count, length });
        }
        if i64::from(count / length) < most_pods {
            return Err(UserNamespacePoolError::TooFew { pods: most_pods });
        }
        Ok(Self { pool, allocated: BTreeMap::new() })
    }

    pub fn length(&self) -> u32 {
        self.pool.length
    }

    /// Records the range in a pod's file; returns its first id.
    ///
    /// # Errors
    /// Where the file says no range of ours, or one that another pod has.
    pub fn record(&mut self, uid: &str, file: &[u8]) -> Result<u32, UserNamespaceRangeError> {
        let first = self.read(file)?;
        match self.allocated.get(uid) {
            Some(known) if *known == first => return Ok(first),
            Some(_) => {
                return Err(UserNamespaceRangeError::OtherRange { uid: uid.to_owned() });
            }
            None => {}
        }
        if self.allocated.values().any(|taken| *taken == first) {
            return Err(UserNamespaceRangeError::Taken { uid: uid.to_owned() });
        }
        self.allocated.insert(uid.to_owned(), first);
        Ok(first)
    }

    fn read(&self, file: &[u8]) -> Result<u32, UserNamespaceRangeError> {
        let Mappings { uid_mappings, gid_mappings } = serde_json::from_slice(file)
            .map_err(|error| UserNamespaceRangeError::InvalidFile { reason: error.to_string() })?;
        let invalid = |reason| Err(UserNamespaceRangeError::InvalidMapping { reason });
        let ([users], [groups]) = (uid_mappings.as_slice(), gid_mappings.as_slice()) else {
            return invalid("one mapping of users and one of groups is expected");
        };
        if users != groups {
            return invalid("GID and UID mapping should be identical");
        }
        if users.container_id != 0 {
            return invalid("UID 0 must be mapped");
        }
        let UserNamespacePool { first, count, length } = self.pool;
        if users.length != length {
            return Err(UserNamespaceRangeError::Length { length: users.length });
        }
        if !users.host_id.is_multiple_of(length) {
            return Err(UserNamespaceRangeError::NotAligned { host_id: users.host_id });
        }
        let is_ours = users.host_id.checked_sub(first).is_some_and(|offset| offset < count);
        if !is_ours {
            return Err(UserNamespaceRangeError::OutOfRange { host_id: users.host_id });
        }
        Ok(users.host_id)
    }

    /// Allocates a range for a pod that has none; returns the first id, and the content of its
    /// file.
    ///
    /// Where none is free.
    pub fn reserve(&mut self, uid: &str) -> Result<(u32, Vec<u8>), UserNamespaceRangeError> {
        let UserNamespacePool { first, count, length } = self.pool;
        let free = (0..count / length)
            .filter_map(|index| first.checked_add(index.checked_mul(length)?))
            .find(|range| !self.allocated.values().any(|taken| taken == range));
        let Some(free) = free else {
            return Err(UserNamespaceRangeError::NoneFree);
        };
        let mapping = Mapping { host_id: free, container_id: 0, length };
        let file = Mappings { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
        let text = serde_json::to_vec(&file)
            .map_err(|error| UserNamespaceRangeError::Serialize(error.to_string()))?;
        self.allocated.insert(uid.to_owned(), free);
        Ok((free, text))
    }

    /// Releases the ranges of all other pods.
    pub fn retain_pods(&mut self, is_here: impl Fn(&str) -> bool) {
        self.allocated.retain(|uid, _| is_here(uid));
    }
}
