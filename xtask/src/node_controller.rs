//! Verbs of the node controller: the comparison with kube-controller-manager, the benchmark, and
//! the simulation.

use std::ffi::OsString;

use anyhow::Result;
use node_testkit::parts;

use crate::{release, workspace};

/// The parts that both verbs need.
const PARTS: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

/// The same script of events for both, and their differences beside the checked-in list.
pub(crate) fn conformance() -> Result<()> {
    parts::command(PARTS)?;
    workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
    in_bed("node-controller-conformance", workspace::built("keelson")?.into_os_string())
}

/// Memory, CPU and the time to notice, with a release build.
pub(crate) fn bench() -> Result<()> {
    parts::command(PARTS)?;
    release::command()?;
    workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
    in_bed("node-controller-bench", release::binary()?.into_os_string())
}

/// Runs the pure simulation this often; in release mode, since a thousand runs take a while.
pub(crate) fn simulate(runs: u64) -> Result<()> {
    let mut command =
        workspace::cargo(&["run", "--quiet", "--release", "--package", "node-health"]);
    workspace::run(command.args(["--example", "simulate", "--", &runs.to_string()]))
}

fn in_bed(program: &str, keelson: OsString) -> Result<()> {
    let mut command = std::process::Command::new(workspace::built("bed")?);
    command.args(["run", "--name", program, "--deadline", "45m", "--"]);
    command.arg(workspace::built(program)?).arg(keelson);
    workspace::run(command.current_dir(workspace::root()))
}
