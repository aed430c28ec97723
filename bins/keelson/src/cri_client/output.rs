//! Writes to the caller's terminal or pipe.
//!
//! Rule: a reader that stops reading (`| head`) is no error. Does not format.

use std::io::{self, Write};

use anyhow::{Context, Result};

pub(super) fn print(text: &str) -> Result<()> {
    write_all(&mut io::stdout().lock(), text.as_bytes()).context("cannot write the answer")
}

/// What a command in a container wrote, to the same two streams here.
pub(super) fn pass_on(stdout: &[u8], stderr: &[u8]) -> Result<()> {
    write_all(&mut io::stdout().lock(), stdout).context("cannot write the command's output")?;
    write_all(&mut io::stderr().lock(), stderr).context("cannot write the command's errors")
}

fn write_all(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    match stream.write_all(bytes).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
