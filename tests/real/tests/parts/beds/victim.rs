//! A separate test process with a bed, which exists to be killed.
//!
//! Rule: it reports its bed's progress by files in a directory of the test that kills it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{LONG, kept_logs};

/// Set for the victim: the directory for its files.
const DIR: &str = "KEELSON_TEST_VICTIM";
/// Set for a victim that ends by itself: after how many milliseconds.
const STAY: &str = "KEELSON_TEST_VICTIM_STAY";
/// Written when the container runs, and when the test in the bed has ended.
const RUNS: &str = "runs";
const OVER: &str = "over";

/// The phase that a bed is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BedPhase {
    Making,
    Running,
    Ending,
    /// The test process had ended before it could be killed.
    Gone,
}

pub(super) fn is_this_process() -> bool {
    std::env::var_os(DIR).is_some()
}

/// In the bed: reports that everything is set up, and waits to be killed; a victim with a STAY time
/// ends by itself after it.
pub(super) fn wait_to_be_killed() -> Result<()> {
    let dir = std::env::var_os(DIR).map(PathBuf::from);
    if let Some(dir) = &dir {
        fs::write(dir.join(RUNS), b"")?;
    }
    if let (Some(dir), Ok(stay)) = (dir, std::env::var(STAY)) {
        sleep(Duration::from_millis(stay.parse().context(STAY)?));
        fs::write(dir.join(OVER), b"")?;
        return Ok(());
    }
    sleep(LONG);
    bail!("nobody ended this bed")
}

pub(super) struct Victim {
    test: &'static str,
    dir: tempfile::TempDir,
    began: Instant,
    pub(super) process: Child,
}

impl Victim {
    /// Starts `test` as a victim, forever or for a while, without waiting.
    pub(super) fn start(test: &'static str, stay: Option<Duration>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--exact", test, "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(stay) = stay {
            command.env(STAY, stay.as_millis().to_string());
        }
        let began = Instant::now();
        Ok(Self { test, dir, began, process: command.spawn()? })
    }

    /// Waits until the container runs, and returns how long that took.
    pub(super) fn wait_until_it_runs(&mut self) -> Result<Duration> {
        self.wait_for(RUNS)
    }

    /// Waits until the test in the bed has ended, and returns how long that took.
    pub(super) fn wait_until_it_is_over(&mut self) -> Result<Duration> {
        self.wait_for(OVER)
    }

    fn wait_for(&mut self, file: &str) -> Result<Duration> {
        while !self.has(file) {
            if let Some(status) = self.process.try_wait()? {
                ensure!(self.has(file), "the victim ended by itself: {status}");
            }
            ensure!(self.age() < Duration::from_mins(2), "the victim never wrote {file:?}");
            sleep(Duration::from_millis(2));
        }
        Ok(self.age())
    }

    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn phase(&mut self) -> Result<BedPhase> {
        if let Some(status) = self.process.try_wait()? {
            ensure!(status.success(), "the victim failed by itself: {status}");
            return Ok(BedPhase::Gone);
        }
        Ok(match (self.has(RUNS), self.is_over()) {
            (_, true) => BedPhase::Ending,
            (true, false) => BedPhase::Running,
            (false, false) => BedPhase::Making,
        })
    }

    /// Whether the test in the bed ran to its end.
    pub(super) fn is_over(&self) -> bool {
        self.has(OVER)
    }

    fn has(&self, file: &str) -> bool {
        self.dir.path().join(file).exists()
    }

    /// The PID of the warden, once it exists.
    pub(super) fn warden(&self) -> Option<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()?;
        let children = tasks.flatten().filter_map(|task| {
            let children = fs::read_to_string(task.path().join("children")).ok()?;
            Some(children.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        });
        let warden = children.flatten().find(|child| {
            let environment = fs::read(format!("/proc/{child}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == b"KEELSON_BED_ROLE=warden")
        });
        warden?.parse().ok()
    }

    pub(super) fn kill(&mut self) -> Result<ExitStatus> {
        self.process.kill().context("kill the test process")?;
        Ok(self.process.wait()?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A warden keeps the logs of a test that was killed; here that was wanted.
        if let Ok(dir) = kept_logs(self.test) {
            let _ = fs::remove_dir_all(dir);
        }
    }
}
