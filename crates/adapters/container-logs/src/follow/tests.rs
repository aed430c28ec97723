//! Following a log that grows, is rotated, and ends.

use super::*;
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

fn line(text: &str) -> Vec<u8> {
    format!("2026-01-02T03:04:05.000000001Z stdout F {text}\n").into_bytes()
}

fn append(path: &Path) -> File {
    std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log")
}

#[test]
fn a_log_is_followed_through_a_rotation_to_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("0.log");
    let mut writer = append(&path);
    writer.write_all(&[line("a"), line("b"), b"2026-01-02T03:04:0".to_vec()].concat()).expect("x");
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let (seen, told) = mpsc::channel();
    let following = {
        let path = path.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let tail = Some(1);
            runtime.expect("a runtime").block_on(async {
                let selection = Selection { tail, ..Selection::default() };
                let limit = Duration::from_secs(20);
                let mut take = |entry: &Entry| {
                    let text = String::from_utf8_lossy(&entry.text).into_owned();
                    match seen.send(text) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    }
                };
                let followed = follow(&path, &selection, &mut take, async {
                    let _ = ended.await;
                });
                tokio::time::timeout(limit, followed).await.expect("in time").expect("followed");
            });
        })
    };
    let next = || told.recv_timeout(Duration::from_secs(10)).expect("a line");
    assert_eq!(next(), "b");
    writer.write_all(b"5.000000001Z stdout F c\n").expect("the rest of the line");
    assert_eq!(next(), "c");
    std::fs::rename(&path, folder.path().join("0.log.20260102-030405")).expect("rotated");
    writer.write_all(&line("still into the old file")).expect("a line");
    assert_eq!(next(), "still into the old file");
    let mut later = append(&path);
    writer.write_all(&line("last of the old file")).expect("a line");
    later.write_all(&line("first of the new file")).expect("a line");
    assert_eq!(next(), "last of the old file");
    assert_eq!(next(), "first of the new file");
    drop(writer);
    later.write_all(&line("end")).expect("a line");
    end.send(()).expect("somebody listens");
    assert_eq!(next(), "end");
    following.join().expect("ended by itself");
    assert!(told.recv_timeout(Duration::from_millis(1)).is_err(), "nothing came twice");
}
