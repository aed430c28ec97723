//! The root directory's lock in real temporary directories.

use super::*;

#[test]
fn the_second_of_two_is_refused_with_pid_and_dir() {
    let root = tempfile::tempdir().unwrap();
    let first = RootLock::acquire(root.path(), 4711).unwrap();
    let error = RootLock::acquire(root.path(), 4712).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RootLockError::Held { holder: Holder::Process(4711), .. }));
    assert!(text.contains("pid 4711"), "{text}");
    assert!(text.contains(root.path().to_str().unwrap()), "{text}");
    drop(first);
    RootLock::acquire(root.path(), 4713).unwrap();
    let written = fs::read_to_string(root.path().join("keelson/agent.lock")).unwrap();
    assert_eq!(written, "keelson-agent-lock 1\npid 4713\n");
}

#[test]
fn a_holder_that_goes_away_in_time_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let first = RootLock::acquire(root.path(), 1).unwrap();
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(120));
        drop(first);
    });
    RootLock::acquire(root.path(), 2).unwrap();
    leaving.join().unwrap();
}

#[test]
fn a_stale_or_foreign_lock_file_does_not_block_the_agent() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("keelson")).unwrap();
    fs::write(root.path().join("keelson/agent.lock"), vec![0xff; 4096]).unwrap();
    let held = RootLock::acquire(root.path(), 9).unwrap();
    assert_eq!(fs::read_to_string(held.path()).unwrap(), "keelson-agent-lock 1\npid 9\n");
}

#[test]
fn a_root_that_cannot_be_made_names_the_file() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("plain");
    fs::write(&file, "").unwrap();
    let text = RootLock::acquire(&file, 9).unwrap_err().to_string();
    assert!(text.contains("plain/keelson/agent.lock"), "{text}");
}

#[test]
fn holders_are_read_only_from_the_known_format() {
    assert_eq!(parse_holder("keelson-agent-lock 1\npid 12\n"), Holder::Process(12));
    assert_eq!(parse_holder("keelson-agent-lock 1\nhost a\npid 12\n"), Holder::Process(12));
    assert_eq!(parse_holder("keelson-agent-lock 2\npid 12\n"), Holder::Unknown);
    assert_eq!(parse_holder("keelson-agent-lock 1\npid twelve\n"), Holder::Unknown);
    assert_eq!(parse_holder(""), Holder::Unknown);
}
