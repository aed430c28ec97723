//! `cargo xtask mutants`: mutates the pure crates, one rule at a time; each time a test must fail.
//!
//! Rule: cargo-mutants works on a copy of the tree and writes its report to cargo's target
//! directory. It must be installed: nothing is downloaded here. Surviving mutants end the verb with
//! an error.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::camino::Utf8Path;

use crate::workspace;

/// How long one mutant's tests may take.
const LONGEST_TEST_SECONDS: &str = "300";

pub(crate) fn command(package: Option<&str>) -> Result<()> {
    let pure = pure_packages()?;
    let chosen: Vec<&String> =
        pure.iter().filter(|name| package.is_none_or(|package| package == *name)).collect();
    ensure!(!chosen.is_empty(), "no such crate; there are {}", pure.join(", "));
    let installed = Command::new("cargo").args(["mutants", "--version"]).output();
    let installed = installed.context("cargo mutants")?;
    ensure!(
        installed.status.success(),
        "cargo-mutants is not here; `cargo install --locked cargo-mutants` fetches it"
    );
    let report = workspace::target_dir()?.join("mutants");
    std::fs::create_dir_all(&report)?;
    let mut command = workspace::cargo(&["mutants", "--no-shuffle", "--jobs", "1"]);
    command.arg("--output").arg(&report).args(["--timeout", LONGEST_TEST_SECONDS]);
    for name in chosen {
        command.args(["--package", name]);
    }
    command.current_dir(workspace::root());
    workspace::run(&mut command)
        .with_context(|| format!("survivors are listed in {}", report.display()))
}

/// The pure crates and their vocabulary crates, by directory.
fn pure_packages() -> Result<Vec<String>> {
    let metadata = workspace::metadata()?;
    let root = metadata.workspace_root.clone();
    let is_pure = |manifest: &Utf8Path| {
        let below = manifest.strip_prefix(&root).unwrap_or(manifest);
        below.starts_with("crates/decide") || below.starts_with("crates/model")
    };
    let pure =
        metadata.workspace_packages().into_iter().filter(|each| is_pure(&each.manifest_path));
    let mut names: Vec<String> = pure.map(|package| package.name.to_string()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pure_crates_are_found() {
        let names = pure_packages().unwrap();
        for name in ["pod-lifecycle", "node-policy", "pod-model"] {
            assert!(names.iter().any(|each| each == name), "{names:?}");
        }
        assert!(!names.iter().any(|each| each == "node-agent"), "{names:?}");
    }
}
