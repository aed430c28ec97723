//! The test process's side of a bed: starts the warden and waits for its report.
//!
//! Rule: no report, no success. If the warden dies without one, this process cleans up after it.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{geteuid, getpid, setsid};
use serde::{Deserialize, Serialize};

use super::handover::{self, BedRole, BedSpec, CommandOutput};
use super::{EXIT_DEADLINE, EXIT_NO_BED, host_dir, logs};

/// A command to run in a bed.
#[derive(Debug, Clone)]
pub struct BedRequest {
    pub name: String,
    pub deadline: Duration,
    pub command: Vec<String>,
    pub output: CommandOutput,
    /// Where the bed's logs are kept when it did not succeed.
    pub keep_logs: PathBuf,
    /// The arguments with which this executable reaches [`super::enter_role`] again.
    pub reentry: Vec<String>,
    /// Whether success requires that [`super::Bed::mark_entered`] was called.
    pub must_enter: bool,
}

/// How a bed ended. `logs` is there when they were kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BedOutcome {
    /// The command ended by itself; a signal counts as 128 and its number.
    Exited { status: i32, logs: Option<PathBuf> },
    /// The deadline passed and everything was killed.
    DeadlinePassed { milliseconds: u64, logs: Option<PathBuf> },
    /// There was no bed, or it could not be removed.
    Failed { reason: String, logs: Option<PathBuf> },
}

impl BedOutcome {
    /// The exit status for a program that ran the bed.
    #[must_use]
    pub fn exit_status(&self) -> i32 {
        match self {
            Self::Exited { status, .. } => *status,
            Self::DeadlinePassed { .. } => EXIT_DEADLINE,
            Self::Failed { .. } => EXIT_NO_BED,
        }
    }

    /// The directory of the kept logs.
    #[must_use]
    pub fn logs(&self) -> Option<&Path> {
        match self {
            Self::Exited { logs, .. }
            | Self::DeadlinePassed { logs, .. }
            | Self::Failed { logs, .. } => logs.as_deref(),
        }
    }

    /// What happened, with the end of the command's output if it was kept.
    #[must_use]
    pub fn describe(&self) -> String {
        let what = match self {
            Self::Exited { status, .. } => format!("ended with status {status} in its bed"),
            Self::DeadlinePassed { milliseconds, .. } => {
                let seconds = Duration::from_millis(*milliseconds).as_secs_f64();
                format!("its deadline of {seconds} s passed; everything in the bed was killed")
            }
            Self::Failed { reason, .. } => reason.clone(),
        };
        let Some(dir) = self.logs() else { return what };
        let kept = format!("{what}\nlogs kept in {}", dir.display());
        let output = dir.join(logs::OUTPUT);
        // Where the command's output went to the caller there is none to show.
        if output.exists() { format!("{kept}\n{}", logs::tail(&output, 60)) } else { kept }
    }
}

/// Runs a command in a bed and waits for its end.
///
/// # Errors
/// When the caller is not root, or when the warden could not be started or died.
pub fn launch(request: &BedRequest) -> Result<BedOutcome> {
    if !geteuid().is_root() {
        bail!("a bed needs root (namespaces, mounts, cgroups): run this as root");
    }
    // Logs of an earlier failure would be taken for this run's.
    if request.keep_logs.exists() {
        fs::remove_dir_all(&request.keep_logs)
            .with_context(|| format!("remove {}", request.keep_logs.display()))?;
    }
    let (mut reader, writer) = io::pipe().context("make the report's pipe")?;
    let spec = spec_for(request);
    let mut warden = Command::new(std::env::current_exe().context("find this executable")?);
    warden.args(&request.reentry);
    handover::set_role(&mut warden, BedRole::Warden, &spec, Some(writer.as_raw_fd()))?;
    if request.output == CommandOutput::Log {
        // A test harness writes to its standard output, which a warden must not.
        warden.stdin(Stdio::null()).stdout(Stdio::null());
    }
    let inherited = writer.as_raw_fd();
    // SAFETY: the hook runs between fork and exec and makes only system calls; the descriptor is
    // open in the parent until after spawn.
    unsafe {
        warden.pre_exec(move || {
            setsid()?;
            handover::keep_open(BorrowedFd::borrow_raw(inherited))
        });
    }
    let mut warden = warden.spawn().context("start the bed's warden")?;
    drop(writer);
    let mut report = String::new();
    reader.read_to_string(&mut report).context("read the warden's report")?;
    let status = warden.wait().context("wait for the bed's warden")?;
    if report.is_empty() {
        // Killed: the bed died with it; what lies on the disk is ours to clear now.
        host_dir::sweep().context("sweep after a dead warden")?;
        bail!("the bed's warden ended without a report ({status})");
    }
    serde_json::from_str(&report).with_context(|| format!("the warden's report: {report:?}"))
}

fn spec_for(request: &BedRequest) -> BedSpec {
    BedSpec {
        name: request.name.clone(),
        deadline_milliseconds: u64::try_from(request.deadline.as_millis()).unwrap_or(u64::MAX),
        command: request.command.clone(),
        output: request.output,
        keep_logs: request.keep_logs.clone(),
        reentry: request.reentry.clone(),
        must_enter: request.must_enter,
        owner: getpid().as_raw_nonzero().get(),
        identity: String::new(),
        dir: PathBuf::new(),
    }
}
