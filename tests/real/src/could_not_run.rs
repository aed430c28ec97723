//! Reports what a test cannot show on this machine.
//!
//! Rule: one line each, `test: reason`, in the file that the verb names (`KEELSON_COULD_NOT_RUN`);
//! the verb compares it with `tests/could-not-run.txt`. A test that runs by itself only prints it.

use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::{Context, Result};

/// Set by the verb; see `xtask/src/test_run.rs`.
const FILE: &str = "KEELSON_COULD_NOT_RUN";

/// `what` is what is not shown: the test's name, and the part of it where the rest ran.
pub fn could_not_run(what: &str, reason: &str) -> Result<()> {
    eprintln!("could not run: {what}: {reason}");
    let Some(path) = std::env::var_os(FILE) else { return Ok(()) };
    let shown = path.to_string_lossy().into_owned();
    let mut file = OpenOptions::new().append(true).open(&path).with_context(|| shown.clone())?;
    writeln!(file, "{what}: {reason}").context(shown)
}
