//! Real processes, without cgroups: their list is passed in.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

#[test]
fn stat_fields_are_parsed_after_any_process_name() {
    let one = parse("7 (a) R (b)) S 5 6 4 0 -1").expect("read");
    assert_eq!((one.parent, one.session), (5, 4));
    assert!(parse("7 (sh) S 5 6").is_none() && parse("").is_none());
}

/// A shell in its own session with a child, an orphaned grandchild, and a child in another session;
/// returns their PIDs.
fn tree() -> (Child, Vec<u32>) {
    let script = "sleep 1001 & echo $!; (sleep 1002 & echo $!); setsid sleep 1003 & echo $!; \
                  echo end; wait";
    let mut shell = Command::new("setsid")
        .args(["sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let lines = BufReader::new(shell.stdout.take().expect("piped")).lines();
    let lines = lines.map(|line| line.expect("a line")).take_while(|line| line != "end");
    let mut all: Vec<u32> = lines.map(|line| line.parse().expect("a number")).collect();
    assert_eq!(all.len(), 3);
    all.push(shell.id());
    (shell, all)
}

fn has_exited(pid: u32) -> bool {
    // The new parent may not have reaped it yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    })
}

#[test]
fn killing_an_exec_kills_its_tree_and_no_other_process() {
    let files = ProcessFiles::open().expect("a procfs");
    let mut other = Command::new("sleep").arg("1004").spawn().expect("another");
    let (mut shell, all) = tree();
    let listed = || [&all[..], &[other.id()]].concat();
    let start_ticks = files.start_ticks(shell.id()).expect("it runs");
    // The PID was reused: no process of the tree is left.
    kill_tree_of(TreeRoot { pid: shell.id(), start_ticks: start_ticks + 1 }, &files, listed);
    assert!(all.iter().all(|pid| !has_exited(*pid)));
    kill_tree_of(TreeRoot { pid: shell.id(), start_ticks }, &files, listed);
    assert_eq!(shell.wait().expect("waited").signal(), Some(9));
    let begun = Instant::now();
    while !all.iter().all(|pid| has_exited(*pid)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "some live on: {all:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!has_exited(other.id()));
    other.kill().expect("killed");
    other.wait().expect("waited");
}

/// The first process has exited before; those left in its session are found.
#[test]
fn processes_left_in_the_session_by_the_first_process_are_killed() {
    let files = ProcessFiles::open().expect("a procfs");
    let (mut shell, all) = tree();
    let start_ticks = files.start_ticks(shell.id()).expect("it runs");
    shell.kill().expect("killed");
    shell.wait().expect("waited");
    kill_tree_of(TreeRoot { pid: shell.id(), start_ticks }, &files, || all.clone());
    let begun = Instant::now();
    while !all[..2].iter().all(|pid| has_exited(*pid)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "some live on: {all:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(all[2], Signal::KILL);
}
