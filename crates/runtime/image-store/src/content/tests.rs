//! Ingests that are complete, interrupted, wrong or concurrent; each in a real directory.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Begin, Content, Ingest};
use crate::digest::Digest;
use crate::error::Error;
use crate::limits::Limits;

struct Bench {
    folder: tempfile::TempDir,
    content: Content,
}

fn bench() -> Bench {
    bench_with(Limits::default().turn_patience)
}

fn bench_with(turn_patience: Duration) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { blob_bytes: 1 << 20, turn_patience, ..Limits::default() };
    let content = Content::open(folder.path(), &folder.path().join("lock"), &limits).unwrap();
    Bench { folder, content }
}

fn ingest(content: &Content, digest: &Digest, size: u64) -> Ingest {
    match content.begin(digest, size).unwrap() {
        Begin::Ingest(ingest) => *ingest,
        Begin::Present => panic!("{digest} is there already"),
    }
}

#[test]
fn content_is_kept_once_and_read_back() {
    let bench = bench();
    let digest = bench.content.put(b"hello").unwrap();
    assert_eq!(bench.content.put(b"hello").unwrap(), digest);
    assert_eq!(bench.content.list().unwrap(), [(digest, 5)]);
    assert_eq!(bench.content.read_document(&digest, 100).unwrap(), b"hello");
    assert!(matches!(bench.content.read_document(&digest, 4), Err(Error::Limit { .. })));
    assert!(matches!(bench.content.begin(&digest, 5).unwrap(), Begin::Present));
    assert!(bench.content.begin(&digest, 6).is_err(), "another size under the same digest");
}

#[test]
fn an_interrupted_ingest_goes_on_where_it_ended() {
    let bench = bench();
    let digest = Digest::of(b"first second");
    let mut first = ingest(&bench.content, &digest, 12);
    first.receive(b"first ").unwrap();
    assert!(matches!(first.commit(), Err(Error::Truncated { received: 6, expected: 12, .. })));
    assert_eq!(bench.content.size(&digest).unwrap(), None);
    let mut second = ingest(&bench.content, &digest, 12);
    assert_eq!(second.offset(), 6);
    second.receive(b"second").unwrap();
    assert_eq!(second.commit().unwrap(), (digest, 12));
    assert_eq!(bench.content.size(&digest).unwrap(), Some(12));
}

#[test]
fn wrong_bytes_are_never_placed_and_not_resumed() {
    let bench = bench();
    let digest = Digest::of(b"right");
    let mut wrong = ingest(&bench.content, &digest, 5);
    wrong.receive(b"wrong").unwrap();
    assert!(matches!(wrong.commit(), Err(Error::DigestMismatch { .. })));
    assert!(bench.content.list().unwrap().is_empty());
    let mut again = ingest(&bench.content, &digest, 5);
    assert_eq!(again.offset(), 0);
    assert!(matches!(again.receive(b"right and more"), Err(Error::TooLong { .. })));
    drop(again);
    assert_eq!(ingest(&bench.content, &digest, 5).offset(), 0);
}

#[test]
fn caps_hold_for_announced_and_unannounced_content() {
    let bench = bench();
    assert!(matches!(bench.content.begin(&Digest::of(b""), 2 << 20), Err(Error::Limit { .. })));
    let mut unannounced = bench.content.begin_unannounced().unwrap();
    let chunk = vec![0; 1 << 20];
    unannounced.receive(&chunk).unwrap();
    assert!(matches!(unannounced.receive(b"x"), Err(Error::Limit { .. })));
    drop(unannounced);
    let left = fs::read_dir(bench.folder.path().join("content/ingest")).unwrap().count();
    assert_eq!(left, 0, "what was given up stays");
}

#[test]
fn a_damaged_blob_is_told() {
    let bench = bench();
    let digest = bench.content.put(b"hello").unwrap();
    fs::write(bench.content.path(&digest), b"hallo").unwrap();
    assert!(matches!(bench.content.read_document(&digest, 100), Err(Error::Damaged { .. })));
}

#[test]
fn one_ingest_per_digest_at_a_time() {
    let bench = bench();
    let bytes = vec![7; 200_000];
    let digest = Digest::of(&bytes);
    let received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match bench.content.begin(&digest, bytes.len() as u64).unwrap() {
                Begin::Present => {}
                Begin::Ingest(mut ingest) => {
                    assert_eq!(ingest.offset(), 0, "two write one file");
                    for chunk in bytes.chunks(1000) {
                        ingest.receive(chunk).unwrap();
                    }
                    ingest.commit().unwrap();
                    received.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(received.into_inner(), 1);
    assert_eq!(bench.content.list().unwrap(), [(digest, 200_000)]);
}

/// A hostile registry lists this content in its own image and delivers nothing of it.
#[test]
fn who_does_not_get_on_holds_nobody_up() {
    let bench = bench_with(Duration::from_millis(50));
    let digest = Digest::of(b"popular");
    let mut hostile = ingest(&bench.content, &digest, 7);
    hostile.receive(b"p").unwrap();
    let mut honest = ingest(&bench.content, &digest, 7);
    assert_eq!(honest.offset(), 0);
    assert!(matches!(honest.receive(b"popular and more"), Err(Error::TooLong { .. })));
    // A discarded second ingest leaves no file beside the first.
    drop(ingest(&bench.content, &digest, 7));
    let left = fs::read_dir(bench.folder.path().join("content/ingest")).unwrap().count();
    assert_eq!(left, 1, "only what the first receives");
    let mut honest = ingest(&bench.content, &digest, 7);
    honest.receive(b"popular").unwrap();
    assert_eq!(honest.commit().unwrap(), (digest, 7));
    assert_eq!(bench.content.read_document(&digest, 100).unwrap(), b"popular");
    // The first one may still complete.
    hostile.receive(b"opular").unwrap();
    hostile.commit().unwrap();
    assert_eq!(bench.content.list().unwrap(), [(digest, 7)]);
}

#[test]
fn who_gets_on_is_waited_for_longer_than_once() {
    let patience = Duration::from_secs(1);
    let bench = bench_with(patience);
    let bytes = [7; 30];
    let digest = Digest::of(&bytes);
    let mut first = ingest(&bench.content, &digest, 30);
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| bench.content.begin(&digest, 30).unwrap());
        for byte in bytes {
            std::thread::sleep(Duration::from_millis(50));
            first.receive(&[byte]).unwrap();
        }
        first.commit().unwrap();
        assert!(matches!(second.join().unwrap(), Begin::Present), "it was received twice");
    });
    assert!(begun.elapsed() > patience);
}

#[test]
fn sweeping_removes_what_nobody_receives_and_keeps_what_can_be_resumed() {
    let bench = bench();
    let digest = Digest::of(b"resumable");
    let mut partial = ingest(&bench.content, &digest, 9);
    partial.receive(b"resu").unwrap();
    drop(partial);
    let live = bench.content.begin_unannounced().unwrap();
    let dead = bench.folder.path().join("content/ingest/.unfinished-dead");
    fs::write(&dead, "x").unwrap();
    assert_eq!(bench.content.sweep(Duration::from_secs(3600)).unwrap(), 1);
    assert!(!dead.exists() && live.path.exists());
    assert_eq!(ingest(&bench.content, &digest, 9).offset(), 4);
    assert_eq!(bench.content.sweep(Duration::ZERO).unwrap(), 1, "too old to be resumed");
}
