//! Volumes whose files come from the API: configMap, secret, downwardAPI, projected.
//!
//! Rule: functions from values to values. [`sources`] lists the objects and tokens that a volume
//! needs, [`payload`] makes the files of a volume from their contents, [`tokens`] says when a token
//! is renewed, [`mount_points`] which directories other volumes of the pod need in it. Error texts
//! are upstream's, since they appear in events. Reads nothing and writes nothing.

pub mod mount_points;
pub mod owner;
pub mod paths;
pub mod payload;
pub mod sources;
pub mod tokens;

#[cfg(test)]
mod testing;

/// Why a volume has no content, with upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(pub String);
