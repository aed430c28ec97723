//! Limits of this process: its `oom_score_adj`, its open files.
//!
//! Rule: set what was asked; without the capability, get as close as allowed and report it. Neither
//! is a reason not to run.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error(
        "cannot set {path} to {wanted}: {cause}; it stays {current} \
         (going below it needs CAP_SYS_RESOURCE)"
    )]
    OomScoreAdj { path: PathBuf, wanted: i32, current: String, cause: std::io::Error },
    #[error(
        "cannot raise the limit of open files to {wanted}: {cause}; it is {reached} \
         (going above the hard limit needs CAP_SYS_RESOURCE)"
    )]
    OpenFiles { wanted: u64, reached: String, cause: std::io::Error },
}

/// Sets this process's `oom_score_adj`; `process_dir` is `/proc/self`.
pub fn set_oom_score_adj(process_dir: &Path, wanted: i32) -> Result<(), LimitError> {
    let path = process_dir.join("oom_score_adj");
    let current = std::fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
    if current == wanted.to_string() {
        return Ok(());
    }
    std::fs::write(&path, wanted.to_string()).map_err(|cause| LimitError::OomScoreAdj {
        path,
        wanted,
        current: if current.is_empty() { "as it was".to_owned() } else { current },
        cause,
    })
}

/// Sets soft and hard limit of open files, as upstream (pkg/util/rlimit). Where the hard limit
/// cannot be raised, the soft one is raised as far as it goes before the error is returned.
pub fn set_open_files(wanted: u64) -> Result<(), LimitError> {
    let before = getrlimit(Resource::Nofile);
    let both = Rlimit { current: Some(wanted), maximum: Some(wanted) };
    if (before.current, before.maximum) == (both.current, both.maximum) {
        return Ok(());
    }
    let Err(errno) = setrlimit(Resource::Nofile, both) else { return Ok(()) };
    let nearest = before.maximum.map_or(wanted, |hard| hard.min(wanted));
    let reached = Rlimit { current: Some(nearest), maximum: before.maximum };
    let reached = match setrlimit(Resource::Nofile, reached) {
        Ok(()) => Some(nearest),
        Err(_) => before.current,
    };
    Err(LimitError::OpenFiles {
        wanted,
        reached: reached.map_or_else(|| "unlimited".to_owned(), |value| value.to_string()),
        cause: errno.into(),
    })
}

#[cfg(test)]
mod tests;
