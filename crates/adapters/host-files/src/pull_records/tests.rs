//! Upstream's names and directories, on a real disk.

use super::*;
use std::os::unix::fs::PermissionsExt as _;

#[tokio::test]
async fn pull_records_have_the_reference_kubelets_paths() {
    let fixture = tempfile::tempdir().unwrap();
    let records = HostPullRecords::new(fixture.path());
    let (intent, pulled) = (PullRecordKind::Intent, PullRecordKind::Pulled);
    assert_eq!(records.read(intent, "busybox").await.unwrap(), None);
    assert_eq!(records.all(pulled).await.unwrap(), LoadedRecords::default());
    records.save(intent, "busybox", b"1".to_vec()).await.unwrap();
    records.save(pulled, "sha256:0", b"2".to_vec()).await.unwrap();
    // As `printf busybox | sha256sum` prints it.
    let name = "sha256-9d75f0d7c398df565d7ac04c6819b62d6d8f9560f5eb4672596ecd8f7e96ae91";
    let file = fixture.path().join("image_manager/pulling").join(name);
    assert_eq!(std::fs::read(&file).unwrap(), b"1");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let dir = std::fs::metadata(fixture.path().join("image_manager/pulling")).unwrap();
    assert_eq!(dir.permissions().mode() & 0o7777, 0o700);
    assert_eq!(records.read(intent, "busybox").await.unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(records.read(pulled, "busybox").await.unwrap(), None);
    records.remove(intent, "busybox").await.unwrap();
    records.remove(intent, "busybox").await.unwrap();
    assert!(!file.exists());
    assert_eq!(records.all(pulled).await.unwrap().records.len(), 1);
}

#[tokio::test]
async fn foreign_files_are_ignored() {
    let fixture = tempfile::tempdir().unwrap();
    let records = HostPullRecords::new(fixture.path());
    records.save(PullRecordKind::Intent, "a", b"1".to_vec()).await.unwrap();
    let dir = fixture.path().join("image_manager/pulling");
    for name in ["notes", "sha256-00.tmp"] {
        std::fs::write(dir.join(name), "x").unwrap();
    }
    assert_eq!(records.all(PullRecordKind::Intent).await.unwrap().records.len(), 1);
}
