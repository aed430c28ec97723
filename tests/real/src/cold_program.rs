//! Drops a program from the page cache, so that its pages are read in as they are needed, as after
//! a boot.
//!
//! A program that was just linked or copied is in the page cache in large folios, and newer kernels
//! map a whole folio when one byte of it is touched. The memory of a process then depends on how
//! its file was written, not on what the process needs.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

/// Drops a program that is not running from the page cache.
///
/// # Errors
/// When there is no such file.
pub fn forget(program: &Path) -> Result<()> {
    let named = || program.display().to_string();
    let file = File::open(program).with_context(named)?;
    // What is not on the disk yet cannot be forgotten.
    file.sync_all().with_context(named)?;
    fadvise(&file, 0, None, Advice::DontNeed).with_context(named)
}
