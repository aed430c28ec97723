//! The `leftovers` program with a snapshot from before.
//!
//! Rule: the check is a process of its own, outside every bed's set of processes even when it
//! checks inside a bed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, ensure};
use node_testkit::leftovers;

/// The variable that marks the processes of a bed.
pub const ROLE: &str = "KEELSON_BED_ROLE";

pub struct LeftoverCheck {
    program: &'static Path,
    snapshot: tempfile::NamedTempFile,
}

impl LeftoverCheck {
    pub fn start() -> Result<Self> {
        static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let program = PROGRAM
            .get_or_init(|| leftovers::build_program().map_err(|error| format!("{error:#}")))
            .as_deref()
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let check = Self { program, snapshot: tempfile::NamedTempFile::new()? };
        let (status, printed) = check.ask("snapshot")?;
        ensure!(status == Some(0), "{printed}");
        Ok(check)
    }

    /// For a test that enters a bed itself and so calls this twice; the call inside does nothing.
    pub fn start_outside_bed() -> Result<Option<Self>> {
        let inside = std::env::var_os(ROLE).is_some();
        if inside { Ok(None) } else { Self::start().map(Some) }
    }

    /// The leftovers that it finds now, without waiting for what is just ending.
    pub fn current_leftovers(&self) -> Result<String> {
        let (status, printed) = self.ask("compare-now")?;
        ensure!(matches!(status, Some(0 | 1)), "{printed}");
        Ok(printed)
    }

    pub fn expect_none(&self) -> Result<()> {
        self.expect_none_except(|_| false)
    }

    /// The same, except for what is known not to be ours to remove.
    pub fn expect_none_except(&self, is_excused: impl Fn(&str) -> bool) -> Result<()> {
        let (status, printed) = self.ask("compare")?;
        ensure!(matches!(status, Some(0 | 1)), "{printed}");
        let things = printed.lines().filter(|line| line.contains(": "));
        let left: Vec<&str> = things.filter(|line| !is_excused(line)).collect();
        ensure!(left.is_empty(), "left behind:\n{}", left.join("\n"));
        Ok(())
    }

    fn ask(&self, verb: &str) -> Result<(Option<i32>, String)> {
        let mut command = Command::new(self.program);
        let output = command.arg(verb).arg(self.snapshot.path()).env_remove(ROLE).output()?;
        let printed = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&printed).into_owned()))
    }
}
