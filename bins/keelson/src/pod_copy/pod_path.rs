//! `POD:PATH` and local paths, as arguments of `cp`. Pure.

use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::path::PathBuf;

/// A path in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodPath {
    /// NAME, NAMESPACE/NAME or the beginning of a UID.
    pub(super) pod: String,
    pub(super) path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Direction {
    Out { from: PodPath, to: PathBuf },
    In { from: PathBuf, to: PodPath },
}

impl Direction {
    pub(super) fn remote(&self) -> &PodPath {
        match self {
            Self::Out { from, .. } => from,
            Self::In { to, .. } => to,
        }
    }
}

pub(super) fn direction(from: &str, to: &str) -> Result<Direction> {
    match (remote(from), remote(to)) {
        (Some(from), None) => Ok(Direction::Out { from: from?, to: PathBuf::from(to) }),
        (None, Some(to)) => Ok(Direction::In { from: PathBuf::from(from), to: to? }),
        (Some(_), Some(_)) => {
            bail!("{from} and {to} are both in pods; one must be of this machine")
        }
        (None, None) => {
            bail!("neither {from} nor {to} is in a pod; write POD:PATH for one of them")
        }
    }
}

/// None for a local path: one without a colon, or one that begins like a path.
fn remote(text: &str) -> Option<Result<PodPath>> {
    if text.starts_with(['/', '.']) {
        return None;
    }
    let (pod, path) = text.split_once(':')?;
    let words = pod.split('/').count();
    let pod_path = if pod.is_empty() || words > 2 || pod.split('/').any(str::is_empty) {
        Err(anyhow::anyhow!("{text}: expected POD:PATH or NAMESPACE/POD:PATH"))
    } else if path.is_empty() {
        Err(anyhow::anyhow!("{text}: expected a path behind the colon"))
    } else {
        Ok(PodPath { pod: pod.to_owned(), path: path.to_owned() })
    };
    Some(pod_path)
}

/// The name at the end of a path.
pub(super) fn last_name(path: &str) -> Option<&OsStr> {
    let last = path.rsplit('/').find(|part| !part.is_empty() && *part != ".")?;
    (last != "..").then(|| OsStr::new(last))
}
