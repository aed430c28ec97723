//! Records are read back; incomplete, foreign and newer files are distinguished.

use super::*;

#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    text: String,
}

impl Kept for Note {
    const KIND: &'static str = "note";
    const VERSION: u32 = 2;

    fn lasting(&self) -> Lasting {
        match self.text.as_str() {
            "one" => Lasting::ThroughKills,
            "two" => Lasting::Whole,
            _ => Lasting::Certain,
        }
    }
}

fn note(text: &str) -> Note {
    Note { text: text.to_owned() }
}

#[test]
fn a_record_comes_back_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(&folder.path().join("notes")).unwrap();
    shelf.put("a", &note("one")).unwrap();
    shelf.put("a", &note("two")).unwrap();
    shelf.put("b", &note("")).unwrap();
    let found = shelf.all::<Note>().unwrap();
    assert_eq!(found.records, [("a".to_owned(), note("two")), ("b".to_owned(), note(""))]);
    shelf.take_away("a").unwrap();
    shelf.take_away("a").unwrap();
    assert_eq!(shelf.all::<Note>().unwrap().records.len(), 1);
}

#[test]
fn what_a_kill_leaves_is_swept_and_what_does_not_read_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".unfinished-1"), b"half").unwrap();
    fs::write(folder.path().join("foreign"), b"{}").unwrap();
    fs::write(folder.path().join("empty"), b"").unwrap();
    fs::write(folder.path().join("torn"), b"keelson note 1\n\xff\xff").unwrap();
    fs::write(folder.path().join("old"), b"keelson note 1\n\x0a\x02hi").unwrap();
    let shelf = Shelf::open(folder.path()).unwrap();
    let found = shelf.all::<Note>().unwrap();
    assert_eq!(found.records, [("old".to_owned(), note("hi"))]);
    assert_eq!(found.spoiled.len(), 2, "{:?}", found.spoiled);
    assert!(folder.path().join(".spoiled-torn").exists());
    assert!(!folder.path().join(".spoiled-empty").exists(), "nothing in it to keep");
    assert!(!folder.path().join(".unfinished-1").exists());
    assert!(shelf.all::<Note>().unwrap().spoiled.is_empty(), "told once");
}

#[test]
fn a_newer_version_stops_everything_before_anything_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("newer"), b"keelson note 3\n").unwrap();
    let shelf = Shelf::open(folder.path()).unwrap();
    let failure = shelf.all::<Note>().unwrap_err();
    assert!(failure.text.contains("version 3"), "{failure}");
    assert!(folder.path().join("newer").exists());
}

#[test]
fn a_tree_of_any_depth_goes_and_what_is_no_folder_stays() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    // In memory: on a busy disk so many directories take a minute.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let tree = folder.path().join("tree");
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
