//! `keelson doctor`: what this machine can do for pods, and what to do about the rest.
//!
//! Rule: facts are gathered in one place, judged by a pure function, and printed by another. The
//! doctor changes nothing on the machine; what it tries is gone when it has tried it.

mod assessment;
pub(crate) mod facts;
mod nftables;
mod report;
mod trials;

use crate::terminal::{self, Palette};
use std::path::Path;
use std::process::ExitCode;

pub(crate) use assessment::{MachineFinding, MachineVerdict};
pub(crate) use report::table;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorCommand {
    /// How to print the findings
    #[arg(short, long, value_enum, default_value = "table")]
    output: FindingsFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FindingsFormat {
    Table,
    Json,
}

impl DoctorCommand {
    /// Exit code 0: pods can run, perhaps with less than everything; 1: something needed is missing.
    pub(crate) fn run(&self, palette: Palette) -> ExitCode {
        let findings = examine();
        match self.output {
            FindingsFormat::Table => terminal::print(&table(&findings, palette)),
            FindingsFormat::Json => terminal::print(&report::json(&findings)),
        }
        let missing = findings.iter().any(|finding| finding.verdict == MachineVerdict::Missing);
        if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Looks at this machine.
pub(crate) fn examine() -> Vec<MachineFinding> {
    assessment::findings_of(&facts::gather(Path::new("/"), trials::Trials::make()))
}

#[cfg(test)]
mod tests;
