//! Findings as a table for people and as JSON for programs.

use super::assessment::{MachineFinding, MachineVerdict};
use crate::terminal::{Colour, Palette};
use serde::Serialize;

#[cfg(test)]
mod tests;

/// One line per finding, its next step beneath it, and a closing sentence.
pub(crate) fn table(findings: &[MachineFinding], palette: Palette) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (word, colour) = match finding.verdict {
            MachineVerdict::Good => ("good   ", Colour::Green),
            MachineVerdict::Limited => ("limited", Colour::Yellow),
            MachineVerdict::Missing => ("missing", Colour::Red),
        };
        let word = palette.paint(colour, word);
        text.push_str(&format!("{word}  {:width$}  {}\n", finding.name, finding.found));
        if let Some(next) = &finding.next_step {
            text.push_str(&format!("         {:width$}  -> {next}\n", ""));
        }
    }
    text.push_str(&format!("\n{}\n", palette.paint(Colour::Bold, &closing(findings))));
    text
}

fn closing(findings: &[MachineFinding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    match (count(MachineVerdict::Missing), count(MachineVerdict::Limited)) {
        (0, 0) => "This machine has everything that pods need.".to_owned(),
        (0, limited) => format!("Pods can run here; {limited} finding(s) limit them."),
        (missing, _) => format!("Pods cannot run here yet; {missing} need(s) are missing."),
    }
}

#[derive(Serialize)]
struct FindingsReport<'a> {
    usable: bool,
    findings: &'a [MachineFinding],
}

pub(crate) fn json(findings: &[MachineFinding]) -> String {
    let usable = findings.iter().all(|finding| finding.verdict != MachineVerdict::Missing);
    let report = FindingsReport { usable, findings };
    let text = serde_json::to_string_pretty(&report).unwrap_or_else(|_| "{}".to_owned());
    format!("{text}\n")
}
