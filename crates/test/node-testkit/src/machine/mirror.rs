//! Where this machine gets its Debian packages from: the emulated one is built from the same
//! mirror.
//!
//! The rule: the project names no mirror; the one that apt is configured with is used. Reads apt's
//! two source formats; checks neither keys nor components.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const APT: &str = "/etc/apt";

/// The first address in apt's sources that serves `suite`.
pub(super) fn serving(suite: &str) -> Result<String> {
    let apt = Path::new(APT);
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(apt.join("sources.list.d")) {
        let mut parts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        parts.sort();
        files.extend(parts);
    }
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let found = match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => in_stanzas(&text, suite),
            Some("list") => in_lines(&text, suite),
            _ => None,
        };
        if let Some(address) = found {
            return Ok(address);
        }
    }
    None.with_context(|| format!("no source in {APT} serves the suite {suite}"))
}

/// The newer format: stanzas of `Key: value`, with `URIs` and `Suites` as lists.
pub(super) fn in_stanzas(text: &str, suite: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in lines.split(|line| line.trim().is_empty()) {
        let field = |name: &str| {
            stanza.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.split_whitespace())
            })
        };
        let off = field("Enabled").is_some_and(|mut value| value.next() == Some("no"));
        let packages = field("Types").is_some_and(|mut types| types.any(|kind| kind == "deb"));
        let serves = field("Suites").is_some_and(|mut suites| suites.any(|one| one == suite));
        if !off && packages && serves {
            return field("URIs")?.next().map(str::to_owned);
        }
    }
    None
}

/// The older format: `deb [options] address suite components`.
pub(super) fn in_lines(text: &str, suite: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb")?;
        rest.starts_with([' ', '\t']).then_some(())?;
        let rest = rest.trim_start();
        let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
        let mut words = rest.split_whitespace();
        let address = words.next()?;
        (words.next()? == suite).then(|| address.to_owned())
    })
}
