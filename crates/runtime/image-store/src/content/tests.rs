//! Ingests that are complete, interrupted, wrong or concurrent; each in a real directory.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{ContentStore, Ingest, IngestStart};
use crate::digest::Digest;
use crate::error::Error;
use crate::limits::Limits;

struct ContentFixture {
    dir: tempfile::TempDir,
    content: ContentStore,
}

fn fixture() -> ContentFixture {
    fixture_with(Limits::default().wait_timeout)
}

fn fixture_with(wait_timeout: Duration) -> ContentFixture {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { blob_bytes: 1 << 20, wait_timeout, ..Limits::default() };
    let content = ContentStore::open(dir.path(), &dir.path().join("lock"), &limits).unwrap();
    ContentFixture { dir, content }
}

fn ingest(content: &ContentStore, digest: &Digest, size: u64) -> Ingest {
    match content.begin(digest, size).unwrap() {
        IngestStart::Ingest(ingest) => *ingest,
        IngestStart::Present => panic!("{digest} is there already"),
    }
}

#[test]
fn content_is_kept_once_and_read_back() {
    let fixture = fixture();
    let digest = fixture.content.put(b"hello").unwrap();
    assert_eq!(fixture.content.put(b"hello").unwrap(), digest);
    assert_eq!(fixture.content.list().unwrap(), [(digest, 5)]);
    assert_eq!(fixture.content.read_document(&digest, 100).unwrap(), b"hello");
    assert!(matches!(fixture.content.read_document(&digest, 4), Err(Error::Limit { .. })));
    assert!(matches!(fixture.content.begin(&digest, 5).unwrap(), IngestStart::Present));
    assert!(fixture.content.begin(&digest, 6).is_err(), "another size under the same digest");
}

#[test]
fn an_interrupted_ingest_resumes_at_its_offset() {
    let fixture = fixture();
    let digest = Digest::of(b"first second");
    let mut first = ingest(&fixture.content, &digest, 12);
    first.receive(b"first ").unwrap();
    assert!(matches!(first.commit(), Err(Error::Truncated { received: 6, expected: 12, .. })));
    assert_eq!(fixture.content.size(&digest).unwrap(), None);
    let mut second = ingest(&fixture.content, &digest, 12);
    assert_eq!(second.offset(), 6);
    second.receive(b"second").unwrap();
    assert_eq!(second.commit().unwrap(), (digest, 12));
    assert_eq!(fixture.content.size(&digest).unwrap(), Some(12));
}

#[test]
fn wrong_bytes_are_never_placed_and_not_resumed() {
    let fixture = fixture();
    let digest = Digest::of(b"right");
    let mut wrong = ingest(&fixture.content, &digest, 5);
    wrong.receive(b"wrong").unwrap();
    assert!(matches!(wrong.commit(), Err(Error::DigestMismatch { .. })));
    assert!(fixture.content.list().unwrap().is_empty());
    let mut again = ingest(&fixture.content, &digest, 5);
    assert_eq!(again.offset(), 0);
    assert!(matches!(again.receive(b"right and more"), Err(Error::TooLong { .. })));
    drop(again);
    assert_eq!(ingest(&fixture.content, &digest, 5).offset(), 0);
}

#[test]
fn limits_hold_with_and_without_an_announced_digest() {
    let fixture = fixture();
    assert!(matches!(fixture.content.begin(&Digest::of(b""), 2 << 20), Err(Error::Limit { .. })));
    let mut unannounced = fixture.content.begin_without_digest().unwrap();
    let chunk = vec![0; 1 << 20];
    unannounced.receive(&chunk).unwrap();
    assert!(matches!(unannounced.receive(b"x"), Err(Error::Limit { .. })));
    drop(unannounced);
    let left = fs::read_dir(fixture.dir.path().join("content/ingest")).unwrap().count();
    assert_eq!(left, 0, "what was given up stays");
}

#[test]
fn reading_a_damaged_blob_is_an_error() {
    let fixture = fixture();
    let digest = fixture.content.put(b"hello").unwrap();
    fs::write(fixture.content.path(&digest), b"hallo").unwrap();
    assert!(matches!(fixture.content.read_document(&digest, 100), Err(Error::Damaged { .. })));
}

#[test]
fn one_ingest_per_digest_at_a_time() {
    let fixture = fixture();
    let bytes = vec![7; 200_000];
    let digest = Digest::of(&bytes);
    let received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match fixture.content.begin(&digest, bytes.len() as u64).unwrap() {
                IngestStart::Present => {}
                IngestStart::Ingest(mut ingest) => {
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
    assert_eq!(fixture.content.list().unwrap(), [(digest, 200_000)]);
}

/// A hostile registry lists this content in its own image and delivers nothing of it.
#[test]
fn a_stalled_ingest_does_not_block_other_receivers() {
    let fixture = fixture_with(Duration::from_millis(50));
    let digest = Digest::of(b"popular");
    let mut hostile = ingest(&fixture.content, &digest, 7);
    hostile.receive(b"p").unwrap();
    let mut honest = ingest(&fixture.content, &digest, 7);
    assert_eq!(honest.offset(), 0);
    assert!(matches!(honest.receive(b"popular and more"), Err(Error::TooLong { .. })));
    // A discarded second ingest leaves no file beside the first.
    drop(ingest(&fixture.content, &digest, 7));
    let left = fs::read_dir(fixture.dir.path().join("content/ingest")).unwrap().count();
    assert_eq!(left, 1, "only what the first receives");
    let mut honest = ingest(&fixture.content, &digest, 7);
    honest.receive(b"popular").unwrap();
    assert_eq!(honest.commit().unwrap(), (digest, 7));
    assert_eq!(fixture.content.read_document(&digest, 100).unwrap(), b"popular");
    // The first one may still complete.
    hostile.receive(b"opular").unwrap();
    hostile.commit().unwrap();
    assert_eq!(fixture.content.list().unwrap(), [(digest, 7)]);
}

#[test]
fn a_progressing_ingest_is_waited_for_repeatedly() {
    let timeout = Duration::from_secs(1);
    let fixture = fixture_with(timeout);
    let bytes = [7; 30];
    let digest = Digest::of(&bytes);
    let mut first = ingest(&fixture.content, &digest, 30);
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| fixture.content.begin(&digest, 30).unwrap());
        for byte in bytes {
            std::thread::sleep(Duration::from_millis(50));
            first.receive(&[byte]).unwrap();
        }
        first.commit().unwrap();
        assert!(matches!(second.join().unwrap(), IngestStart::Present), "it was received twice");
    });
    assert!(begun.elapsed() > timeout);
}

#[test]
fn sweep_removes_abandoned_ingests_and_keeps_resumable_ones() {
    let fixture = fixture();
    let digest = Digest::of(b"resumable");
    let mut partial = ingest(&fixture.content, &digest, 9);
    partial.receive(b"resu").unwrap();
    drop(partial);
    let live = fixture.content.begin_without_digest().unwrap();
    let dead = fixture.dir.path().join("content/ingest/.unfinished-dead");
    fs::write(&dead, "x").unwrap();
    assert_eq!(fixture.content.sweep(Duration::from_secs(3600)).unwrap(), 1);
    assert!(!dead.exists() && live.path.exists());
    assert_eq!(ingest(&fixture.content, &digest, 9).offset(), 4);
    assert_eq!(fixture.content.sweep(Duration::ZERO).unwrap(), 1, "too old to be resumed");
}
