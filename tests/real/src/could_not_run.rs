//! What a test cannot show on this machine, said where a landing looks.
//!
//! Rule: a line each, `test: reason`, into the file that the verb names (`KEELSON_COULD_NOT_RUN`); the
//! verb holds it against `tests/could-not-run.txt`. A test that is run by itself says it aloud only.

use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::{Context, Result};

/// Named by the verb; see `xtask/src/test_run.rs`.
const FILE: &str = "KEELSON_COULD_NOT_RUN";

/// `what` is what is not shown: the test's name, and the part of it where the rest ran.
pub fn could_not_run(what: &str, reason: &str) -> Result<()> {
    eprintln!("could not run: {what}: {reason}");
    let Some(path) = std::env::var_os(FILE) else { return Ok(()) };
    let shown = path.to_string_lossy().into_owned();
    let mut file = OpenOptions::new().append(true).open(&path).with_context(|| shown.clone())?;
    writeln!(file, "{what}: {reason}").context(shown)
}
