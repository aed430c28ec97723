//! Hooks that succeed, fail, hang, and leave children behind.

use std::fs;
use std::path::Path;

use super::*;

fn hook(script: &str) -> HookSpec {
    HookSpec {
        point: CREATE_CONTAINER.to_owned(),
        path: "/bin/sh".to_owned(),
        arguments: ["named", "-c", script, "sh", "word"].map(str::to_owned).into(),
        environment: vec!["PATH=/usr/bin:/bin".to_owned(), "WISH=a=b".to_owned()],
        timeout: 0,
    }
}

fn run_in(dir: &Path, hook: &HookSpec) -> std::result::Result<(), String> {
    let (_container, ours) = UnixStream::pair().unwrap();
    let bundle = dir.display().to_string();
    run(hook, (&state("id", 1, &bundle), &bundle), &ours)
}

#[test]
fn a_hook_gets_state_arguments_and_variables() {
    let dir = tempfile::tempdir().unwrap();
    let script = "cat > state; echo \"$1 $WISH $#\" > said; pwd >> said; echo noise >&2";
    run_in(dir.path(), &hook(script)).unwrap();
    let bundle = dir.path().canonicalize().unwrap().display().to_string();
    let written = fs::read_to_string(dir.path().join("said")).unwrap();
    assert_eq!(written, format!("word a=b 1\n{bundle}\n"));
    let state = fs::read_to_string(dir.path().join("state")).unwrap();
    let wanted = r#"{"ociVersion":"1.0.2","id":"id","status":"creating","pid":1,"bundle":""#;
    assert!(state.starts_with(wanted), "{state}");
}

#[test]
fn a_failure_is_reported_with_the_last_line_of_stderr() {
    let dir = tempfile::tempdir().unwrap();
    let why = run_in(dir.path(), &hook("echo a >&2; echo why >&2; exit 3"));
    let why = why.unwrap_err();
    assert!(why.contains("exit status: 3") && why.ends_with(": why"), "{why}");
    let missing = HookSpec { path: "/not/there".into(), ..hook("") };
    assert!(run_in(dir.path(), &missing).unwrap_err().contains("cannot be run"));
    // More than is kept, and more than a pipe's buffer.
    let many = hook("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2; exit 1");
    assert!(run_in(dir.path(), &many).unwrap_err().ends_with(": line 19999"));
}

#[test]
fn a_hook_that_times_out_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let script = "sleep 600 & echo $! > child; echo waiting >&2; wait";
    let late = HookSpec { timeout: 1, ..hook(script) };
    let why = run_in(dir.path(), &late).unwrap_err();
    assert!(why.contains("longer than 1 seconds: waiting"), "{why}");
    let child = fs::read_to_string(dir.path().join("child")).unwrap();
    let place = format!("/proc/{}/stat", child.trim());
    let is_there = || fs::read_to_string(&place).is_ok_and(|stat| !stat.contains(") Z "));
    let until = Instant::now() + Duration::from_secs(5);
    while is_there() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_there());
}

#[test]
fn a_hook_of_a_container_that_has_ended_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let hook = hook("exec sleep 600");
    let (container, ours) = UnixStream::pair().unwrap();
    drop(container);
    let why = run(&hook, ("", &dir.path().display().to_string()), &ours).unwrap_err();
    assert!(why.contains("the container has ended"), "{why}");
}

#[test]
fn strings_are_quoted_as_json() {
    assert_eq!(quoted("a\"b\\c\nd\u{e9}"), "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
}
