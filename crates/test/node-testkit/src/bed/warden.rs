//! The warden: the process that creates a bed, watches it, and removes it.
//!
//! Rule: the first of these ends the bed: the command's exit, the exit of its owner (the test
//! process) for any reason, or the deadline. The warden outlives the bed only to clean up. It stays
//! in the host's namespaces and runs none of the test's code.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::cgroups::BedCgroupPlan;
use super::handover::{self, BedRole, BedSpec, CommandOutput};
use super::host_dir::{BedHostDir, BedRecord};
use super::launch::BedOutcome;
use super::logs;

/// Why a bed ended.
enum BedEnd {
    Command,
    Owner,
    Deadline,
}

/// Runs the warden until the bed is removed.
pub(super) fn run(spec: &BedSpec) -> ! {
    let report_fd = handover::take_descriptor();
    let outcome = watch_bed(spec).unwrap_or_else(|error| BedOutcome::Failed {
        reason: format!("no bed: {error:#}"),
        logs: None,
    });
    let status = outcome.exit_status();
    match (report_fd, serde_json::to_vec(&outcome)) {
        (Ok(report_fd), Ok(text)) => {
            // The owner may have ended; then the report has no reader.
            let _ = File::from(report_fd).write_all(&text);
        }
        (Err(error), _) => eprintln!("bed: the report has no descriptor: {error:#}"),
        (_, Err(error)) => eprintln!("bed: cannot write the report: {error:#}"),
    }
    std::process::exit(status)
}

fn watch_bed(spec: &BedSpec) -> Result<BedOutcome> {
    let deadline = Instant::now() + Duration::from_millis(spec.deadline_milliseconds);
    let owner = Pid::from_raw(spec.owner).context("the owner has no process id")?;
    let owner_pidfd = pidfd_open(owner, PidfdFlags::empty()).context("watch the test process")?;
    if getppid() != Some(owner) {
        bail!("the test process ended before its bed was created");
    }
    let host_dir = BedHostDir::take()?;
    let outcome = create_and_run(spec, &host_dir, &owner_pidfd, deadline);
    let kept_logs = match &outcome {
        Ok(BedOutcome::Exited { status: 0, .. }) => None,
        _ => match logs::copy_logs(&host_dir.logs(), &spec.keep_logs) {
            Ok(()) => Some(spec.keep_logs.clone()),
            Err(error) => {
                eprintln!("bed: logs not kept: {error:#}");
                None
            }
        },
    };
    let cleared = host_dir.clear();
    let outcome = match (outcome, cleared) {
        (Ok(outcome), Ok(())) => outcome.with_logs(kept_logs),
        (Ok(_), Err(error)) => BedOutcome::Failed {
            reason: format!("the bed was not removed: {error:#}"),
            logs: kept_logs,
        },
        (Err(error), _) => {
            BedOutcome::Failed { reason: format!("no bed: {error:#}"), logs: kept_logs }
        }
    };
    Ok(outcome)
}

impl BedOutcome {
    fn with_logs(self, kept_logs: Option<PathBuf>) -> Self {
        match self {
            Self::Exited { status, .. } => Self::Exited { status, logs: kept_logs },
            Self::DeadlinePassed { milliseconds, .. } => {
                Self::DeadlinePassed { milliseconds, logs: kept_logs }
            }
            Self::Failed { reason, .. } => Self::Failed { reason, logs: kept_logs },
        }
    }
}

fn create_and_run(
    spec: &BedSpec,
    host_dir: &BedHostDir,
    owner: &OwnedFd,
    deadline: Instant,
) -> Result<BedOutcome> {
    let cgroups = BedCgroupPlan::plan(&host_dir.identity)?;
    host_dir.save_record(&BedRecord {
        name: spec.name.clone(),
        owner: spec.owner,
        cgroups: cgroups.roots.clone(),
    })?;
    cgroups.create()?;
    let spec = BedSpec { identity: host_dir.identity.clone(), dir: host_dir.dir(), ..spec.clone() };
    // The write end is held until this function returns: init sees it closed when the warden is
    // gone.
    let (lifeline, _held) = io::pipe().context("create the lifeline")?;
    let mut init = start_init(&spec, &cgroups, &lifeline.into(), &host_dir.logs())?;
    let end = wait_for_end(&init, owner, deadline);
    if matches!(end, Ok(BedEnd::Deadline)) {
        log_running_processes(&cgroups, &host_dir.logs());
    }
    // Killing PID 1 kills everything in its namespace; it can be reaped only after all of them.
    let _ = init.kill();
    let status = init.wait().context("wait for the bed's init")?;
    Ok(match end? {
        BedEnd::Command => BedOutcome::Exited { status: shell_status(status), logs: None },
        BedEnd::Deadline => {
            BedOutcome::DeadlinePassed { milliseconds: spec.deadline_milliseconds, logs: None }
        }
        BedEnd::Owner => {
            BedOutcome::Failed { reason: "the test process ended".to_owned(), logs: None }
        }
    })
}

