//! `cargo xtask conformance foreign-grpc`: `keelson cri` in a bed, and a Python program with gRPC's
//! C core as its client.
//!
//! Runs inside a bed (`bed run -- foreign-grpc KEELSON PYTHON SCRIPT STUBS`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed;
use real_tests::embedded::{Embedded, EmbeddedOptions, Programs};

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask conformance")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [keelson, python, script, stubs] = arguments.as_slice() else {
        bail!("usage: foreign-grpc KEELSON PYTHON SCRIPT STUBS");
    };
    let programs = Programs::beside(Path::new(keelson));
    let server = Embedded::start(&bed, &programs, &EmbeddedOptions::default())?;
    let status = Command::new(python).arg(script).arg(stubs).arg(server.socket()).status()?;
    ensure!(status.success(), "the client failed: {status}");
    Ok(())
}
