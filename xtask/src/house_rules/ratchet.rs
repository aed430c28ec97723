//! RuleCounts that may only fall: retired words, and type names that more than one crate defines.
//!
//! Rule: what is there is recorded, by crate, in [`RECORD`]. More than that fails, and so does less,
//! with how to record it: a number that has fallen cannot rise again. A crate or name without a
//! line has none. `cargo xtask check --record` only ever lowers numbers; it writes them as they are
//! where there is no record yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::lexer::{SourceToken, tokens};
use super::type_names::{WIRE_MIRRORS, defined_types};
use super::words::{retired_in_comment, retired_in_identifier};

pub(super) const RECORD: &str = "xtask/house-rules.txt";
const HEADING: &str = "# Retired words that are left, and type names of more than one crate. Numbers may only fall:\n\
     # `cargo xtask check --record` lowers them. See docs/vocabulary.md and xtask/src/house_rules.\n";
const PLACES: [&str; 6] = ["crates", "bins", "tests", "xtask", "fuzz", "examples"];

/// What the source has, or the record allows.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct RuleCounts {
    /// By crate and identifier.
    identifiers: BTreeMap<(String, String), usize>,
    /// By crate.
    comments: BTreeMap<String, usize>,
    /// The crates that define a type of this name.
    types: BTreeMap<String, BTreeSet<String>>,
}

/// The crate of a file; none for files whose text is not checked.
fn crate_of(path: &str) -> Option<String> {
    let mut parts = path.split('/');
    let place = parts.next().filter(|place| PLACES.contains(place))?;
    match place {
        "crates" => parts.nth(1).map(ToOwned::to_owned),
        "bins" | "tests" => parts.next().map(|name| format!("{place}/{name}")),
        _ => Some(place.to_owned()),
    }
}

impl RuleCounts {
    /// Takes in one file.
    pub(super) fn add(&mut self, path: &str, text: &str) {
        let Some(owner) = crate_of(path).filter(|_| path.ends_with(".rs")) else { return };
        let tokens = tokens(text);
        let mut identifiers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut comments = 0;
        for token in &tokens {
            match token {
                SourceToken::Identifier(name) => *identifiers.entry(name).or_default() += 1,
                SourceToken::Comment(comment) => comments += retired_in_comment(comment),
                SourceToken::Punctuation(_) => {}
            }
        }
        for (name, count) in identifiers {
            if retired_in_identifier(name).is_some() {
                *self.identifiers.entry((owner.clone(), name.to_owned())).or_default() += count;
            }
        }
        if comments > 0 {
            *self.comments.entry(owner.clone()).or_default() += comments;
        }
        if !WIRE_MIRRORS.contains(&path) {
            for name in defined_types(&tokens) {
                self.types.entry(name).or_default().insert(owner.clone());
            }
        }
    }

