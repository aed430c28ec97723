//! A bed: the isolated environment that a real-part test runs in. It has its own PID, mount,
//! network, UTS, IPC and cgroup namespaces, its own cgroup in every hierarchy, and its own
//! directory; all of it is removed when the bed ends.
//!
//! ```text
//! test process ──> warden (own session) ──> init (PID 1 of the bed) ──> the command
//!      ▲              watches the test process,   mounts, reaps
//!      └── report ──  keeps the deadline, cleans up
//! ```
//!
//! Rule: however the command, the test process, the warden or the deadline ends it, nothing of a
//! bed stays. When the warden itself is killed, the bed dies with it, and the test process or the
//! next bed removes what lies on the disk.
//!
//! All three processes are the same executable, executed again with a role in the environment. A
//! bed does not build parts: its network leads nowhere.

mod cgroups;
mod handover;
mod host_dir;
mod init;
mod inside;
mod launch;
mod logs;
mod network;
mod warden;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub(crate) use cgroups::{PREFIX as CGROUP_PREFIX, mounted as mounted_hierarchies};
pub use handover::CommandOutput;
pub(crate) use handover::ROLE as ROLE_VARIABLE;
pub use host_dir::{beds_dir, is_occupied, sweep};
pub use inside::Bed;
pub(crate) use inside::DIR;
pub use launch::{BedOutcome, BedRequest, launch};
pub(crate) use logs::tail;
pub use network::{NODE_ADDRESS, free_port};

use crate::parts;

/// The deadline of a test that sets none.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(120);

/// Exit status of `bed run` when the deadline passed (as `timeout` has it).
pub const EXIT_DEADLINE: i32 = 124;
/// Exit status of `bed run` when there was no bed to run the command in.
pub const EXIT_NO_BED: i32 = 125;

/// A test's requirements of its bed.
#[derive(Debug, Clone)]
pub struct BedTest {
    deadline: Duration,
    needs: Vec<&'static str>,
}

impl Default for BedTest {
    fn default() -> Self {
        Self { deadline: DEFAULT_DEADLINE, needs: Vec::new() }
    }
}

impl BedTest {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the bed may last, without the time for building parts.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Parts that must be in the cache before the bed is made.
    #[must_use]
    pub fn needs(mut self, parts: &[&'static str]) -> Self {
        self.needs.extend_from_slice(parts);
        self
    }

    /// Runs the closure in a bed. To be called from an ordinary `#[test]` function, whose name is
    /// read from the closure's type: outside a bed this starts the test binary again inside one.
    ///
    /// # Errors
    /// An error of the closure, a panic in it, a passed deadline, or no bed; with the end of the
    /// output and the directory where the logs were kept.
    pub fn run<F>(self, body: F) -> Result<()>
    where
        F: FnOnce(&Bed) -> Result<()>,
    {
        let test = test_name(std::any::type_name::<F>())?;
        if let Some(bed) = enter_role(Some(&test))? {
            bed.mark_entered()?;
            return body(&bed);
        }
        parts::ensure(&self.needs)?;
        let reentry = ["--exact", &test, "--nocapture", "--test-threads=1"].map(str::to_owned);
        let executable = std::env::current_exe().context("find this test's executable")?;
        let mut command = vec![executable.to_string_lossy().into_owned()];
        command.extend(reentry.iter().cloned());
        let request = BedRequest {
            name: test.clone(),
            deadline: self.deadline,
            command,
            output: CommandOutput::Log,
            keep_logs: logs::dir_for(&test)?,
            reentry: reentry.to_vec(),
            must_enter: true,
        };
        match launch(&request)? {
            BedOutcome::Exited { status: 0, .. } => Ok(()),
            outcome => bail!("{test}: {}", outcome.describe()),
        }
    }
}

/// Runs a test's closure in a bed with the default deadline; see [`BedTest::run`].
///
/// # Errors
/// As [`BedTest::run`].
pub fn test<F>(body: F) -> Result<()>
where
    F: FnOnce(&Bed) -> Result<()>,
{
    BedTest::new().run(body)
}

/// Assumes the role that the environment gives this process; for a warden or an init this never
/// returns. Inside a bed that was made for this test (or, for a program, any bed) the bed is
/// returned; otherwise `None`.
///
/// # Errors
/// When there is a role but its input cannot be read.
pub fn enter_role(test: Option<&str>) -> Result<Option<Bed>> {
    let Some((role, spec)) = handover::role_from_environment()? else { return Ok(None) };
    match role {
        handover::BedRole::Warden => warden::run(&spec),
        handover::BedRole::Init => init::run(&spec),
        handover::BedRole::Inside => {
            let meant = test.is_none_or(|test| spec.must_enter && spec.name == test);
            Ok(meant.then(|| Bed::new(&spec)))
        }
    }
}

/// `crate::module::test_function::{{closure}}` without crate and closure: what libtest calls it.
fn test_name(closure: &str) -> Result<String> {
    let path = closure
        .strip_suffix("::{{closure}}")
        .with_context(|| format!("{closure}: a bed's test must be a closure"))?;
    let (_, name) = path
        .split_once("::")
        .with_context(|| format!("{closure}: the closure is not in a test function"))?;
    ensure!(
        !name.contains("{{closure}}"),
        "{closure}: the closure must stand in the test function itself"
    );
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests;
