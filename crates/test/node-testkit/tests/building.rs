//! Parts appear in the cache whole or not at all, are built once, and then need no Go.
//!
//! A script stands in for Go, so that a build can be made to fail or hang; the cache is a temporary
//! directory. The caller is this test binary started again, because both are set by the
//! environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use node_testkit::parts;

const CALLER: &str = "KEELSON_TEST_CALLER";
/// Finds the file to make among Go's arguments.
const FIND_OUTPUT: &str = "while [ \"$1\" != -o ]; do shift; done; output=$2\n";

/// The caller's role; does nothing in any other process.
#[test]
fn caller() {
    if std::env::var_os(CALLER).is_none() {
        return;
    }
    match parts::ensure(&["etcd"]) {
        Ok(built) => println!("\nBUILT {}", built[0].program("etcd").display()),
        Err(error) => {
            println!("\nERROR {error:#}");
            std::process::exit(3);
        }
    }
}

struct TestCache {
    dir: tempfile::TempDir,
}

impl TestCache {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder") }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a script in Go's place.
    fn set_go(&self, script: &str) {
        let path = self.file("bin/go");
        fs::create_dir_all(self.file("bin")).expect("a folder");
        let calls = self.file("calls");
        let text = format!("#!/bin/sh\necho call >> {}\n{FIND_OUTPUT}{script}\n", calls.display());
        fs::write(&path, text).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("to be run");
    }

    fn caller(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this executable"));
        command
            .args(["--exact", "caller", "--nocapture"])
            .env(CALLER, "1")
            .env("KEELSON_CACHE", self.file("cache"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.file("bin").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn call(&self) -> String {
        message_of(&self.caller().output().expect("a caller"))
    }

    fn calls_of_go(&self) -> usize {
        fs::read_to_string(self.file("calls")).unwrap_or_default().lines().count()
    }

    /// The entries of the directory of parts, without locks and logs.
    fn parts(&self) -> Vec<String> {
        let names = |dir: &Path| -> Vec<String> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let mut found = names(&self.file("cache/parts"));
        found.retain(|name| !name.ends_with(".lock") && !name.ends_with(".log"));
        found
    }
}

/// The line that the caller printed.
fn message_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("BUILT ") || line.starts_with("ERROR "));
    line.unwrap_or(&text).to_owned()
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(30), "no {what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_part_is_built_once_and_then_used_without_go() {
    let place = TestCache::new();
    place.set_go("echo whole > \"$output\"");
    let first = place.call();
    let program = first.strip_prefix("BUILT ").expect(&first);
    assert_eq!(fs::read_to_string(program).expect("the program"), "whole\n");
    assert_eq!(place.calls_of_go(), 1);
    let began = Instant::now();
    assert_eq!(place.call(), first);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(place.calls_of_go(), 1, "Go was asked again");
}

#[test]
fn failed_build_leaves_no_part_and_one_line() {
    let place = TestCache::new();
    place.set_go("echo half > \"$output\"; echo 'x.go:1: broken' >&2; exit 1");
    let line = place.call();
    assert!(line.starts_with("ERROR cannot build part etcd v"), "{line}");
    assert!(line.contains("x.go:1: broken"), "{line}");
    assert_eq!(place.parts(), Vec::<String>::new());
}

/// If Go reports success but writes nothing, there is no part.
#[test]
fn build_that_makes_nothing_is_a_failure() {
    let place = TestCache::new();
    place.set_go("exit 0");
    assert!(place.call().starts_with("ERROR cannot build part etcd"));
    assert_eq!(place.parts(), Vec::<String>::new());
}

#[test]
fn a_missing_go_is_named_in_the_message() {
    let place = TestCache::new();
    fs::create_dir_all(place.file("bin")).expect("a folder");
    let output = place.caller().env("PATH", place.file("bin")).output().expect("a caller");
    assert!(message_of(&output).contains("cannot run go"), "{}", message_of(&output));
}

#[test]
fn interrupted_build_leaves_no_part_and_the_next_one_succeeds() {
    let place = TestCache::new();
    place.set_go("echo half > \"$output\"; sleep 1000");
    let mut caller = place.caller().process_group(0).spawn().expect("a caller");
    let abandoned =
        |place: &TestCache| place.parts().iter().any(|name| name.contains(".building-"));
    wait_for("build", || place.calls_of_go() == 1 && abandoned(&place));
    // The whole group, as a terminal or a watchdog would.
    let group = rustix::process::Pid::from_child(&caller);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("kill");
    caller.wait().expect("its end");
    assert!(place.parts().iter().all(|name| name.contains(".building-")), "{:?}", place.parts());
    place.set_go("echo whole > \"$output\"");
    let line = place.call();
    let program = line.strip_prefix("BUILT ").expect(&line);
    assert_eq!(fs::read_to_string(program).expect("the program"), "whole\n");
    assert!(!abandoned(&place), "{:?}", place.parts());
}

#[test]
fn two_callers_build_once() {
    let place = TestCache::new();
    place.set_go("sleep 0.5; echo whole > \"$output\"");
    let callers = [0, 1].map(|_| place.caller().spawn().expect("a caller"));
    let lines = callers.map(|caller| message_of(&caller.wait_with_output().expect("its end")));
    assert!(lines[0].starts_with("BUILT "), "{}", lines[0]);
    assert_eq!(lines[0], lines[1]);
    assert_eq!(place.calls_of_go(), 1);
}
