//! Beds leave nothing, however they end: the test process killed, the warden killed, the deadline
//! passed, a panic. Each time containerd runs a container in the bed, and the judge is a program of
//! its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, Test, beds_folder, sweep};
use node_testkit::leftovers;
use node_testkit::start::{Containerd, ContainerdOptions};

use super::containerd::run_container;

/// Set for the process that is to be killed: the file it writes when its container runs.
const VICTIM: &str = "KEELSON_TEST_VICTIM";
const LONG: Duration = Duration::from_mins(10);

fn test() -> Test {
    Test::new().needs(Containerd::NEEDS)
}

#[test]
fn killed_test_process_leaves_nothing() -> Result<()> {
    if std::env::var_os(VICTIM).is_some() {
        return test().deadline(LONG).run(|bed| {
            let _containerd = run_sleeper(bed)?;
            lie_still()
        });
    }
    let judge = Judge::call()?;
    let mut victim = Victim::start("beds::killed_test_process_leaves_nothing")?;
    victim.process.kill().context("kill the test process")?;
    victim.process.wait()?;
    judge.finds_nothing()
}

#[test]
fn killed_warden_leaves_nothing() -> Result<()> {
    if std::env::var_os(VICTIM).is_some() {
        return test().deadline(LONG).run(|bed| {
            let _containerd = run_sleeper(bed)?;
            lie_still()
        });
    }
    let judge = Judge::call()?;
    let mut victim = Victim::start("beds::killed_warden_leaves_nothing")?;
    kill(victim.warden()?)?;
    let status = victim.process.wait()?;
    ensure!(!status.success(), "a test whose warden was killed has passed");
    judge.finds_nothing()
}

/// Nobody is left to clean up, so the bed dies and the next one sweeps. In between the judge must
/// find what is there: it is not blind.
#[test]
fn killed_warden_and_test_process_are_swept_by_the_next_bed() -> Result<()> {
    if std::env::var_os(VICTIM).is_some() {
        return test().deadline(LONG).run(|bed| {
            let _containerd = run_sleeper(bed)?;
            lie_still()
        });
    }
    let judge = Judge::call()?;
    let mut victim =
        Victim::start("beds::killed_warden_and_test_process_are_swept_by_the_next_bed")?;
    let warden = victim.warden()?;
    {
        // No bed is made or swept while this is held.
        let _all = File::open(beds_folder().join(".lock")).and_then(|lock| {
            lock.lock()?;
            Ok(lock)
        })?;
        // Stopped first, so that it cannot clean up after its warden.
        signal(victim.process.id(), "STOP")?;
        kill(warden)?;
        victim.process.kill().context("kill the test process")?;
        victim.process.wait()?;
        judge.finds_now(&["cgroup: ", "folder: "])?;
    }
    sweep()?;
    judge.finds_nothing()
}

#[test]
fn passed_deadline_leaves_nothing() -> Result<()> {
    let judge = Judge::call_outside()?;
    let outcome = test().deadline(Duration::from_secs(25)).run(|bed| {
        let _containerd = run_sleeper(bed)?;
        lie_still()
    });
    let error = format!("{:#}", outcome.err().context("outlived its deadline")?);
    ensure!(error.contains("deadline of 25 s passed"), "{error}");
    let running = take_kept_log("beds.passed_deadline_leaves_nothing", "deadline.log")?;
    ensure!(running.contains("containerd-shim-runc-v2"), "{running}");
    judge.context("outside the bed")?.finds_nothing()
}

#[test]
fn panic_leaves_nothing_but_its_logs() -> Result<()> {
    let judge = Judge::call_outside()?;
    let outcome = test().run(|bed| {
        let _containerd = run_sleeper(bed)?;
        panic!("the test's own panic");
    });
    let error = format!("{:#}", outcome.err().context("a panic was taken for success")?);
    ensure!(error.contains("the test's own panic"), "{error}");
    let log = take_kept_log("beds.panic_leaves_nothing_but_its_logs", "containerd.log")?;
    ensure!(log.contains("containerd successfully booted"), "{log}");
    judge.context("outside the bed")?.finds_nothing()
}

