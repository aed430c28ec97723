//! Records are read back; incomplete, foreign and newer files are distinguished.

use super::*;

#[derive(Clone, PartialEq, prost::Message)]
struct TestRecord {
    #[prost(string, tag = "1")]
    text: String,
}

impl PersistentRecord for TestRecord {
    const KIND: &'static str = "note";
    const VERSION: u32 = 2;

    fn durability(&self) -> Durability {
        match self.text.as_str() {
            "one" => Durability::SurvivesKills,
            "two" => Durability::OldOrNew,
            _ => Durability::Synced,
        }
    }
}

fn record(text: &str) -> TestRecord {
    TestRecord { text: text.to_owned() }
}

#[test]
fn a_record_can_be_written_read_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let record_dir = RecordDir::open(&dir.path().join("notes")).unwrap();
    record_dir.put("a", &record("one")).unwrap();
    record_dir.put("a", &record("two")).unwrap();
    record_dir.put("b", &record("")).unwrap();
    let found = record_dir.all::<TestRecord>().unwrap();
    assert_eq!(found.records, [("a".to_owned(), record("two")), ("b".to_owned(), record(""))]);
    record_dir.remove("a").unwrap();
    record_dir.remove("a").unwrap();
    assert_eq!(record_dir.all::<TestRecord>().unwrap().records.len(), 1);
}

#[test]
fn leftovers_of_a_kill_are_removed_and_unreadable_records_are_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".unfinished-1"), b"half").unwrap();
    fs::write(dir.path().join("foreign"), b"{}").unwrap();
    fs::write(dir.path().join("empty"), b"").unwrap();
    fs::write(dir.path().join("torn"), b"keelson note 1\n\xff\xff").unwrap();
    fs::write(dir.path().join("old"), b"keelson note 1\n\x0a\x02hi").unwrap();
    let record_dir = RecordDir::open(dir.path()).unwrap();
    let found = record_dir.all::<TestRecord>().unwrap();
    assert_eq!(found.records, [("old".to_owned(), record("hi"))]);
    assert_eq!(found.unreadable.len(), 2, "{:?}", found.unreadable);
    assert!(dir.path().join(".spoiled-torn").exists());
    assert!(!dir.path().join(".spoiled-empty").exists(), "nothing in it to keep");
    assert!(!dir.path().join(".unfinished-1").exists());
    assert!(record_dir.all::<TestRecord>().unwrap().unreadable.is_empty(), "told once");
}

#[test]
fn a_record_of_a_newer_version_is_an_error_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("newer"), b"keelson note 3\n").unwrap();
    let record_dir = RecordDir::open(dir.path()).unwrap();
    let failure = record_dir.all::<TestRecord>().unwrap_err();
    assert!(failure.text.contains("version 3"), "{failure}");
    assert!(dir.path().join("newer").exists());
}

#[test]
fn a_tree_of_any_depth_is_removed_and_a_file_is_not() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    // In memory: on a busy disk so many directories take a minute.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(&tree, flags, Mode::empty()).unwrap();
    for _ in 0..20_000 {
        mkdirat(&here, "d", Mode::from_raw_mode(0o700)).unwrap();
        here = openat(&here, "d", flags, Mode::empty()).unwrap();
    }
    drop(here);
    remove_tree(&tree).unwrap();
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
    fs::write(&tree, "").unwrap();
    assert!(remove_tree(&tree).is_err() && tree.exists());
}