    /// The same where only names of more than one crate stand among the types.
    pub(super) fn finish(mut self) -> Self {
        self.types.retain(|_, owners| owners.len() > 1);
        self
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut counts = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split(' ').collect();
            let number = |text: &str| text.parse::<usize>().with_context(|| line.to_owned());
            match fields.as_slice() {
                ["identifier", owner, name, count] => {
                    let key = ((*owner).to_owned(), (*name).to_owned());
                    counts.identifiers.insert(key, number(count)?);
                }
                ["comments", owner, count] => {
                    counts.comments.insert((*owner).to_owned(), number(count)?);
                }
                ["type", name, owners @ ..] => {
                    let owners = owners.iter().map(|owner| (*owner).to_owned()).collect();
                    counts.types.insert((*name).to_owned(), owners);
                }
                _ => bail!("{RECORD}: cannot read {line:?}"),
            }
        }
        Ok(counts)
    }

    pub(super) fn to_text(&self) -> String {
        let mut lines = Vec::new();
        for ((owner, name), count) in &self.identifiers {
            lines.push(format!("identifier {owner} {name} {count}"));
        }
        lines
            .extend(self.comments.iter().map(|(owner, count)| format!("comments {owner} {count}")));
        for (name, owners) in &self.types {
            let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
            lines.push(format!("type {name} {}", owners.join(" ")));
        }
        format!("{HEADING}{}\n", lines.join("\n"))
    }

    /// What the source has beyond the record.
    fn excess(&self, record: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (key, count) in &self.identifiers {
            let allowed = record.identifiers.get(key).copied().unwrap_or_default();
            if *count > allowed {
                let (owner, name) = key;
                let word = retired_in_identifier(name).unwrap_or_default();
                found.push(format!(
                    "{owner}: `{name}` ({word} is a retired word) in {count} places, {allowed} allowed"
                ));
            }
        }
        for (owner, count) in &self.comments {
            let allowed = record.comments.get(owner).copied().unwrap_or_default();
            if *count > allowed {
                found
                    .push(format!("{owner}: {count} retired words in comments, {allowed} allowed"));
            }
        }
        for (name, owners) in &self.types {
            let allowed = record.types.get(name);
            let new: Vec<&str> = owners
                .iter()
                .filter(|owner| allowed.is_none_or(|allowed| !allowed.contains(*owner)))
                .map(String::as_str)
                .collect();
            if !new.is_empty() {
                let all: Vec<&str> = owners.iter().map(String::as_str).collect();
                found.push(format!(
                    "type {name}: defined in {}; one name is one thing, new in {}",
                    all.join(", "),
                    new.join(", ")
                ));
            }
        }
        found
    }

    /// The record without what the source no longer has.
    fn lowered_to(&self, counts: &Self) -> Self {
        let least = |allowed: usize, count: Option<&usize>| {
            count.map(|count| allowed.min(*count)).filter(|count| *count > 0)
        };
        let identifiers = self.identifiers.iter().filter_map(|(key, allowed)| {
            least(*allowed, counts.identifiers.get(key)).map(|count| (key.clone(), count))
        });
        let comments = self.comments.iter().filter_map(|(owner, allowed)| {
            least(*allowed, counts.comments.get(owner)).map(|count| (owner.clone(), count))
        });
        let types = self.types.iter().filter_map(|(name, allowed)| {
            let left: BTreeSet<String> =
                counts.types.get(name)?.intersection(allowed).cloned().collect();
            (left.len() > 1).then(|| (name.clone(), left))
        });
        Self {
            identifiers: identifiers.collect(),
            comments: comments.collect(),
            types: types.collect(),
        }
    }

    /// Where the source differs from the record.
    pub(super) fn breaches(&self, record: &Self) -> Vec<String> {
        let mut found = self.excess(record);
        if record.lowered_to(self) != *record {
            found.push(format!("{RECORD}: numbers have fallen; cargo xtask check --record"));
        }
        found
    }
}

/// Reads the record; none where there is no such file.
fn read(root: &Path) -> Result<Option<RuleCounts>> {
    let path = root.join(RECORD);
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).with_context(|| RECORD.to_owned())?;
    RuleCounts::parse(&text).map(Some)
}

pub(super) fn breaches(root: &Path, counts: &RuleCounts) -> Result<Vec<String>> {
    let record = read(root)?
        .with_context(|| format!("{RECORD} is missing; cargo xtask check --record writes it"))?;
    let mut found = counts.breaches(&record);
    for file in WIRE_MIRRORS.iter().filter(|file| !root.join(file).exists()) {
        found.push(format!("{file}: named in house_rules/type_names.rs, and not there"));
    }
    Ok(found)
}

/// Lowers the recorded numbers to those of the source.
pub(super) fn record(root: &Path, counts: &RuleCounts) -> Result<()> {
    let lowered = match read(root)? {
        Some(record) => record.lowered_to(counts),
        None => counts.clone(),
    };
    std::fs::write(root.join(RECORD), lowered.to_text()).with_context(|| RECORD.to_owned())
}
