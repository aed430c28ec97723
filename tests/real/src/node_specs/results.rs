//! The results of a run of the specs, and the comparison of two of them.
//!
//! Rule: a spec that passes over one runtime and not over the other is a difference, and so is one
//! that was run only once. A difference is checked against the checked-in list: one that is not
//! listed fails the comparison, and so does a listed one that no longer occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of one spec, and the reason if it did not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecResult {
    pub state: String,
    pub reason: String,
    pub seconds: u64,
}

/// Specs by their whole text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results(pub BTreeMap<String, SpecResult>);

impl Results {
    /// From ginkgo's own report in JSON. Specs that were not selected are left out.
    pub fn from_report(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let report: Value =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let suites = report.as_array().into_iter().flatten();
        let specs = suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
        Ok(Self(specs.filter_map(of_spec).collect()))
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec_pretty(self)?)
            .with_context(|| path.display().to_string())
    }

    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// A regular expression that matches only the failed specs; `None` if none failed.
    pub fn focus_on_failed(&self) -> Option<String> {
        let failed = self.0.iter().filter(|(_, ending)| ending.state == "failed");
        let texts: Vec<String> = failed.map(|(name, _)| escaped(name)).collect();
        (!texts.is_empty()).then(|| texts.join("|"))
    }

    /// These results with newer ones of some specs.
    #[must_use]
    pub fn updated_by(mut self, newer: Self) -> Self {
        self.0.extend(newer.0);
        self
    }

    pub fn count(&self, state: &str) -> usize {
        self.0.values().filter(|ending| ending.state == state).count()
    }
}

fn of_spec(spec: &Value) -> Option<(String, SpecResult)> {
    if spec["LeafNodeType"].as_str() != Some("It") {
        return None;
    }
    let state = spec["State"].as_str()?;
    let reason = spec["Failure"]["Message"].as_str().unwrap_or_default().to_owned();
    // Skipped without a word: it was not chosen.
    if state == "pending" || (state == "skipped" && reason.is_empty()) {
        return None;
    }
    let parts = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let mut words: Vec<&str> = parts.filter_map(Value::as_str).collect();
    words.extend(spec["LeafNodeText"].as_str());
    let seconds = spec["RunTime"].as_u64().unwrap_or(0) / 1_000_000_000;
    let state = if state == "passed" || state == "skipped" { state } else { "failed" };
    Some((words.join(" "), SpecResult { state: state.to_owned(), reason, seconds }))
}

/// The text as a regular expression (Go's syntax) that matches just it.
fn escaped(text: &str) -> String {
    let special = |letter: char| r"\.+*?()|[]{}^$".contains(letter);
    text.chars().fold(String::new(), |mut escaped, letter| {
        if special(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
        escaped
    })
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, SpecResult { state, reason, seconds }) in &self.0 {
            writeln!(f, "{state:<8} {seconds:>5} s  {name}")?;
            if let Some(line) = reason.lines().map(str::trim).find(|line| !line.is_empty()) {
                writeln!(f, "{:18}{line}", "")?;
            }
        }
        let count = |state| self.count(state);
        let (passed, failed, skipped) = (count("passed"), count("failed"), count("skipped"));
        write!(f, "{passed} specs passed, {failed} failed, {skipped} were skipped")
    }
}

/// Two runs side by side.
#[derive(Debug)]
pub struct SpecComparison<'a> {
    pub reference: &'a Results,
    pub ours: &'a Results,
}

impl SpecComparison<'_> {
    /// Each spec whose results differ, with both results.
    pub fn differences(&self) -> BTreeMap<&str, (&str, &str)> {
        let all: BTreeSet<&String> = self.reference.0.keys().chain(self.ours.0.keys()).collect();
        let state = |results: &'_ Results, name: &String| -> String {
            results.0.get(name).map_or("not run", |ending| &ending.state).to_owned()
        };
        all.into_iter()
            .filter(|name| state(self.reference, name) != state(self.ours, name))
            .map(|name| {
                let one = |results: &'_ Results| match results.0.get(name).map(|e| e.state.as_str())
                {
                    Some("passed") => "passed",
                    Some("skipped") => "skipped",
                    Some(_) => "failed",
                    None => "not run",
                };
                (name.as_str(), (one(self.reference), one(self.ours)))
            })
            .collect()
    }

    /// What failed over both: the cause is this machine or its images, not a runtime.
    pub fn failed_alike(&self) -> impl Iterator<Item = &str> {
        let failed = |results: &Results, name: &String| {
            results.0.get(name).is_some_and(|ending| ending.state == "failed")
        };
        let names = self.reference.0.keys();
        names
            .filter(move |name| failed(self.reference, name) && failed(self.ours, name))
            .map(String::as_str)
    }

    /// Differences that the list does not explain, and lines of the list without a difference. A
    /// line of the list is the spec's whole text, a tab, and the reason.
    pub fn unexplained(&self, list: &str) -> Vec<String> {
        let lines = list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let listed: BTreeSet<&str> = lines.map(|l| l.split('\t').next().unwrap_or(l)).collect();
        let found = self.differences();
        let mut wrong = Vec::new();
        for (name, (reference, ours)) in &found {
            if !listed.contains(name) {
                wrong.push(format!("differs ({reference} / {ours}): {name}"));
            }
        }
        for name in listed.iter().filter(|name| !found.contains_key(*name)) {
            wrong.push(format!("listed, but ends alike: {name}"));
        }
        wrong
    }
}

impl fmt::Display for SpecComparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12} {:>10} {:>10}", "", "containerd", "keelson")?;
        for state in ["passed", "failed", "skipped"] {
            let (one, other) = (self.reference.count(state), self.ours.count(state));
            writeln!(f, "{state:<12} {one:>10} {other:>10}")?;
        }
        let seconds = |results: &Results| results.0.values().map(|e| e.seconds).sum::<u64>();
        let (one, other) = (seconds(self.reference), seconds(self.ours));
        writeln!(f, "{:<12} {one:>10} {other:>10}", "seconds")?;
        for name in self.failed_alike() {
            writeln!(f, "failed over both: {name}")?;
        }
        for (name, (one, other)) in self.differences() {
            writeln!(f, "\n{one} over containerd, {other} over keelson: {name}")?;
            for results in [self.reference, self.ours] {
                let reason = results.0.get(name).map_or("", |ending| ending.reason.as_str());
                for line in reason.lines().take(6) {
                    writeln!(f, "    {line}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
