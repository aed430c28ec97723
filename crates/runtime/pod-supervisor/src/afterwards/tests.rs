//! Exit codes of processes that another process has reaped.

use super::*;
use std::process::Command;

#[test]
fn the_kernel_tells_how_a_reaped_process_ended() {
    for (script, code, signal) in [("exit 0", 0, 0), ("exit 7", 7, 0), ("kill -9 $$", 137, 9)] {
        let mut child = Command::new("sh")
            .args(["-c", &format!("read x; {script}")])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("small")).expect("a pid");
        let held = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("held");
        assert!(!has_ended(&held));
        assert_eq!(exit_code(&held), None, "it still runs");
        drop(child.stdin.take());
        child.wait().expect("reaped");
        assert!(has_ended(&held));
        match exit_code(&held) {
            Some(exit) => assert_eq!((exit.code, exit.signal), (code, signal), "{script}"),
            None => println!("could-not-run: this kernel does not tell exit codes by pidfd"),
        }
    }
}

#[test]
fn another_process_with_the_same_pid_is_not_ours() {
    let own = std::process::id();
    let files = container_create::ProcessFiles::open().expect("procfs");
    let ticks = files.start_ticks(own).expect("a start time");
    let state = |start_ticks| ContainerState { pid: own, start_ticks, ..Default::default() };
    assert!(hold(&state(ticks)).is_some());
    assert!(hold(&state(ticks + 1)).is_none());
    assert_eq!(fate(&state(ticks), None), Fate::Running);
    assert_eq!(fate(&state(ticks + 1), None), Fate::Unknown);
    let exit = Exit { code: 3, ..Exit::default() };
    let ended = ContainerState { exit: Some(exit), ..Default::default() };
    assert_eq!(fate(&ended, None), Fate::Exited(exit));
}
