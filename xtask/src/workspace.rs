//! The workspace's directory, and running its programs. No decisions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Metadata, MetadataCommand};

/// The workspace's directory: xtask is directly below it.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

pub(crate) fn metadata() -> Result<Metadata> {
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).exec().context("cargo metadata")
}

/// Name and version of everything that is really built, on any target. `cargo metadata` also lists
/// packages behind features that are not enabled.
pub(crate) fn built_packages() -> Result<BTreeSet<(String, String)>> {
    let output = cargo(&["tree", "--workspace", "--target", "all", "--prefix", "none"])
        .args(["--edges", "normal,build,dev", "--format", "{p}"])
        .output()
        .context("cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).context("cargo tree")?;
    let packages = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned()))
    });
    Ok(packages.collect())
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    Ok(metadata()?.target_directory.into_std_path_buf())
}

/// A program built with the development profile.
pub(crate) fn built(program: &str) -> Result<PathBuf> {
    let path = target_dir()?.join("debug").join(program);
    if !path.is_file() {
        bail!("{} is not built; cargo build --workspace", path.display());
    }
    Ok(path)
}

pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // An error is a chain of messages; its backtrace would hide it at the end of the output. Panics
    // keep theirs.
    command.args(arguments).current_dir(root()).env("RUST_LIB_BACKTRACE", "0");
    command
}

/// Runs to the end; a failure names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}
