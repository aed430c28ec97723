//! A real directory and what people and programs do to it.

use std::io::Write as _;
use std::os::unix::fs::symlink;

use ports::pod_sources::{ManifestContent, ManifestFile};

use super::*;

/// The periodic read never helps in these tests: every change was noticed by a watch.
const NEVER: Duration = Duration::from_secs(3600);

fn files(snapshot: SourceSnapshot) -> Vec<(String, String)> {
    let SourceSnapshot::All(files) = snapshot else { panic!("{snapshot:?}") };
    files.into_iter().map(shown).collect()
}

fn shown(file: ManifestFile) -> (String, String) {
    let name = file.name.rsplit('/').next().unwrap_or_default().to_owned();
    let content = match file.content {
        ManifestContent::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        ManifestContent::Unreadable(reason) => format!("! {reason}"),
    };
    (name, content)
}

async fn next(source: &mut FileSource) -> Vec<(String, String)> {
    let sender = tokio::time::timeout(Duration::from_secs(10), source.next()).await;
    files(sender.expect("the change was not heard of"))
}

async fn expect_no_snapshot(source: &mut FileSource) {
    let sender = tokio::time::timeout(Duration::from_millis(300), source.next()).await;
    assert!(sender.is_err(), "{sender:?}");
}

fn pair(name: &str, content: &str) -> (String, String) {
    (name.to_owned(), content.to_owned())
}

#[tokio::test]
async fn a_dir_is_reported_at_start_and_after_every_change() {
    let temp_dir = tempfile::tempdir().unwrap();
    let path = |name: &str| temp_dir.path().join(name);
    std::fs::write(path("a"), "1").unwrap();
    let mut source = FileSource::new(temp_dir.path(), NEVER);
    assert_eq!(next(&mut source).await, [pair("a", "1")]);
    expect_no_snapshot(&mut source).await;
    std::fs::write(path("b"), "2").unwrap();
    assert_eq!(next(&mut source).await, [pair("a", "1"), pair("b", "2")]);
    std::fs::rename(path("b"), path("c")).unwrap();
    assert_eq!(next(&mut source).await, [pair("a", "1"), pair("c", "2")]);
    std::fs::write(path(".a.swp"), "x").unwrap();
    std::fs::write(path("c"), "2").unwrap();
    expect_no_snapshot(&mut source).await;
    std::fs::remove_file(path("a")).unwrap();
    assert_eq!(next(&mut source).await, [pair("c", "2")]);
    std::fs::hard_link(path("c"), path("d")).unwrap();
    assert_eq!(next(&mut source).await, [pair("c", "2"), pair("d", "2")]);
}

#[tokio::test]
async fn a_file_is_not_read_half_written() {
    let temp_dir = tempfile::tempdir().unwrap();
    let mut source = FileSource::new(temp_dir.path(), NEVER);
    assert!(next(&mut source).await.is_empty());
    let mut file = std::fs::File::create(temp_dir.path().join("slow")).unwrap();
    file.write_all(b"one ").unwrap();
    let written = tokio::time::timeout(Duration::from_millis(150), source.next()).await;
    assert!(written.is_err(), "told while it was being written: {written:?}");
    // Another file that is complete waits for the first, but not for ever.
    std::fs::write(temp_dir.path().join("quick"), "x").unwrap();
    file.write_all(b"two").unwrap();
    drop(file);
    assert_eq!(next(&mut source).await, [pair("quick", "x"), pair("slow", "one two")]);
}

#[tokio::test]
async fn an_endless_writer_is_not_waited_for() {
    let temp_dir = tempfile::tempdir().unwrap();
    let mut source = FileSource::new(temp_dir.path(), NEVER);
    assert!(next(&mut source).await.is_empty());
    let mut file = std::fs::File::create(temp_dir.path().join("open")).unwrap();
    file.write_all(b"half").unwrap();
    std::fs::write(temp_dir.path().join("whole"), "x").unwrap();
    assert_eq!(next(&mut source).await, [pair("open", "half"), pair("whole", "x")]);
}

#[tokio::test]
async fn a_path_may_appear_later_and_disappear() {
    let temp_dir = tempfile::tempdir().unwrap();
    let path = temp_dir.path().join("etc/kubernetes/manifests");
    let mut source = FileSource::new(&path, NEVER);
    assert!(next(&mut source).await.is_empty());
    std::fs::create_dir(temp_dir.path().join("etc")).unwrap();
    expect_no_snapshot(&mut source).await;
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("a"), "1").unwrap();
    assert_eq!(next(&mut source).await, [pair("a", "1")]);
    std::fs::remove_dir_all(temp_dir.path().join("etc")).unwrap();
    assert!(next(&mut source).await.is_empty());
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("b"), "2").unwrap();
    assert_eq!(next(&mut source).await, [pair("b", "2")]);
    std::fs::rename(&path, temp_dir.path().join("etc/other")).unwrap();
    assert!(next(&mut source).await.is_empty());
    std::fs::rename(temp_dir.path().join("etc/other"), &path).unwrap();
    assert_eq!(next(&mut source).await, [pair("b", "2")]);
}

