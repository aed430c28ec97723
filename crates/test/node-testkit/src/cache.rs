//! The cache of what is built once and used by many runs.
//!
//! Rule: the cache is outside the work tree, so that a fresh clone finds it and `cargo clean`
//! leaves it alone. This module does not know the cache's content.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The cache directory: `$KEELSON_CACHE`, else `$XDG_CACHE_HOME/keelson`, else `~/.cache/keelson`.
///
/// # Errors
/// When none of the three variables is set.
pub fn root() -> Result<PathBuf> {
    choose(|name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
        .context("no cache folder: set KEELSON_CACHE, XDG_CACHE_HOME or HOME")
}

fn choose(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("KEELSON_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("keelson")))
        .or_else(|| variable("HOME").map(|dir| dir.join(".cache/keelson")))
}

#[cfg(test)]
mod tests;
