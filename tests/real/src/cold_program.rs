//! Programs as after a boot: their pages are read in as they are needed.
//!
//! A program that was just linked or copied lies in the page cache in large pieces, and newer kernels
//! map a piece whole when one byte of it is touched. Then the memory of a process tells how its file
//! was written, and not what the process needs.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

/// Lets the page cache forget a program that nobody runs.
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
