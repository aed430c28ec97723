//! `cargo xtask conformance foreign-grpc`: `keelson cri` in a bed, with a Python client on gRPC's C
//! core and a Go client on gRPC's Go library.
//!
//! Runs inside a bed (`bed run -- foreign-grpc KEELSON GO-CLIENT PYTHON SCRIPT STUBS`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed;
use real_tests::embedded::{Embedded, EmbeddedOptions, RuntimePrograms};

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask conformance")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [keelson, go_client, python, script, stubs] = arguments.as_slice() else {
        bail!("usage: foreign-grpc KEELSON GO-CLIENT PYTHON SCRIPT STUBS");
    };
    let programs = RuntimePrograms::beside(Path::new(keelson));
    let server = Embedded::start(&bed, &programs, &EmbeddedOptions::default())?;
    let status = Command::new(python).arg(script).arg(stubs).arg(server.socket()).status()?;
    ensure!(status.success(), "the client in Python failed: {status}");
    let status = Command::new(go_client).arg(server.socket()).status()?;
    ensure!(status.success(), "the client in Go failed: {status}");
    Ok(())
}