#[tokio::test]
async fn a_single_manifest_file_may_be_replaced() {
    let temp_dir = tempfile::tempdir().unwrap();
    let path = temp_dir.path().join("pod.yaml");
    let mut source = FileSource::new(&path, NEVER);
    assert!(next(&mut source).await.is_empty());
    std::fs::write(&path, "1").unwrap();
    assert_eq!(next(&mut source).await, [pair("pod.yaml", "1")]);
    std::fs::write(temp_dir.path().join("new"), "2").unwrap();
    std::fs::rename(temp_dir.path().join("new"), &path).unwrap();
    assert_eq!(next(&mut source).await, [pair("pod.yaml", "2")]);
    std::fs::remove_file(&path).unwrap();
    assert!(next(&mut source).await.is_empty());
}

#[tokio::test]
async fn a_version_swapped_behind_symlinks_is_reported() {
    let temp_dir = tempfile::tempdir().unwrap();
    let path = |name: &str| temp_dir.path().join(name);
    for version in ["..1", "..2"] {
        std::fs::create_dir(path(version)).unwrap();
        std::fs::write(path(version).join("pod"), version).unwrap();
    }
    symlink("..1", path("..data")).unwrap();
    symlink("..data/pod", path("pod")).unwrap();
    let mut source = FileSource::new(temp_dir.path(), NEVER);
    assert_eq!(next(&mut source).await, [pair("pod", "..1")]);
    symlink("..2", path("..new")).unwrap();
    std::fs::rename(path("..new"), path("..data")).unwrap();
    assert_eq!(next(&mut source).await, [pair("pod", "..2")]);
    // The target of a link outside the directory is watched too.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("x"), "1").unwrap();
    symlink(elsewhere.path().join("x"), path("far")).unwrap();
    assert_eq!(next(&mut source).await, [pair("far", "1"), pair("pod", "..2")]);
    std::fs::write(elsewhere.path().join("x"), "2").unwrap();
    assert_eq!(next(&mut source).await, [pair("far", "2"), pair("pod", "..2")]);
}

#[tokio::test]
async fn a_missed_change_is_found_by_the_periodic_scan() {
    let temp_dir = tempfile::tempdir().unwrap();
    let mut source = FileSource::new(temp_dir.path(), Duration::from_millis(50));
    source.watches = None;
    assert!(next(&mut source).await.is_empty());
    std::fs::write(temp_dir.path().join("a"), "1").unwrap();
    assert_eq!(next(&mut source).await, [pair("a", "1")]);
}

#[tokio::test]
async fn a_cancelled_wait_loses_no_change() {
    let temp_dir = tempfile::tempdir().unwrap();
    let mut source = FileSource::new(temp_dir.path(), NEVER);
    for number in 0..20 {
        std::fs::write(temp_dir.path().join("a"), number.to_string()).unwrap();
        // Cancelled at any point.
        let pause = Duration::from_micros(200 * number);
        let _cancelled = tokio::time::timeout(pause, source.next()).await;
    }
    std::fs::write(temp_dir.path().join("a"), "last").unwrap();
    let mut seen = next(&mut source).await;
    while seen != [pair("a", "last")] {
        seen = next(&mut source).await;
    }
}

#[tokio::test]
async fn a_burst_of_changes_ends_with_the_final_content() {
    let temp_dir = tempfile::tempdir().unwrap();
    let mut source = FileSource::new(temp_dir.path(), NEVER);
    assert!(next(&mut source).await.is_empty());
    for round in 0..40 {
        for name in 0..25 {
            std::fs::write(temp_dir.path().join(format!("f{name:02}")), round.to_string()).unwrap();
        }
    }
    let mut seen = next(&mut source).await;
    while seen.len() < 25 || seen.iter().any(|(_, content)| content != "39") {
        seen = next(&mut source).await;
    }
}

#[tokio::test]
async fn scans_without_changes_call_the_hook() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, mut scans) = tokio::sync::mpsc::unbounded_channel();
    let mut source = FileSource::new(dir.path(), Duration::from_millis(20))
        .on_unchanged(move || sender.send(()).expect("somebody listens"));
    assert_eq!(next(&mut source).await, []);
    assert!(scans.try_recv().is_err(), "the first look had news");
    tokio::select! {
        snapshot = source.next() => panic!("nothing changed: {snapshot:?}"),
        look = scans.recv() => assert_eq!(look, Some(())),
    }
}
