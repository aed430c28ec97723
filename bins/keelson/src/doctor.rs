//! `keelson doctor`: what this machine can do for pods, and what to do about the rest.
//!
//! Rule: facts are gathered in one place, judged by a pure function, and printed by another. The
//! doctor changes nothing on the machine; what it tries is gone when it has tried it.

pub(crate) mod facts;
mod judgement;
mod nftables;
mod report;
mod trials;

use crate::terminal::{self, Palette};
use std::path::Path;
use std::process::ExitCode;

pub(crate) use judgement::{Finding, Verdict};
pub(crate) use report::table;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorCommand {
    /// How to print the findings
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

impl DoctorCommand {
    /// Exit code 0: pods can run, perhaps with less than everything; 1: something needed is missing.
    pub(crate) fn run(&self, palette: Palette) -> ExitCode {
        let findings = examine();
        match self.output {
            Output::Table => terminal::print(&table(&findings, palette)),
            Output::Json => terminal::print(&report::json(&findings)),
        }
        let missing = findings.iter().any(|finding| finding.verdict == Verdict::Missing);
        if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Looks at this machine.
pub(crate) fn examine() -> Vec<Finding> {
    judgement::judge(&facts::gather(Path::new("/"), trials::Trials::make()))
}

#[cfg(test)]
mod tests;