/// A status in the form of a shell's `$?`.
fn shell_status(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

fn start_init(
    spec: &BedSpec,
    cgroups: &BedCgroupPlan,
    lifeline: &OwnedFd,
    logs_dir: &Path,
) -> Result<Child> {
    let mut init = Command::new(std::env::current_exe().context("find this executable")?);
    init.args(&spec.reentry);
    handover::set_role(&mut init, BedRole::Init, spec, Some(lifeline.as_raw_fd()))?;
    if spec.output == CommandOutput::Log {
        let path = logs_dir.join(logs::OUTPUT);
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("create {}", path.display()))?;
        init.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    }
    // The files to write to in order to join the bed's cgroups: before and after init has a cgroup
    // namespace.
    let (before, after) = cgroups.entries();
    let (before, after) = (open_for_writing(&before)?, open_for_writing(&after)?);
    let lifeline = lifeline.as_raw_fd();
    // SAFETY: this thread starts no threads from here on, which is all that a pending PID namespace
    // forbids; files and mounts of this process are not touched.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.context("create a PID namespace")?;
    // SAFETY: the hook runs between fork and exec, allocates nothing and only makes system calls;
    // it owns the descriptors that it writes to, and the lifeline stays open in the parent past
    // spawn.
    unsafe {
        init.pre_exec(move || enter_namespaces(&before, &after, lifeline));
    }
    init.spawn().context("start the bed's init in namespaces and cgroups of its own")
}

/// Runs in init between fork and exec.
fn enter_namespaces(before: &[File], after: &[File], lifeline: RawFd) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for mut entry in before {
        entry.write_all(b"0")?;
    }
    // SAFETY: the child has one thread; the files that it shared with its parent were copied by
    // fork, so the parent loses nothing that it relies on.
    unsafe {
        unshare_unsafe(
            UnshareFlags::NEWCGROUP
                | UnshareFlags::NEWNS
                | UnshareFlags::NEWNET
                | UnshareFlags::NEWUTS
                | UnshareFlags::NEWIPC,
        )
    }?;
    for mut entry in after {
        entry.write_all(b"0")?;
    }
    // SAFETY: the descriptor is open in the parent until spawn returns, and so in this copy of its
    // table.
    handover::keep_open(unsafe { BorrowedFd::borrow_raw(lifeline) })
}

fn open_for_writing(paths: &[PathBuf]) -> Result<Vec<File>> {
    paths
        .iter()
        .map(|path| {
            let file = OpenOptions::new().write(true).open(path);
            file.with_context(|| format!("open {}", path.display()))
        })
        .collect()
}

fn wait_for_end(init: &Child, owner: &OwnedFd, deadline: Instant) -> Result<BedEnd> {
    let init = i32::try_from(init.id()).ok().and_then(Pid::from_raw).context("init's id")?;
    let init = pidfd_open(init, PidfdFlags::empty()).context("watch the bed's init")?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).context("the deadline is too far away")?;
        let mut watched = [
            PollFd::from_borrowed_fd(init.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(owner.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) if deadline <= Instant::now() => return Ok(BedEnd::Deadline),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) if !watched[0].revents().is_empty() => return Ok(BedEnd::Command),
            Ok(_) => return Ok(BedEnd::Owner),
            Err(error) => return Err(error).context("watch the bed"),
        }
    }
}

/// Logs the processes that were still running when the deadline passed. Best effort.
fn log_running_processes(cgroups: &BedCgroupPlan, logs_dir: &Path) {
    let mut text = String::from("running when the deadline passed:\n");
    let mut dirs: Vec<PathBuf> = cgroups.roots.first().cloned().into_iter().collect();
    while let Some(dir) = dirs.pop() {
        let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        for process in pids.split_whitespace() {
            let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            text.push_str(&format!("{process} {command}\n"));
        }
        if let Ok(entries) = fs::read_dir(&dir) {
            dirs.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
    }
    if let Err(error) = fs::write(logs_dir.join("deadline.log"), text) {
        eprintln!("bed: deadline.log: {error}");
    }
}
