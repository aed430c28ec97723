//! The real parts: upstream programs that tests run on, pinned by the Go modules in
//! `tests/real-parts`, built on first use, kept in the cache by version.
//!
//! Rule: a version is written once, in the go.mod that pins it. What is present is never rebuilt
//! and needs no Go. This module does not start anything: see [`crate::start`].

mod build;
mod pin;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

pub use table::{RealPart, TABLE};

/// A part in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltPart {
    pub name: &'static str,
    pub version: String,
    /// The directory with its programs.
    pub bin: PathBuf,
}

impl BuiltPart {
    /// The path of one of its programs.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// Ensures that the named parts are in the cache, builds what is missing, and returns where they
/// are, in the given order.
///
/// # Errors
/// An unknown name, a missing Go or Debian package, a failed build: one line that says which.
pub fn ensure(names: &[&str]) -> Result<Vec<BuiltPart>> {
    names.iter().map(|name| build::ensure(table::find(name)?)).collect()
}

/// The path of a program of a part that must already be in the cache. Nothing is built: this is
/// for use inside a bed, which has no network.
///
/// # Errors
/// When the part is not there, with the verb that builds it.
pub fn program(part: &str, program: &str) -> Result<PathBuf> {
    let part = table::find(part)?;
    if !part.programs.iter().any(|(name, _)| *name == program) {
        bail!("part {} has no program {program}", part.name);
    }
    let built = build::location(part)?;
    if !built.bin.is_dir() {
        bail!(
            "part {} {} is not built: name it in the test's needs, or run `cargo xtask parts {}`",
            part.name,
            built.version,
            part.name
        );
    }
    Ok(built.program(program))
}

/// The version that is pinned for a part, as `v1.2.3`.
///
/// # Errors
/// An unknown part, or a go.mod that does not require its module.
pub fn version(part: &str) -> Result<String> {
    table::find(part)?.version()
}

/// The verb: builds the named parts, or all for the word `all`, and prints their paths.
///
/// # Errors
/// As [`ensure`].
pub fn command(names: &[&str]) -> Result<()> {
    let began = Instant::now();
    let chosen: Vec<&str> = if names == ["all"] {
        TABLE.iter().map(|part| part.name).collect()
    } else {
        names.to_vec()
    };
    for name in &chosen {
        table::find(name)?;
    }
    for part in ensure(&chosen)? {
        println!("{:<24} {:<10} {}", part.name, part.version, part.bin.display());
    }
    eprintln!("parts: {} ready in {:.1} s", chosen.len(), began.elapsed().as_secs_f64());
    Ok(())
}

/// The verb without names: every part, its version, whether it is built, and what building it needs.
///
/// # Errors
/// A go.mod that cannot be read, or no cache directory.
pub fn list() -> Result<()> {
    for part in TABLE {
        let built = build::location(part)?;
        let state = if built.bin.is_dir() { "built" } else { "-" };
        let packages = part.debian_packages.join(" ");
        println!("{:<24} {:<10} {:<6} {}", part.name, built.version, state, packages);
    }
    Ok(())
}

/// The Debian packages that building the named parts needs, beside Go itself.
///
/// # Errors
/// An unknown name.
pub fn debian_packages(names: &[&str]) -> Result<Vec<&'static str>> {
    let mut packages = Vec::new();
    for name in names {
        packages.extend_from_slice(table::find(name)?.debian_packages);
    }
    packages.sort_unstable();
    packages.dedup();
    Ok(packages)
}

/// The directory of the Go modules in the work tree that this crate was compiled from.
fn modules_dir() -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/real-parts");
    fs::canonicalize(&dir)
        .with_context(|| format!("the Go modules of the parts: {}", dir.display()))
}

#[cfg(test)]
mod tests;
