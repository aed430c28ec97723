//! The cgroup v2 machine: a small Debian in software emulation, with systemd as PID 1, logind,
//! D-Bus, AppArmor, PSI and, on request, swap. It shows what the kernel under the tests cannot. A
//! variant has SELinux in place of AppArmor, because a kernel runs one of them at a time.
//!
//! A payload goes in (a directory, single files, a script); its output and exit status come out.
//! The rules: the machine is built once into the cache, keyed by its recipe, and appears there
//! whole or not at all; every run gets a temporary copy and leaves nothing, not even when the
//! caller is killed, since a run writes only unnamed files and all its processes die with the
//! caller.
//!
//! Not done here: hardware virtualization (a `/dev/kvm` that opens is no proof that it works, and a
//! guest that hangs in it is worse than a slow one), any network beyond the guest's own routing
//! table.

mod boot;
mod mirror;
mod payload;
mod recipe;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

pub use recipe::{HOST_PACKAGES, MachineVariant, ensure, ensure_variant};

/// A machine in the cache, ready to boot.
#[derive(Clone, Debug)]
pub struct EmulatedMachine {
    dir: PathBuf,
    variant: MachineVariant,
}

/// The input of a run, and the machine's size.
#[derive(Clone, Debug)]
pub struct Payload {
    /// A directory whose content is at `/payload` in the machine.
    pub dir: Option<PathBuf>,
    /// Single files: the path under `/payload`, and the file on this machine.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// The text of `/payload/run`; without it, the directory or the files must contain an
    /// executable `run`.
    pub script: Option<String>,
    pub memory_mb: u32,
    pub cpus: u32,
    /// 0 for a machine without swap.
    pub swap_mb: u32,
    /// From power-on to the end of the payload.
    pub deadline: Duration,
}

impl Default for Payload {
    fn default() -> Self {
        Self {
            dir: None,
            files: Vec::new(),
            script: None,
            memory_mb: 2048,
            cpus: 2,
            swap_mb: 0,
            deadline: Duration::from_secs(300),
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct MachineRun {
    /// Standard output and standard error of the payload, as they came.
    pub output: String,
    /// The exit status of `/payload/run`.
    pub status: i32,
    /// From power-on to power-off.
    pub elapsed: Duration,
}

/// A fact that a payload printed under this name: the rest of its first line `name: value`.
///
/// # Errors
/// When there is no such line; the error contains the output.
pub fn fact<'a>(output: &'a str, name: &str) -> Result<&'a str> {
    let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.with_context(|| format!("no line {name:?} in the output:\n{output}"))
}

impl EmulatedMachine {
    /// Boots a temporary copy, runs the payload in it and powers it off.
    ///
    /// # Errors
    /// When the payload cannot be packed, or the machine ends or the deadline passes before the
    /// payload has reported its exit status; with the end of the machine's console and of the
    /// output.
    pub fn run(&self, payload: &Payload) -> Result<MachineRun> {
        self.run_into(payload, &mut io::sink())
    }

    /// The same, with the output also written to `sink` as it arrives.
    ///
    /// # Errors
    /// As [`EmulatedMachine::run`].
    pub fn run_into(&self, payload: &Payload, sink: &mut dyn Write) -> Result<MachineRun> {
        let disk = payload::pack(payload)?;
        boot::run(self, payload, &disk, sink)
    }

    /// The directory in the cache.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The verb `machine`: boots the machine with a payload directory and runs its `run`; prints its
/// output as it arrives and, when its exit status is not 0, exits with that status.
///
/// # Errors
/// When the machine cannot be built, or as [`EmulatedMachine::run`].
pub fn command(dir: &Path, swap_mb: u32) -> Result<()> {
    let dir = fs::canonicalize(dir).with_context(|| format!("payload folder {}", dir.display()))?;
    let payload = Payload { dir: Some(dir), swap_mb, ..Payload::default() };
    let outcome = ensure()?.run_into(&payload, &mut io::stdout())?;
    eprintln!("machine: status {} after {:.0} s", outcome.status, outcome.elapsed.as_secs_f64());
    if outcome.status != 0 {
        std::process::exit(outcome.status);
    }
    Ok(())
}
