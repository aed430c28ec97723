//! Rules about the project's text that no linter checks: every source file has a module doc, none
//! is too long, none contains paths of the machine that it was written on, and `unsafe` is allowed
//! only in the crates that are listed here with their reason. Retired words and type names that
//! more than one crate defines are counted, and their numbers may only fall.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use ratchet::RuleCounts;

mod lexer;
mod ratchet;
#[cfg(test)]
mod tests;
mod type_names;
mod words;

const MAX_FILE_LINES: usize = 600;

/// Crates that may contain `unsafe`, and why.
const UNSAFE_CRATES: &[(&str, &str)] = &[
    ("crates/wire/seccomp-filter", "loads filters with raw system calls"),
    ("crates/adapters/host-process", "returns memory to the kernel by its address"),
    ("crates/runtime/container-create", "clones, enters namespaces, changes mounts, executes"),
    ("crates/runtime/pod-supervisor", "forks, sets signal masks, uses pidfd ioctls"),
    ("crates/test/node-testkit", "enters namespaces between fork and exec"),
];

/// Files that are long because they contain data.
const DATA_FILES: &[&str] = &["/generated/", "/table.rs", "/tables/"];

pub(crate) fn breaches(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut counts = RuleCounts::default();
    let machine_paths = paths_of_this_machine(root);
    for (path, text) in tracked_texts(root)? {
        found.extend(breaches_of(&path, &text, &machine_paths));
        counts.add(&path, &text);
    }
    found.extend(ratchet::breaches(root, &counts.finish())?);
    Ok(found)
}

/// Records the counts that may only fall.
pub(crate) fn record(root: &Path) -> Result<()> {
    let mut counts = RuleCounts::default();
    for (path, text) in tracked_texts(root)? {
        counts.add(&path, &text);
    }
    ratchet::record(root, &counts.finish())
}

/// Every text file, by its path below the root.
fn tracked_texts(root: &Path) -> Result<impl Iterator<Item = (String, String)>> {
    let texts = tracked_files(root)?.into_iter().filter_map(move |file| {
        let path = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        Some((path, std::fs::read_to_string(&file).ok()?))
    });
    Ok(texts)
}

/// Paths that would identify the machine: this checkout, and the home directory of the user.
fn paths_of_this_machine(root: &Path) -> Vec<String> {
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
    let home = home.map(|home| format!("{}/", home.trim_end_matches('/')));
    [Some(root.display().to_string()), home].into_iter().flatten().collect()
}

fn breaches_of(path: &str, text: &str, machine_paths: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let is_this_module = path.starts_with("xtask/src/house_rules");
    for machine_path in machine_paths.iter().filter(|part| text.contains(part.as_str())) {
        found.push(format!("{path}: contains a path of this machine ({machine_path})"));
    }
    if !path.ends_with(".rs") {
        return found;
    }
    let is_data = DATA_FILES.iter().any(|part| path.contains(part));
    if !is_data && !text.starts_with("//!") && !text.starts_with("#![") {
        found.push(format!("{path}: does not begin with //! (what is it for?)"));
    }
    let lines = text.lines().count();
    if !is_data && lines > MAX_FILE_LINES {
        found.push(format!("{path}: {lines} lines; {MAX_FILE_LINES} is the limit"));
    }
    let allows_unsafe = text.contains("allow(unsafe_code") || text.contains("expect(unsafe_code");
    if !is_this_module
        && allows_unsafe
        && !UNSAFE_CRATES.iter().any(|(dir, _)| path.starts_with(dir))
    {
        found.push(format!("{path}: allows unsafe code, but its crate is not on the list"));
    }
    found
}

/// The files that git tracks, and the new ones that it would add.
pub(crate) fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    // A check that sees no files finds nothing wrong with them.
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(|name| root.join(name))
        .filter(|path| path.is_file())
        .collect())
}
