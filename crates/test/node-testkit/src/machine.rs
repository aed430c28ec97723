//! The cgroup v2 machine: a small Debian with systemd as PID 1, logind, D-Bus, AppArmor, PSI and, on
//! request, swap; in software emulation. For what the kernel under the tests cannot show. A variant has
//! SELinux in AppArmor's place, which a kernel has one of at a time.
//!
//! A payload goes in (a folder, single files, a script), its output and exit status come out. The
//! rules: the machine is built once into the cache, keyed by its recipe, and appears there whole or
//! not at all; every run gets a throw-away copy and leaves nothing, not even when the caller is killed,
//! since all that a run writes are files without a name and all that it starts dies with the caller.
//!
//! Not done here: hardware virtualization (a `/dev/kvm` that opens is no proof that it works, and a
//! guest that hangs in it is worse than a slow one), any network beyond the guest's own routing table.

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

pub use recipe::{HOST_PACKAGES, Variant, ensure, ensure_variant};

/// A machine in the cache, ready to boot.
#[derive(Clone, Debug)]
pub struct Machine {
    folder: PathBuf,
    variant: Variant,
}

/// What a run of the machine carries in, and how large the machine is.
#[derive(Clone, Debug)]
pub struct Payload {
    /// A folder whose content stands at `/payload` in the machine.
    pub folder: Option<PathBuf>,
    /// Single files: where under `/payload`, and the file of this machine.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// The text of `/payload/run`; without it, folder or files must bring an executable `run`.
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
            folder: None,
            files: Vec::new(),
            script: None,
            memory_mb: 2048,
            cpus: 2,
            swap_mb: 0,
            deadline: Duration::from_secs(300),
        }
    }
}

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Standard output and standard error of the payload, as they came.
    pub output: String,
    /// The exit status of `/payload/run`.
    pub status: i32,
    /// From power-on to power-off.
    pub elapsed: Duration,
}

/// What a payload told under this name: the rest of its first line `name: value`.
///
/// # Errors
/// When there is no such line; with the output.
pub fn fact<'a>(output: &'a str, name: &str) -> Result<&'a str> {
    let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.with_context(|| format!("no line {name:?} in the output:\n{output}"))
}

impl Machine {
    /// Boots a throw-away copy, runs the payload in it and powers it off.
    ///
    /// # Errors
    /// When the payload cannot be packed, or the machine ends, or the deadline comes, before the
    /// payload has said its exit status; with the end of the machine's console and of the output.
    pub fn run(&self, payload: &Payload) -> Result<Outcome> {
        self.run_into(payload, &mut io::sink())
    }

    /// The same, with the output also written to `sink` while it comes.
    ///
    /// # Errors
    /// As [`Machine::run`].
    pub fn run_into(&self, payload: &Payload, sink: &mut dyn Write) -> Result<Outcome> {
        let disk = payload::pack(payload)?;
        boot::run(self, payload, &disk, sink)
    }

    /// The folder in the cache.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The verb `machine`: boots the machine with a payload folder, whose `run` is run there; prints its
/// output while it comes and, when that is not 0, ends this process with its exit status.
///
/// # Errors
/// When the machine cannot be built, or as [`Machine::run`].
pub fn command(folder: &Path, swap_mb: u32) -> Result<()> {
    let folder =
        fs::canonicalize(folder).with_context(|| format!("payload folder {}", folder.display()))?;
    let payload = Payload { folder: Some(folder), swap_mb, ..Payload::default() };
    let outcome = ensure()?.run_into(&payload, &mut io::stdout())?;
    eprintln!("machine: status {} after {:.0} s", outcome.status, outcome.elapsed.as_secs_f64());
    if outcome.status != 0 {
        std::process::exit(outcome.status);
    }
    Ok(())
}
