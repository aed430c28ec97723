//! A disk that cannot be written for a while: the directory of records is missing.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::records::SandboxStage;

/// An upper limit even for a slow machine.
const LIMIT: Duration = Duration::from_secs(60);

struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> (Self, Book) {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::open(folder.path()).unwrap();
        (Self { folder }, book)
    }

    fn paths(&self, kind: &str) -> (PathBuf, PathBuf) {
        (self.folder.path().join(kind), self.folder.path().join(format!("{kind}-aside")))
    }

    fn refuses(&self, kind: &str) {
        let (shelf, aside) = self.paths(kind);
        fs::rename(shelf, aside).unwrap();
    }

    fn has_room(&self, kind: &str) {
        let (shelf, aside) = self.paths(kind);
        fs::rename(aside, shelf).unwrap();
    }

    fn reopened(&self) -> Book {
        Book::open(self.folder.path()).unwrap()
    }
}

async fn container(book: &Book, stage: ContainerStage, started_at: i64) -> Arc<Container> {
    let mut record = ContainerRecord {
        id: "c".into(),
        sandbox_id: "s".into(),
        started_at,
        ..Default::default()
    };
    record.set_stage(stage);
    book.add_container(record).await.unwrap()
}

fn ended(code: i32) -> impl FnOnce(&mut ContainerRecord) -> bool {
    move |record| {
        record.set_stage(ContainerStage::Exited);
        record.exit_code = code;
        true
    }
}

#[tokio::test]
async fn an_end_is_seen_at_once_and_written_when_there_is_room() {
    let (disk, book) = Disk::new();
    let container = container(&book, ContainerStage::Started, 5).await;
    disk.refuses("containers");
    let changed = book.change_container(&container, ended(7)).await.unwrap();
    assert_eq!(changed.unwrap().exit_code, 7);
    assert!(container.is_unwritten() && *container.ended().borrow());
    assert_eq!(container.record().exit_code, 7);
    disk.has_room("containers");
    tokio::time::timeout(LIMIT, container.written()).await.expect("written");
    assert_eq!(disk.reopened().container("c").unwrap().record(), container.record());
}

#[tokio::test]
async fn what_is_to_happen_waits_for_the_disk() {
    let (disk, book) = Disk::new();
    let container = container(&book, ContainerStage::Created, 0).await;
    disk.refuses("containers");
    let starts = |record: &mut ContainerRecord| {
        record.set_stage(ContainerStage::Started);
        true
    };
    assert!(book.change_container(&container, starts).await.is_err());
    assert_eq!(container.record().stage(), ContainerStage::Created, "it is not started");
    assert!(!container.is_unwritten());
}

#[tokio::test]
async fn what_is_removed_is_not_written_again() {
    let (disk, book) = Disk::new();
    let container = container(&book, ContainerStage::Started, 5).await;
    disk.refuses("containers");
    book.change_container(&container, ended(7)).await.unwrap();
    disk.has_room("containers");
    book.remove_container("c").await.unwrap();
    assert!(!container.is_unwritten());
    // A retry would have happened by then.
    tokio::time::sleep(FIRST_PAUSE * 2).await;
    assert!(disk.reopened().container("c").is_err());
}

/// A container is created while its pod is removed.
#[tokio::test]
async fn what_was_removed_cannot_be_changed_any_more() {
    let (disk, book) = Disk::new();
    let removed = container(&book, ContainerStage::Making, 0).await;
    book.remove_container("c").await.unwrap();
    let failure = book.change_container(&removed, ended(7)).await.unwrap_err();
    assert_eq!(failure.code, tonic::Code::NotFound, "{failure}");
    assert!(disk.reopened().container("c").is_err(), "its record is back");
    // Nor is another container with its name changed.
    let other = container(&book, ContainerStage::Created, 0).await;
    assert!(book.change_container(&removed, ended(7)).await.is_err());
    assert_eq!(other.record().stage(), ContainerStage::Created);
}

#[tokio::test]
async fn a_stop_is_seen_at_once_and_readiness_is_not() {
    let (disk, book) = Disk::new();
    let record = SandboxRecord { id: "s".into(), ..Default::default() };
    let sandbox = book.add_sandbox(record).await.unwrap();
    disk.refuses("sandboxes");
    let becomes = |stage| move |record: &mut SandboxRecord| record.set_stage(stage);
    assert!(book.change_sandbox(&sandbox, becomes(SandboxStage::Ready)).await.is_err());
    assert_eq!(sandbox.record().stage(), SandboxStage::Making);
    book.change_sandbox(&sandbox, becomes(SandboxStage::Stopped)).await.unwrap();
    assert_eq!(sandbox.record().stage(), SandboxStage::Stopped);
    disk.has_room("sandboxes");
    let written = sandbox.unwritten.subscribe().wait_for(|unwritten| !unwritten).await.is_ok();
    assert!(written);
    assert_eq!(disk.reopened().sandbox("s").unwrap().record(), sandbox.record());
}
