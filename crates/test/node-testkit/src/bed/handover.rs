//! What one process of a bed passes to the next: a role and a specification in the environment, a
//! report and a lifeline as inherited descriptors.
//!
//! Rule: the specification is complete; the later processes have no other input. The variables are
//! removed from a role's environment once read, except where the next one needs them.

use std::env;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use serde::{Deserialize, Serialize};

/// The variable that marks every process of a bed; the leftover check looks for it too.
pub(crate) const ROLE: &str = "KEELSON_BED_ROLE";
const ORDER: &str = "KEELSON_BED_ORDER";
/// The number of the inherited descriptor: the report's writing end for the warden, the lifeline's
/// reading end for init.
const DESCRIPTOR: &str = "KEELSON_BED_DESCRIPTOR";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BedRole {
    Warden,
    Init,
    Inside,
}

/// Where the command's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutput {
    /// To the caller's output: for people.
    Inherit,
    /// Into `output.log` among the bed's logs: for tests.
    Log,
}

/// Everything that the warden and init need to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BedSpec {
    pub name: String,
    pub deadline_milliseconds: u64,
    pub command: Vec<String>,
    pub output: CommandOutput,
    pub keep_logs: PathBuf,
    /// The arguments with which the executable reaches its role again.
    pub reentry: Vec<String>,
    /// The command must report that it reached the test's body, or its success counts for nothing.
    pub must_enter: bool,
    /// The process whose end ends the bed.
    pub owner: i32,
    /// Set by the warden: the bed's identity, and its directory on the host.
    pub identity: String,
    #[serde(rename = "folder")]
    pub dir: PathBuf,
}

/// The role and order of this process, if it has one.
pub(super) fn role_from_environment() -> Result<Option<(BedRole, BedSpec)>> {
    let Ok(role) = env::var(ROLE) else { return Ok(None) };
    let role = match role.as_str() {
        "warden" => BedRole::Warden,
        "init" => BedRole::Init,
        "inside" => BedRole::Inside,
        other => bail!("{ROLE}={other:?}: expected warden, init or inside"),
    };
    let spec = env::var(ORDER).with_context(|| format!("{ROLE} is set, but not {ORDER}"))?;
    let spec = serde_json::from_str(&spec).with_context(|| format!("read {ORDER}"))?;
    Ok(Some((role, spec)))
}

/// Gives a command its role and order. `descriptor` is announced; the caller makes it inheritable
/// in the child with [`keep_open`].
pub(super) fn set_role(
    command: &mut Command,
    role: BedRole,
    spec: &BedSpec,
    descriptor: Option<RawFd>,
) -> Result<()> {
    let role = match role {
        BedRole::Warden => "warden",
        BedRole::Init => "init",
        BedRole::Inside => "inside",
    };
    command.env(ROLE, role).env(ORDER, serde_json::to_string(spec)?);
    match descriptor {
        Some(number) => command.env(DESCRIPTOR, number.to_string()),
        None => command.env_remove(DESCRIPTOR),
    };
    Ok(())
}

/// Makes a descriptor outlive the exec that follows. Safe to call between fork and exec.
pub(super) fn keep_open(descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
    let flags = fcntl_getfd(descriptor)? - FdFlags::CLOEXEC;
    Ok(fcntl_setfd(descriptor, flags)?)
}

/// Takes the announced descriptor, so that no child of this process inherits it.
pub(super) fn take_descriptor() -> Result<OwnedFd> {
    let number = env::var(DESCRIPTOR).with_context(|| format!("{DESCRIPTOR} is not set"))?;
    let number: RawFd = number.parse().with_context(|| format!("{DESCRIPTOR}={number:?}"))?;
    // SAFETY: the parent left exactly this number open for this process, and this function, called
    // once for a role, is the only place that takes it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(descriptor.as_fd(), FdFlags::CLOEXEC)
        .with_context(|| format!("{DESCRIPTOR}={number}: not an open descriptor"))?;
    Ok(descriptor)
}
