//! A disk that cannot be written for a while: the directory of records is missing.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::records::SandboxStage;

/// An upper limit even for a slow machine.
const LIMIT: Duration = Duration::from_secs(60);

struct TestDisk {
    dir: tempfile::TempDir,
}

impl TestDisk {
    fn new() -> (Self, RecordStore) {
        let dir = tempfile::tempdir().unwrap();
        let record_store = RecordStore::open(dir.path()).unwrap();
        (Self { dir }, record_store)
    }

    fn paths(&self, kind: &str) -> (PathBuf, PathBuf) {
        (self.dir.path().join(kind), self.dir.path().join(format!("{kind}-aside")))
    }

    fn refuses(&self, kind: &str) {
        let (record_dir, aside) = self.paths(kind);
        fs::rename(record_dir, aside).unwrap();
    }

    fn has_room(&self, kind: &str) {
        let (record_dir, aside) = self.paths(kind);
        fs::rename(aside, record_dir).unwrap();
    }

    fn reopened(&self) -> RecordStore {
        RecordStore::open(self.dir.path()).unwrap()
    }
}

async fn container(
    record_store: &RecordStore,
    stage: ContainerStage,
    started_at: i64,
) -> Arc<Container> {
    let mut record = StoredContainer {
        id: "c".into(),
        sandbox_id: "s".into(),
        started_at,
        ..Default::default()
    };
    record.set_stage(stage);
    record_store.add_container(record).await.unwrap()
}

fn ended(code: i32) -> impl FnOnce(&mut StoredContainer) -> bool {
    move |record| {
        record.set_stage(ContainerStage::Exited);
        record.exit_code = code;
        true
    }
}

#[tokio::test]
async fn an_exit_is_visible_at_once_and_written_when_the_disk_has_room() {
    let (disk, record_store) = TestDisk::new();
    let container = container(&record_store, ContainerStage::Started, 5).await;
    disk.refuses("containers");
    let changed = record_store.change_container(&container, ended(7)).await.unwrap();
    assert_eq!(changed.unwrap().exit_code, 7);
    assert!(container.is_unwritten() && *container.ended().borrow());
    assert_eq!(container.record().exit_code, 7);
    disk.has_room("containers");
    tokio::time::timeout(LIMIT, container.written()).await.expect("written");
    assert_eq!(disk.reopened().container("c").unwrap().record(), container.record());
}

#[tokio::test]
async fn a_planned_change_waits_for_the_disk() {
    let (disk, record_store) = TestDisk::new();
    let container = container(&record_store, ContainerStage::Created, 0).await;
    disk.refuses("containers");
    let starts = |record: &mut StoredContainer| {
        record.set_stage(ContainerStage::Started);
        true
    };
    assert!(record_store.change_container(&container, starts).await.is_err());
    assert_eq!(container.record().stage(), ContainerStage::Created, "it is not started");
    assert!(!container.is_unwritten());
}

#[tokio::test]
async fn a_removed_record_is_not_written_again() {
    let (disk, record_store) = TestDisk::new();
    let container = container(&record_store, ContainerStage::Started, 5).await;
    disk.refuses("containers");
    record_store.change_container(&container, ended(7)).await.unwrap();
    disk.has_room("containers");
    record_store.remove_container("c").await.unwrap();
    assert!(!container.is_unwritten());
    // A retry would have happened by then.
    tokio::time::sleep(FIRST_PAUSE * 2).await;
    assert!(disk.reopened().container("c").is_err());
}

/// A container is created while its pod is removed.
#[tokio::test]
async fn a_removed_record_cannot_be_changed() {
    let (disk, record_store) = TestDisk::new();
    let removed = container(&record_store, ContainerStage::Creating, 0).await;
    record_store.remove_container("c").await.unwrap();
    let failure = record_store.change_container(&removed, ended(7)).await.unwrap_err();
    assert_eq!(failure.code, tonic::Code::NotFound, "{failure}");
    assert!(disk.reopened().container("c").is_err(), "its record is back");
    // Nor is another container with its name changed.
    let other = container(&record_store, ContainerStage::Created, 0).await;
    assert!(record_store.change_container(&removed, ended(7)).await.is_err());
    assert_eq!(other.record().stage(), ContainerStage::Created);
}

#[tokio::test]
async fn a_stop_is_visible_before_it_is_written_and_readiness_is_not() {
    let (disk, record_store) = TestDisk::new();
    let record = StoredSandbox { id: "s".into(), ..Default::default() };
    let sandbox = record_store.add_sandbox(record).await.unwrap();
    disk.refuses("sandboxes");
    let becomes = |stage| move |record: &mut StoredSandbox| record.set_stage(stage);
    assert!(record_store.change_sandbox(&sandbox, becomes(SandboxStage::Ready)).await.is_err());
    assert_eq!(sandbox.record().stage(), SandboxStage::Creating);
    record_store.change_sandbox(&sandbox, becomes(SandboxStage::Stopped)).await.unwrap();
    assert_eq!(sandbox.record().stage(), SandboxStage::Stopped);
    disk.has_room("sandboxes");
    let written = sandbox.unwritten.subscribe().wait_for(|unwritten| !unwritten).await.is_ok();
    assert!(written);
    assert_eq!(disk.reopened().sandbox("s").unwrap().record(), sandbox.record());
}
