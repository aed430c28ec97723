//! The checked-in record of runs of the suite: one file of lines per agent and runtime, and the page
//! that shows them side by side.
//!
//! Rule: the page is generated from the records alone, so that a run of one agent does not lose the
//! column of another. A record has a line per spec: result, seconds, spec, first line of the
//! failure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::results::Results;

/// One record: its origin and the result of each spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// Date, commit and label filter of the run.
    pub origin: String,
    pub specs: BTreeMap<String, Spec>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spec {
    pub state: String,
    pub seconds: u64,
    pub failure: String,
}

impl RunRecord {
    pub fn of(results: &Results, origin: &str) -> Self {
        let specs = results.0.iter().map(|(name, ending)| {
            let reason = ending.reason.lines().map(str::trim).find(|line| !line.is_empty());
            let failure = if ending.state == "passed" { "" } else { reason.unwrap_or_default() };
            let failure = failure.replace('\t', " ").chars().take(160).collect();
            let spec = Spec { state: ending.state.clone(), seconds: ending.seconds, failure };
            (one_line(name), spec)
        });
        Self { origin: origin.to_owned(), specs: specs.collect() }
    }

    pub fn parse(text: &str) -> Self {
        let mut record = Self::default();
        for line in text.lines() {
            if let Some(origin) = line.strip_prefix("# ") {
                origin.clone_into(&mut record.origin);
            }
            let columns: Vec<&str> = line.split('\t').collect();
            if let [state, seconds, name, failure] = columns[..] {
                let seconds = seconds.parse().unwrap_or_default();
                let spec = Spec { state: state.to_owned(), seconds, failure: failure.to_owned() };
                record.specs.insert(name.to_owned(), spec);
            }
        }
        record
    }

    pub fn text(&self) -> String {
        let mut text = format!("# {}\n", self.origin);
        for (name, Spec { state, seconds, failure }) in &self.specs {
            let _ = writeln!(text, "{state}\t{seconds}\t{name}\t{failure}");
        }
        text
    }

    fn count(&self, state: &str) -> usize {
        self.specs.values().filter(|spec| spec.state == state).count()
    }
}

/// The page: counts per run, every spec whose results differ, then all specs.
pub fn page(records: &BTreeMap<String, RunRecord>) -> String {
    let mut page = String::from(
        "# Upstream's node suite\n\n\
         Made by `cargo xtask conformance node --record`; do not edit. Each column is one agent over \
         one runtime.\n\n| run | passed | failed | skipped | seconds | when |\n|---|---|---|---|---|---|\n",
    );
    for (name, record) in records {
        let seconds: u64 = record.specs.values().map(|spec| spec.seconds).sum();
        let (passed, failed) = (record.count("passed"), record.count("failed"));
        let (skipped, origin) = (record.count("skipped"), &record.origin);
        let _ =
            writeln!(page, "| {name} | {passed} | {failed} | {skipped} | {seconds} | {origin} |");
    }
    let names: BTreeSet<&String> = records.values().flat_map(|r| r.specs.keys()).collect();
    let (unlike, alike): (Vec<&String>, Vec<&String>) = names.into_iter().partition(|name| {
        let states: BTreeSet<&str> = records.values().map(|record| state(record, name)).collect();
        states.len() > 1
    });
    for (title, names) in [("Specs that do not end alike", unlike), ("Specs that end alike", alike)]
    {
        let columns: Vec<&str> = records.keys().map(String::as_str).collect();
        let _ = writeln!(page, "\n## {title}\n\n| spec | {} | failure |", columns.join(" | "));
        let _ = writeln!(page, "|---|{}---|", "---|".repeat(columns.len()));
        for name in names {
            let states: Vec<&str> = records.values().map(|record| state(record, name)).collect();
            let failure = records.values().filter_map(|record| record.specs.get(name));
            let failure = failure.map(|spec| spec.failure.as_str()).find(|text| !text.is_empty());
            let failure = cell(failure.unwrap_or_default());
            let _ = writeln!(page, "| {} | {} | {failure} |", cell(name), states.join(" | "));
        }
    }
    page
}

fn state<'a>(record: &'a RunRecord, name: &str) -> &'a str {
    record.specs.get(name).map_or("not run", |spec| &spec.state)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests;
