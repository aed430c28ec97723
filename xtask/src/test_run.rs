//! `cargo xtask test`: all checks and tests before a merge, in the order that finds faults soonest,
//! under one watchdog. Prints each step, continues after a failure, ends with the counts.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::tally::{CheckTally, TestCounts, seconds};
use crate::{checks, watchdog, workspace};

/// The run ends itself well before its caller's own timeout (90 minutes).
const WATCHDOG: Duration = Duration::from_mins(80);

/// The margin of the run's watchdog: the tests' own one, which can name a test, fires first.
const WATCHDOG_MARGIN: Duration = Duration::from_mins(2);

/// Comparisons with a reference and long faults are run by verb (`cargo xtask conformance cri`,
/// `cargo xtask real outages`), not in a landing.
const BY_VERB: &[&str] = &[
    "containerd_behaves",
    "kubectl_gets_what_it_gets_from_the_reference",
    "kills_leave_no_mount_no_half_content_and_no_stuck_pod",
    "pods_go_on_while_the_api_server_is_gone_silent_slow_or_behind",
    "statuses_and_events_are_those_of_the_reference",
];

/// Tests on real parts write here what they could not run on this machine, a line each.
const COULD_NOT_RUN: &str = "KEELSON_COULD_NOT_RUN";

pub(crate) fn command() -> Result<()> {
    let begun = Instant::now();
    let deadline = begun + WATCHDOG;
    watchdog::start(WATCHDOG + WATCHDOG_MARGIN);
    let mut tally = CheckTally::default();
    checks::run(&mut tally);
    tally.check("build", || {
        workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))
    });
    let mut pure = workspace::cargo(&["test", "--workspace", "--exclude", "real-tests", "--quiet"]);
    pure.args(["--no-fail-fast", "--", "--format=pretty"]);
    counted(&mut tally, "tests without real parts", &mut pure, deadline);
    tally.check("real parts", crate::verbs::parts_for_landing);
    let missing = real(&mut tally, None, deadline)?;
    eprintln!("==> all of it: {}", seconds(begun.elapsed()));
    println!("{}", tally.closing(missing));
    if tally.failed() > 0 {
        std::process::exit(1);
    }
    Ok(())
}

pub(crate) fn real_command(filter: Option<&str>) -> Result<()> {
    let mut tally = CheckTally::default();
    tally.check("build", || {
        workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))
    });
    tally.check("real parts", crate::verbs::parts_for_landing);
    let missing = real(&mut tally, filter, Instant::now() + WATCHDOG)?;
    println!("{}", tally.closing(missing));
    if tally.failed() > 0 {
        bail!("real-part tests failed");
    }
    Ok(())
}

/// Runs the real-part tests one at a time, and compares what could not run with the list.
fn real(tally: &mut CheckTally, filter: Option<&str>, deadline: Instant) -> Result<usize> {
    let record = workspace::target_dir()?.join("could-not-run.txt");
    std::fs::write(&record, "").with_context(|| record.display().to_string())?;
    let mut command = workspace::cargo(&["test", "--package", "real-tests", "--quiet"]);
    command.args(["--no-fail-fast", "--", "--test-threads=1", "--format=pretty"]);
    if filter.is_none() {
        command.args(BY_VERB.iter().flat_map(|name| ["--skip", *name]));
    }
    command.args(filter).env(COULD_NOT_RUN, &record);
    counted(tally, "tests on real parts", &mut command, deadline);
    let listed = workspace::root().join("tests/could-not-run.txt");
    let (recorded, expected) = (lines_of(&record)?, lines_of(&listed)?);
    for line in recorded.iter().filter(|l| !expected.contains(l)) {
        tally.fail(&format!("could not run, and not on the list: {line}"));
    }
    if filter.is_none() {
        for line in expected.iter().filter(|l| !recorded.contains(l)) {
            tally.fail(&format!("listed as could-not-run, but it ran: {line}"));
        }
    }
    Ok(recorded.len())
}

fn lines_of(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let kept = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut lines: Vec<String> = kept.map(ToOwned::to_owned).collect();
    lines.sort();
    lines.dedup();
    Ok(lines)
}

fn counted(tally: &mut CheckTally, name: &str, command: &mut Command, deadline: Instant) {
    let begun = Instant::now();
    eprintln!("==> {name}");
    watchdog::set_current_step(name);
    match watched(command, deadline) {
        Ok((counts, success)) => {
            if counts.ignored > 0 {
                tally.fail(&format!(
                    "{name}: {} tests are ignored, which nobody sees",
                    counts.ignored
                ));
            }
            if counts.passed + counts.failed == 0 {
                tally.fail(&format!("{name}: no test ran"));
            } else if !success && counts.failed == 0 {
                tally.fail(&format!("{name}: ended badly although no test failed"));
            }
            tally.add(&counts);
        }
        Err(error) => {
            eprintln!("==> {name} FAILED: {error:#}");
            tally.fail(name);
        }
    }
    eprintln!("==> {name}: {}", seconds(begun.elapsed()));
}

/// Runs a test command in its own process group, passes its output on, counts, and kills the whole
/// group at the deadline, naming the test that was running.
fn watched(command: &mut Command, deadline: Instant) -> Result<(TestCounts, bool)> {
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let output = child.stdout.take().context("its output")?;
    let (lines, received) = mpsc::channel();
    let reader = std::thread::spawn(move || forward(output, &lines));
    let mut counts = TestCounts::default();
    let mut current = String::from("(none yet)");
    let mut timed_out = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match received.recv_timeout(left) {
            Ok(line) => {
                if let Some(name) = line.strip_prefix("test ").and_then(|l| l.split(" ... ").next())
                {
                    name.trim_end().clone_into(&mut current);
                }
                counts.read_line(&line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                timed_out = true;
                eprintln!("==> WATCHDOG: time is up; last seen: {current}");
                let group = rustix::process::Pid::from_child(&child);
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                break;
            }
        }
    }
    let status = child.wait()?;
    if timed_out {
        bail!("the watchdog ended the run; last seen: {current}");
    }
    let _ = reader.join();
    Ok((counts, status.success()))
}

/// Passes output on as it arrives, so that a user sees progress, and sends complete lines.
fn forward(output: impl Read, lines: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(count) = reader.read_until(b'\n', &mut line) {
        if count == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        print!("{text}");
        if lines.send(text).is_err() {
            break;
        }
        line.clear();
    }
}
