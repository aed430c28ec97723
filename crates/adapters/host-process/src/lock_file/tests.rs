//! The shared lock file and its watch in real temporary directories.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[test]
fn a_second_process_waits_until_the_lock_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let first = LockFile::acquire(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (sender, receiver) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || {
            let held = LockFile::acquire(&path).unwrap();
            sender.send(()).unwrap();
            drop(held);
        }
    });
    assert!(receiver.recv_timeout(Duration::from_millis(150)).is_err(), "it did not wait");
    drop(first);
    receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    waiting.join().unwrap();
    assert!(path.exists());
}

#[test]
fn a_path_that_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let text = LockFile::acquire(&dir.path().join("no/lock")).unwrap_err().to_string();
    assert!(text.starts_with("unable to acquire file lock on"), "{text}");
    assert!(text.contains("no/lock"), "{text}");
}

#[tokio::test]
async fn opening_and_removing_are_contention_and_silence_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let _held = LockFile::acquire(&path).unwrap();
    let watch = ContentionWatch::start(&path).unwrap();
    let quiet = tokio::time::timeout(Duration::from_millis(100), watch.contended()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    drop(File::open(&path).unwrap());
    assert_eq!(watch.contended().await, "opened");

    let watch = ContentionWatch::start(&path).unwrap();
    drop(_held);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(watch.contended().await, "removed");
}
