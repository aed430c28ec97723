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

pub struct Judge {
    program: &'static Path,
    snapshot: tempfile::NamedTempFile,
}

impl Judge {
    pub fn call() -> Result<Self> {
        static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let program = PROGRAM
            .get_or_init(|| leftovers::build_program().map_err(|error| format!("{error:#}")))
            .as_deref()
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let judge = Self { program, snapshot: tempfile::NamedTempFile::new()? };
        let (status, said) = judge.ask("snapshot")?;
        ensure!(status == Some(0), "{said}");
        Ok(judge)
    }

    /// For a test that enters a bed itself and so calls this twice; the call inside does nothing.
    pub fn call_outside() -> Result<Option<Self>> {
        let inside = std::env::var_os(ROLE).is_some();
        if inside { Ok(None) } else { Self::call().map(Some) }
    }

    /// The leftovers that it finds now, without waiting for what is just ending.
    pub fn finds_now(&self) -> Result<String> {
        let (status, said) = self.ask("compare-now")?;
        ensure!(matches!(status, Some(0 | 1)), "{said}");
        Ok(said)
    }

    pub fn finds_nothing(&self) -> Result<()> {
        self.finds_nothing_but(|_| false)
    }

    /// The same, except for what is known not to be ours to remove.
    pub fn finds_nothing_but(&self, is_excused: impl Fn(&str) -> bool) -> Result<()> {
        let (status, said) = self.ask("compare")?;
        ensure!(matches!(status, Some(0 | 1)), "{said}");
        let things = said.lines().filter(|line| line.contains(": "));
        let left: Vec<&str> = things.filter(|line| !is_excused(line)).collect();
        ensure!(left.is_empty(), "left behind:\n{}", left.join("\n"));
        Ok(())
    }

    fn ask(&self, verb: &str) -> Result<(Option<i32>, String)> {
        let mut command = Command::new(self.program);
        let output = command.arg(verb).arg(self.snapshot.path()).env_remove(ROLE).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
    }
}
