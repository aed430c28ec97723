//! Beds leave nothing, however they end: the test process killed, the warden killed, both killed,
//! the deadline passed, a panic. Each time containerd runs a container in the bed, and a separate
//! program checks for leftovers.
//!
//! `cargo xtask test` kills each once, when the container runs. `cargo xtask soak --kills N` kills
//! N times, from the second on at instants during creation, run and end of a bed.

mod kills;
mod planted;
mod victim;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::{Containerd, ContainerdOptions};
use real_tests::leftover_check::LeftoverCheck;

use super::containerd::run_container;
use kills::{KillTarget, kill_rounds};

const LONG: Duration = Duration::from_mins(10);

fn test() -> BedTest {
    BedTest::new().needs(Containerd::NEEDS)
}

#[test]
fn killed_test_process_leaves_nothing() -> Result<()> {
    if victim::is_this_process() {
        return test().deadline(LONG).run(|bed| {
            let _containerd = run_sleeper(bed)?;
            victim::wait_to_be_killed()
        });
    }
    kill_rounds(KillTarget::TestProcess, "beds::killed_test_process_leaves_nothing")
}

#[test]
fn killed_warden_leaves_nothing() -> Result<()> {
    if victim::is_this_process() {
        return test().deadline(LONG).run(|bed| {
            let _containerd = run_sleeper(bed)?;
            victim::wait_to_be_killed()
        });
    }
    kill_rounds(KillTarget::Warden, "beds::killed_warden_leaves_nothing")
}

/// No process is left to clean up, so the bed dies and the next one removes the rest. In between
/// the leftover check must find what is there, which shows that it works.
#[test]
fn killed_warden_and_test_process_are_swept_by_the_next_bed() -> Result<()> {
    if victim::is_this_process() {
        return test().deadline(LONG).run(|bed| {
            let _containerd = run_sleeper(bed)?;
            victim::wait_to_be_killed()
        });
    }
    kill_rounds(KillTarget::Both, "beds::killed_warden_and_test_process_are_swept_by_the_next_bed")
}

#[test]
fn passed_deadline_leaves_nothing() -> Result<()> {
    let leftover_check = LeftoverCheck::start_outside_bed()?;
    let outcome = test().deadline(Duration::from_secs(25)).run(|bed| {
        let _containerd = run_sleeper(bed)?;
        victim::wait_to_be_killed()
    });
    let error = format!("{:#}", outcome.err().context("outlived its deadline")?);
    ensure!(error.contains("deadline of 25 s passed"), "{error}");
    let running = take_kept_log("beds.passed_deadline_leaves_nothing", "deadline.log")?;
    ensure!(running.contains("containerd-shim-runc-v2"), "{running}");
    leftover_check.context("outside the bed")?.expect_none()
}

#[test]
fn panic_leaves_nothing_but_its_logs() -> Result<()> {
    let leftover_check = LeftoverCheck::start_outside_bed()?;
    let outcome = test().run(|bed| {
        let _containerd = run_sleeper(bed)?;
        panic!("the test's own panic");
    });
    let error = format!("{:#}", outcome.err().context("a panic was taken for success")?);
    ensure!(error.contains("the test's own panic"), "{error}");
    let log = take_kept_log("beds.panic_leaves_nothing_but_its_logs", "containerd.log")?;
    ensure!(log.contains("containerd successfully booted"), "{log}");
    leftover_check.context("outside the bed")?.expect_none()
}

/// containerd with a sleeping container.
fn run_sleeper(bed: &Bed) -> Result<Containerd> {
    let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
    run_container(bed, &containerd, "sleeper", &["sleep", "1000"])?;
    Ok(containerd)
}

/// Reads a kept log and removes its directory: this failure was intended.
fn take_kept_log(test: &str, file: &str) -> Result<String> {
    let dir = kept_logs(test)?;
    let text = fs::read_to_string(dir.join(file))
        .with_context(|| format!("{file} in {}", dir.display()))?;
    fs::remove_dir_all(&dir)?;
    Ok(text)
}

fn kept_logs(test: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe()?;
    let target = executable.ancestors().nth(3).context("target folder")?;
    Ok(target.join("bed-logs").join(test.replace("::", ".")))
}
