//! Records on a real disk, and damage to it between runs.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use ports::pod_host::HostError;

use super::*;

fn fixture() -> (tempfile::TempDir, HostRecords) {
    let fixture = tempfile::tempdir().unwrap();
    let records = HostRecords::new(&fixture.path().join("kubelet"));
    (fixture, records)
}

#[tokio::test]
async fn saved_records_are_loaded_after_a_restart() {
    let (fixture, records) = fixture();
    assert_eq!(records.load("pods").await.unwrap(), LoadedRecords::default());
    records.save("pods", "b", b"2".to_vec()).await.unwrap();
    records.save("pods", "a", b"1".to_vec()).await.unwrap();
    records.save("pods", "a", b"3".to_vec()).await.unwrap();
    records.save("other", "c", Vec::new()).await.unwrap();
    let again = HostRecords::new(&fixture.path().join("kubelet"));
    let loaded = again.load("pods").await.unwrap();
    let wanted = [("a", "3"), ("b", "2")]
        .map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec()));
    assert_eq!((loaded.records.as_slice(), loaded.unreadable.len()), (&wanted[..], 0));
    again.remove("pods", "a").await.unwrap();
    again.remove("pods", "a").await.unwrap();
    again.remove("none", "a").await.unwrap();
    assert_eq!(records.load("pods").await.unwrap().records.len(), 1);
    let file = fixture.path().join("kubelet/keelson/pods/b");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn a_leftover_temporary_file_is_not_a_record() {
    let (fixture, records) = fixture();
    records.save("pods", "a", b"1".to_vec()).await.unwrap();
    let dir = fixture.path().join("kubelet/keelson/pods");
    std::fs::write(dir.join(".writing-77-0"), "hal").unwrap();
    let loaded = records.load("pods").await.unwrap();
    assert_eq!((loaded.records.len(), loaded.unreadable.len()), (1, 0));
    assert!(!dir.join(".writing-77-0").exists());
}

#[tokio::test]
async fn an_unreadable_record_is_reported_and_kept() {
    let (fixture, records) = fixture();
    records.save("pods", "a", b"1".to_vec()).await.unwrap();
    let dir = fixture.path().join("kubelet/keelson/pods");
    symlink("/etc/passwd", dir.join("link")).unwrap();
    std::fs::create_dir(dir.join("folder")).unwrap();
    std::fs::write(dir.join(".odd"), "").unwrap();
    std::fs::File::create(dir.join("huge")).unwrap().set_len(1 << 40).unwrap();
    let loaded = records.load("pods").await.unwrap();
    assert_eq!(loaded.records.len(), 1);
    assert_eq!(loaded.unreadable.len(), 4, "{:?}", loaded.unreadable);
    assert!(dir.join("link").exists() && dir.join("huge").exists());
}

#[tokio::test]
async fn record_names_cannot_leave_their_dir() {
    let (_fixture, records) = fixture();
    for bad in ["", "..", ".", "a/b", "../../x", ".hidden"] {
        let refused = records.save("pods", bad, Vec::new()).await;
        assert!(matches!(refused, Err(HostError::Permanent(_))), "{bad}: {refused:?}");
    }
    assert!(records.save("../x", "a", Vec::new()).await.is_err());
    assert!(records.load("..").await.is_err());
    assert!(records.save("pods", "a", vec![0; MAX_RECORD_BYTES]).await.is_err());
}

#[tokio::test]
async fn the_largest_manifest_can_be_saved_and_loaded() {
    let (_fixture, records) = fixture();
    // Only newlines, which JSON escapes.
    let content = format!("{{\"manifest\":\"{}\"}}", r"\n".repeat((10 << 20) - 1)).into_bytes();
    records.save("manifests", "a", content.clone()).await.unwrap();
    let loaded = records.load("manifests").await.unwrap();
    assert_eq!(loaded.unreadable, Vec::<String>::new());
    assert!(loaded.records == [("a".to_owned(), content)]);
}
