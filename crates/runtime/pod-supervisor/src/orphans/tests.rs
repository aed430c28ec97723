//! Exit codes of processes that another process has reaped.

use super::*;
use std::process::Command;

#[test]
fn the_kernel_reports_the_exit_of_a_reaped_process() {
    for (script, code, signal) in [("exit 0", 0, 0), ("exit 7", 7, 0), ("kill -9 $$", 137, 9)] {
        let mut child = Command::new("sh")
            .args(["-c", &format!("read x; {script}")])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("small")).expect("a pid");
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("held");
        assert!(!has_ended(&pidfd));
        assert_eq!(exit_code(&pidfd), None, "it still runs");
        drop(child.stdin.take());
        child.wait().expect("reaped");
        assert!(has_ended(&pidfd));
        match exit_code(&pidfd) {
            Some(exit) => assert_eq!((exit.code, exit.signal), (code, signal), "{script}"),
            None => println!("could-not-run: this kernel does not tell exit codes by pidfd"),
        }
    }
}

#[test]
fn a_process_with_a_reused_pid_is_not_taken_for_the_containers() {
    let own = std::process::id();
    let files = container_create::ProcessFiles::open().expect("procfs");
    let ticks = files.start_ticks(own).expect("a start time");
    let state = |start_ticks| ContainerState { pid: own, start_ticks, ..Default::default() };
    assert!(open_pidfd(&state(ticks)).is_some());
    assert!(open_pidfd(&state(ticks + 1)).is_none());
    assert_eq!(orphan_status(&state(ticks), None), OrphanStatus::Running);
    assert_eq!(orphan_status(&state(ticks + 1), None), OrphanStatus::Unknown);
    let exit = ProcessExit { code: 3, ..ProcessExit::default() };
    let ended = ContainerState { exit: Some(exit), ..Default::default() };
    assert_eq!(orphan_status(&ended, None), OrphanStatus::Exited(exit));
}
