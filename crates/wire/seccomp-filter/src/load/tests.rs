//! Filters in force, each in a process of its own: the test starts itself again as the child.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, exit};
use std::thread;

use super::{LoadError, LoadOptions, load, load_error, set_no_new_privileges};
use crate::compile::compile;
use crate::profile::{Architecture, SeccompAction, SeccompProfile, SyscallRule};
use crate::program::BpfProgram;

const ROLE: &str = "SECCOMP_FILTER_TEST_ROLE";

fn denying(syscall: &str, action: SeccompAction) -> BpfProgram {
    let rule = SyscallRule { syscalls: vec![syscall.to_owned()], action, conditions: Vec::new() };
    let architectures = vec![Architecture::native().expect("a known architecture")];
    let rules = vec![rule];
    compile(&SeccompProfile {
        default_action: SeccompAction::Allow,
        architectures,
        rules,
        flags: None,
    })
    .expect("a small profile")
}

/// In the parent: runs this test again as a child in that role and returns its output.
fn child(test: &str, role: &str) -> Output {
    Command::new(env::current_exe().expect("own path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .output()
        .expect("the child starts")
}

fn role() -> Option<String> {
    env::var(ROLE).ok()
}

#[test]
fn a_denied_call_gives_its_errno_in_every_thread() {
    if role().is_some() {
        set_no_new_privileges().expect("allowed to everybody");
        let options = LoadOptions { all_threads: true, ..LoadOptions::default() };
        let early = thread::spawn(thread::park);
        let listener = load(&denying("getcwd", SeccompAction::Errno(1)), options).expect("loaded");
        assert!(listener.is_none());
        let errno = || env::current_dir().expect_err("denied").raw_os_error();
        let elsewhere = thread::spawn(errno).join().expect("joins");
        early.thread().unpark();
        println!("\nhere {:?} elsewhere {elsewhere:?}", errno());
        exit(0);
    }
    let output = child("load::tests::a_denied_call_gives_its_errno_in_every_thread", "deny");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("here Some(1) elsewhere Some(1)"), "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_killing_call_ends_the_process_by_sigsys() {
    if role().is_some() {
        set_no_new_privileges().expect("allowed to everybody");
        load(&denying("getcwd", SeccompAction::KillProcess), LoadOptions::default())
            .expect("loaded");
        let _ = env::current_dir();
        exit(0);
    }
    let output = child("load::tests::a_killing_call_ends_the_process_by_sigsys", "kill");
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
}

#[test]
fn a_listener_is_returned_as_an_open_descriptor() {
    if role().is_some() {
        set_no_new_privileges().expect("allowed to everybody");
        let options = LoadOptions { listener: true, ..LoadOptions::default() };
        let listener = load(&denying("getcwd", SeccompAction::Notify), options).expect("loaded");
        let listener = listener.expect("asked for");
        let name = rustix::fs::readlink(
            format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&listener)),
            Vec::new(),
        );
        println!("\nlistener {name:?}");
        exit(0);
    }
    let output = child("load::tests::a_listener_is_returned_as_an_open_descriptor", "listen");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("seccomp notify"), "{output:?}");
}

#[test]
fn kernel_errors_map_to_distinct_load_errors() {
    let error = |number| load_error(std::io::Error::from_raw_os_error(number));
    assert!(matches!(error(libc::EACCES), LoadError::NeedsNoNewPrivileges));
    assert!(matches!(error(libc::ENOSYS), LoadError::Unsupported(_)));
    assert!(matches!(error(libc::ESRCH), LoadError::OtherThread));
    assert!(matches!(error(libc::EINVAL), LoadError::Refused(_)));
}
