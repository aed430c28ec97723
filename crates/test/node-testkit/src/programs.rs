//! Programs of this work tree that tests run: the agent, the leftover check.
//!
//! Rule: a test runs what the current sources give; cargo is run every time and returns at once
//! when nothing changed. Call it before a bed is made, which has no network.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Builds a program with the profile of the calling test, and returns its path.
///
/// # Errors
/// When cargo cannot build it.
pub fn build(package: &str, program: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().context("find this executable")?;
    let profile = executable
        .ancestors()
        .skip(1)
        .find(|dir| dir.file_name().is_some_and(|name| name != "deps"))
        .context("this executable is in no target folder")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", package, "--bin", program]);
    if profile.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(profile.parent().unwrap_or(Path::new("target")));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = cargo.status().context("run cargo")?;
    if !status.success() {
        bail!("cargo could not build {program}: {status}");
    }
    Ok(profile.join(program))
}
