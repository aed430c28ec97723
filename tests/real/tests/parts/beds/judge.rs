//! The `leftovers` program with a snapshot from before.
//!
//! Rule: it is a process of its own, and none of a bed's, also where it judges inside one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, ensure};
use node_testkit::leftovers;

/// What marks the processes of a bed.
pub(super) const ROLE: &str = "KEELSON_BED_ROLE";

pub(super) struct Judge {
    program: &'static Path,
    snapshot: tempfile::NamedTempFile,
}

impl Judge {
    pub(super) fn call() -> Result<Self> {
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

    /// A test that goes to bed itself comes here twice; the one inside has nothing to judge.
    pub(super) fn call_outside() -> Result<Option<Self>> {
        let inside = std::env::var_os(ROLE).is_some();
        if inside { Ok(None) } else { Self::call().map(Some) }
    }

    /// What it finds at this moment, without the patience that things which are just going get
    /// otherwise.
    pub(super) fn finds_now(&self) -> Result<String> {
        let (status, said) = self.ask("compare-now")?;
        ensure!(matches!(status, Some(0 | 1)), "{said}");
        Ok(said)
    }

    pub(super) fn finds_nothing(&self) -> Result<()> {
        let (status, said) = self.ask("compare")?;
        ensure!(status == Some(0), "left behind:\n{said}");
        Ok(())
    }

    fn ask(&self, verb: &str) -> Result<(Option<i32>, String)> {
        let mut command = Command::new(self.program);
        let output = command.arg(verb).arg(self.snapshot.path()).env_remove(ROLE).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
    }
}
