//! Records on a real disk, and damage to it between runs.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use ports::pod_host::HostError;

use super::*;

fn bed() -> (tempfile::TempDir, HostRecords) {
    let bed = tempfile::tempdir().unwrap();
    let records = HostRecords::new(&bed.path().join("kubelet"));
    (bed, records)
}

#[tokio::test]
async fn what_is_saved_is_loaded_by_the_next_agent() {
    let (bed, records) = bed();
    assert_eq!(records.load("pods").await.unwrap(), LoadedRecords::default());
    records.save("pods", "b", b"2".to_vec()).await.unwrap();
    records.save("pods", "a", b"1".to_vec()).await.unwrap();
    records.save("pods", "a", b"3".to_vec()).await.unwrap();
    records.save("other", "c", Vec::new()).await.unwrap();
    let again = HostRecords::new(&bed.path().join("kubelet"));
    let loaded = again.load("pods").await.unwrap();
    let wanted = [("a", "3"), ("b", "2")]
        .map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec()));
    assert_eq!((loaded.records.as_slice(), loaded.unreadable.len()), (&wanted[..], 0));
    again.remove("pods", "a").await.unwrap();
    again.remove("pods", "a").await.unwrap();
    again.remove("none", "a").await.unwrap();
    assert_eq!(records.load("pods").await.unwrap().records.len(), 1);
    let file = bed.path().join("kubelet/keelson/pods/b");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn what_a_cut_off_write_left_is_not_a_record() {
    let (bed, records) = bed();
    records.save("pods", "a", b"1".to_vec()).await.unwrap();
    let folder = bed.path().join("kubelet/keelson/pods");
    std::fs::write(folder.join(".writing-77-0"), "hal").unwrap();
    let loaded = records.load("pods").await.unwrap();
    assert_eq!((loaded.records.len(), loaded.unreadable.len()), (1, 0));
    assert!(!folder.join(".writing-77-0").exists());
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_left() {
    let (bed, records) = bed();
    records.save("pods", "a", b"1".to_vec()).await.unwrap();
    let folder = bed.path().join("kubelet/keelson/pods");
    symlink("/etc/passwd", folder.join("link")).unwrap();
    std::fs::create_dir(folder.join("folder")).unwrap();
    std::fs::write(folder.join(".odd"), "").unwrap();
    std::fs::File::create(folder.join("huge")).unwrap().set_len(1 << 40).unwrap();
    let loaded = records.load("pods").await.unwrap();
    assert_eq!(loaded.records.len(), 1);
    assert_eq!(loaded.unreadable.len(), 4, "{:?}", loaded.unreadable);
    assert!(folder.join("link").exists() && folder.join("huge").exists());
}

#[tokio::test]
async fn names_stay_in_their_folder() {
    let (_bed, records) = bed();
    for bad in ["", "..", ".", "a/b", "../../x", ".hidden"] {
        let refused = records.save("pods", bad, Vec::new()).await;
        assert!(matches!(refused, Err(HostError::Lasting(_))), "{bad}: {refused:?}");
    }
    assert!(records.save("../x", "a", Vec::new()).await.is_err());
    assert!(records.load("..").await.is_err());
    assert!(records.save("pods", "a", vec![0; LONGEST_RECORD]).await.is_err());
}

#[tokio::test]
async fn the_longest_manifest_outlives_the_agent() {
    let (_bed, records) = bed();
    // Only newlines, which JSON escapes.
    let content = format!("{{\"manifest\":\"{}\"}}", r"\n".repeat((10 << 20) - 1)).into_bytes();
    records.save("manifests", "a", content.clone()).await.unwrap();
    let loaded = records.load("manifests").await.unwrap();
    assert_eq!(loaded.unreadable, Vec::<String>::new());
    assert!(loaded.records == [("a".to_owned(), content)]);
}
