//! A running part: its process and its log.
//!
//! Rule: waiting ends at once when the process has ended, with the end of its log, and at a
//! deadline otherwise.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::bed::Bed;
use crate::bed::tail;

/// How long a part may take to end after SIGTERM.
const STOPPING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(25);

/// A process of a part.
#[derive(Debug)]
pub struct RunningPart {
    name: String,
    child: Child,
    log: PathBuf,
}

impl RunningPart {
    /// Starts a command with its output in `<name>.log` among the bed's logs.
    ///
    /// # Errors
    /// When the log or the process cannot be made.
    pub fn start(bed: &Bed, name: &str, command: &mut Command) -> Result<Self> {
        let log = bed.logs().join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("make {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {name}: {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Polls until the check succeeds.
    ///
    /// # Errors
    /// When the process ends, or the timeout passes; with the last reason and the end of its log.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("look at a process")? {
                bail!("{} ended ({status}) before {what}\n{}", self.name, self.log_end());
            }
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) if began.elapsed() >= within => bail!(
                    "{}: no {what} within {within:?}: {error:#}\n{}",
                    self.name,
                    self.log_end()
                ),
                Err(_) => sleep(PAUSE),
            }
        }
    }

    /// Whether the process still runs.
    ///
    /// # Errors
    /// When the kernel reports no status.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("look at a process")?.is_none())
    }

    /// Kills the process at once, as a crash would end it.
    ///
    /// # Errors
    /// When it cannot be killed or waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill a process")?;
        self.child.wait().context("wait for a killed process")?;
        Ok(())
    }

    /// Sends SIGTERM, and SIGKILL if the process does not end.
    pub fn stop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if let Some(process) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(process, Signal::TERM);
        }
        let began = Instant::now();
        while began.elapsed() < STOPPING {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn log_end(&self) -> String {
        format!("the end of {}:\n{}", self.log.display(), tail(&self.log, 25))
    }
}

impl Drop for RunningPart {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a short command and returns what it printed.
pub(super) fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(std::ffi::OsStr::to_string_lossy).collect();
        bail!(
            "{program} {}: {}: {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
