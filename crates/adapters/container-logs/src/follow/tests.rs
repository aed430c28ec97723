//! Follows logs that grow, are rotated, and end.

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
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let mut writer = append(&path);
    writer.write_all(&[line("a"), line("b"), b"2026-01-02T03:04:0".to_vec()].concat()).expect("x");
    let (send_end, ended) = tokio::sync::oneshot::channel::<()>();
    let (lines, received) = mpsc::channel();
    let follower = {
        let path = path.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let tail = Some(1);
            runtime.expect("a runtime").block_on(async {
                let selection = LogSelection { tail, ..LogSelection::default() };
                let limit = Duration::from_secs(20);
                let mut take = |entry: &LogEntry| {
                    let text = String::from_utf8_lossy(&entry.text).into_owned();
                    match lines.send(text) {
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
    let next = || received.recv_timeout(Duration::from_secs(10)).expect("a line");
    assert_eq!(next(), "b");
    writer.write_all(b"5.000000001Z stdout F c\n").expect("the rest of the line");
    assert_eq!(next(), "c");
    std::fs::rename(&path, dir.path().join("0.log.20260102-030405")).expect("rotated");
    writer.write_all(&line("still into the old file")).expect("a line");
    assert_eq!(next(), "still into the old file");
    let mut new_writer = append(&path);
    writer.write_all(&line("last of the old file")).expect("a line");
    new_writer.write_all(&line("first of the new file")).expect("a line");
    assert_eq!(next(), "last of the old file");
    assert_eq!(next(), "first of the new file");
    drop(writer);
    new_writer.write_all(&line("end")).expect("a line");
    send_end.send(()).expect("the follower still runs");
    assert_eq!(next(), "end");
    follower.join().expect("the follower has returned");
    assert!(received.recv_timeout(Duration::from_millis(1)).is_err(), "nothing came twice");
}

/// A line as a runtime writes it, with a timestamp at the given second.
fn line_at(second: u8, text: &str) -> Vec<u8> {
    format!("2026-01-02T03:04:{second:02}.000000001Z stdout F {text}\n").into_bytes()
}

fn compress(path: &Path) {
    let compressed = File::create(format!("{}.gz", path.display())).expect("a file");
    let mut encoder = flate2::write::GzEncoder::new(compressed, flate2::Compression::fast());
    encoder.write_all(&std::fs::read(path).expect("the uncompressed file")).expect("compressed");
    encoder.finish().expect("compressed");
    std::fs::remove_file(path).expect("the uncompressed file is removed");
}

#[test]
fn a_slow_reader_reads_every_file_rotated_meanwhile() {
    // How many of the rotated files are compressed, and whether the first of them is removed before
    // the next read.
    for (compressed_count, first_is_removed) in
        [(0, false), (1, false), (2, false), (3, false), (1, true)]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        std::fs::write(dir.path().join("0.log.20250101-000000"), line_at(0, "old")).expect("x");
        append(&path).write_all(&line_at(1, "stall")).expect("a line");
        let mut seen = Vec::new();
        let mut take = |entry: &LogEntry| {
            let text = String::from_utf8_lossy(&entry.text).into_owned();
            if text == "stall" {
                append(&path).write_all(&line_at(2, "a")).expect("a line");
                for (number, text) in ["b", "c", "d"].into_iter().enumerate() {
                    let rotated = format!("0.log.20260102-03040{number}");
                    std::fs::rename(&path, dir.path().join(&rotated)).expect("rotated");
                    append(&path).write_all(&line_at(3, text)).expect("a line");
                }
                for number in 0..compressed_count {
                    compress(&dir.path().join(format!("0.log.20260102-03040{number}")));
                }
                if first_is_removed {
                    let removed = dir.path().join("0.log.20260102-030400.gz");
                    std::fs::remove_file(removed).expect("removed");
                }
            }
            seen.push(text);
            ControlFlow::Continue(())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let selection = LogSelection { tail: Some(1), ..LogSelection::default() };
        let followed = follow(&path, &selection, &mut take, std::future::ready(()));
        let limit = Duration::from_secs(20);
        let followed = async { tokio::time::timeout(limit, followed).await };
        let followed = runtime.expect("a runtime").block_on(followed);
        followed.expect("in time").expect("followed");
        assert_eq!(
            seen,
            ["stall", "a", "b", "c", "d"],
            "{compressed_count} compressed, first removed: {first_is_removed}"
        );
    }
}