/// containerd with a container that sleeps.
fn run_sleeper(bed: &Bed) -> Result<Containerd> {
    let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
    run_container(bed, &containerd, "sleeper", &["sleep", "1000"])?;
    Ok(containerd)
}

/// Says that all is set up, and waits for somebody to end this bed.
fn lie_still() -> Result<()> {
    if let Some(file) = std::env::var_os(VICTIM) {
        fs::write(file, b"")?;
    }
    sleep(LONG);
    bail!("nobody ended this bed")
}

/// A test process of its own, with a container in its bed.
struct Victim {
    test: &'static str,
    process: Child,
}

impl Victim {
    fn start(test: &'static str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let ready = folder.path().join("ready");
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--exact", test, "--nocapture"])
            .env(VICTIM, &ready)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let began = Instant::now();
        while !ready.exists() {
            if let Some(status) = process.try_wait()? {
                bail!("the victim ended by itself: {status}");
            }
            ensure!(began.elapsed() < Duration::from_mins(2), "the victim's container never ran");
            sleep(Duration::from_millis(50));
        }
        Ok(Self { test, process })
    }

    /// The only child of a test process that waits for its bed.
    fn warden(&self) -> Result<u32> {
        let tasks = format!("/proc/{}/task", self.process.id());
        let mut children = String::new();
        for task in fs::read_dir(&tasks).context(tasks)? {
            children += &fs::read_to_string(task?.path().join("children"))?;
        }
        let children: Vec<&str> = children.split_whitespace().collect();
        let [warden] = children.as_slice() else { bail!("one child expected: {children:?}") };
        Ok(warden.parse()?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A warden keeps the logs of a test that was killed; here that was wanted.
        if let Ok(folder) = kept_logs(self.test) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn kill(process: u32) -> Result<()> {
    signal(process, "KILL")
}

fn signal(process: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status()?;
    ensure!(status.success(), "kill -s {name} {process}: {status}");
    Ok(())
}

/// Reads a log that was kept, and removes the folder: this failure was wanted.
fn take_kept_log(test: &str, file: &str) -> Result<String> {
    let folder = kept_logs(test)?;
    let text = fs::read_to_string(folder.join(file))
        .with_context(|| format!("{file} in {}", folder.display()))?;
    fs::remove_dir_all(&folder)?;
    Ok(text)
}

fn kept_logs(test: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe()?;
    let target = executable.ancestors().nth(3).context("target folder")?;
    Ok(target.join("bed-logs").join(test.replace("::", ".")))
}

/// The `leftovers` program with a snapshot from before.
struct Judge {
    program: &'static Path,
    snapshot: tempfile::NamedTempFile,
}

impl Judge {
    fn call() -> Result<Self> {
        static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let program = PROGRAM
            .get_or_init(|| leftovers::build_program().map_err(|error| format!("{error:#}")))
            .as_deref()
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let judge = Self { program, snapshot: tempfile::NamedTempFile::new()? };
        let (status, said) = judge.ask("snapshot")?;
        ensure!(status == Some(0), "{said}");
        Ok(judge)
    }

    /// A test that goes to bed itself comes here twice; the one inside has nothing to judge.
    fn call_outside() -> Result<Option<Self>> {
        let inside = std::env::var_os("KEELSON_BED_ROLE").is_some();
        if inside { Ok(None) } else { Self::call().map(Some) }
    }

    /// Without the patience that things which are just going get otherwise.
    fn finds_now(&self, expected: &[&str]) -> Result<()> {
        let (status, said) = self.ask("compare-now")?;
        let all = expected.iter().all(|one| said.contains(one));
        ensure!(status == Some(1) && all, "expected {expected:?} to be found:\n{said}");
        Ok(())
    }

    fn finds_nothing(&self) -> Result<()> {
        let (status, said) = self.ask("compare")?;
        ensure!(status == Some(0), "left behind:\n{said}");
        Ok(())
    }

    fn ask(&self, verb: &str) -> Result<(Option<i32>, String)> {
        let output = Command::new(self.program).arg(verb).arg(self.snapshot.path()).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
    }
}
