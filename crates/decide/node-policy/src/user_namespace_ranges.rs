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
    pub fn parse(subids: &str, length: u32) -> Result<Self, String> {
        let mut lines = subids.trim().lines();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(format!("{subids:?}: expected one line of subordinate ids"));
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, first, count] = words.as_slice() else {
            return Err(format!("{line:?}: expected four words, such as 0: kubelet 65536 7208960"));
        };
        let number = |text: &str| {
            text.parse().map_err(|_| format!("{line:?}: {text}: expected a number of 32 bits"))
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
    pub fn new(pool: UserNamespacePool, most_pods: i64) -> Result<Self, String> {
        let UserNamespacePool { first, count, length } = pool;
        if length == 0 || !length.is_multiple_of(USUAL_LENGTH) {
            return Err(format!(
                "kubelet user namespace length {length} is not a multiple of {USUAL_LENGTH}"
            ));
        }
        if !first.is_multiple_of(length) {
            return Err(format!("kubelet user assigned ID {first} is not a multiple of {length}"));
        }
        if first < length {
            return Err(format!(
                "kubelet user assigned ID {first} must be greater or equal to {length}"
            ));
        }
        if !count.is_multiple_of(length) {
            return Err(format!(
                "kubelet user assigned IDs length {count} is not a multiple of {length}"
            ));
        }
        if i64::from(count / length) < most_pods {
            return Err(format!(
                "kubelet user assigned IDs are not enough to support {most_pods} pods"
            ));
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
    pub fn record(&mut self, uid: &str, file: &[u8]) -> Result<u32, String> {
        let first = self.read(file)?;
        match self.allocated.get(uid) {
            Some(known) if *known == first => return Ok(first),
            Some(_) => {
                return Err(format!("different user namespace range already used by pod {uid:?}"));
            }
            None => {}
        }
        if self.allocated.values().any(|taken| *taken == first) {
            return Err(format!("range picked for pod {uid:?} already taken"));
        }
        self.allocated.insert(uid.to_owned(), first);
        Ok(first)
    }

    fn read(&self, file: &[u8]) -> Result<u32, String> {
        let Mappings { uid_mappings, gid_mappings } = serde_json::from_slice(file)
            .map_err(|error| format!("invalid user namespace mappings file: {error}"))?;
        let invalid = |why: &str| Err(format!("invalid user namespace configuration: {why}"));
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
            return Err(format!("wrong user namespace length {}", users.length));
        }
        if !users.host_id.is_multiple_of(length) {
            return Err(format!("wrong user namespace offset specified {}", users.host_id));
        }
        let is_ours = users.host_id.checked_sub(first).is_some_and(|offset| offset < count);
        if !is_ours {
            return Err(format!("id {} is out of range", users.host_id));
        }
        Ok(users.host_id)
    }

    /// Allocates a range for a pod that has none; returns the first id, and the content of its
    /// file.
    ///
    /// Where none is free.
    pub fn reserve(&mut self, uid: &str) -> Result<(u32, Vec<u8>), String> {
        let UserNamespacePool { first, count, length } = self.pool;
        let free = (0..count / length)
            .filter_map(|index| first.checked_add(index.checked_mul(length)?))
            .find(|range| !self.allocated.values().any(|taken| taken == range));
        let Some(free) = free else {
            return Err("could not find an empty slot to allocate a user namespace".to_owned());
        };
        let mapping = Mapping { host_id: free, container_id: 0, length };
        let file = Mappings { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
        let text = serde_json::to_vec(&file).map_err(|error| error.to_string())?;
        self.allocated.insert(uid.to_owned(), free);
        Ok((free, text))
    }

    /// Releases the ranges of all other pods.
    pub fn retain_pods(&mut self, is_here: impl Fn(&str) -> bool) {
        self.allocated.retain(|uid, _| is_here(uid));
    }
}
