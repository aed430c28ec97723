//! Atomic replacement, exclusive renames, and locks.

use std::fs;

use super::{Lock, Trash, is_unlocked, names_in, remove_tree, rename_new, write_durably};
use crate::testing::{deep_tree, in_private_mount_namespace, quick_dir};

#[test]
fn a_written_file_is_whole_and_leaves_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write_durably(&path, b"one").unwrap();
    write_durably(&path, b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(names_in(dir.path()).unwrap(), ["file"]);
}

#[test]
fn rename_new_refuses_an_existing_name() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, place] = ["one", "two", "place"].map(|name| dir.path().join(name));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    assert!(rename_new(&one, &place).unwrap());
    assert!(!rename_new(&two, &place).unwrap());
    assert!(two.is_dir());
}

#[test]
fn a_held_lock_is_seen_also_within_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let held = Lock::exclusive(&path).unwrap();
    assert!(!is_unlocked(&path).unwrap());
    drop(held);
    assert!(is_unlocked(&path).unwrap());
    assert!(!is_unlocked(&dir.path().join("missing")).unwrap());
}

#[test]
fn trash_takes_files_dirs_and_links_without_following_them() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "x").unwrap();
    let trash = Trash(dir.path().join("trash"));
    fs::create_dir(&trash.0).unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    std::os::unix::fs::symlink(&kept, tree.join("deep/link")).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    for path in [&tree, &link, &dir.path().join("missing")] {
        trash.take(path).unwrap();
    }
    trash.empty().unwrap();
    assert!(names_in(&trash.0).unwrap().is_empty());
    assert_eq!(fs::read(kept.join("file")).unwrap(), b"x");
}

#[test]
fn a_tree_deeper_than_path_max_is_removed() {
    let dir = quick_dir();
    deep_tree(dir.path(), 20_000);
    remove_tree(&dir.path().join("deep")).unwrap();
    assert!(names_in(dir.path()).unwrap().is_empty());
    remove_tree(&dir.path().join("missing/too")).unwrap();
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else_in_the_trash() {
    if !in_private_mount_namespace(
        "durable::tests::what_cannot_be_removed_keeps_nothing_else_in_the_trash",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trash = Trash(dir.path().to_owned());
    for name in ["a", "b/held", "c"] {
        fs::create_dir_all(trash.0.join(name)).unwrap();
    }
    // A removal does not cross a mount.
    let held = trash.0.join("b/held");
    rustix::mount::mount_bind(&held, &held).unwrap();
    trash.empty().unwrap();
    assert_eq!(names_in(&trash.0).unwrap(), ["b"]);
    rustix::mount::unmount(&held, rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
    trash.empty().unwrap();
    assert!(names_in(&trash.0).unwrap().is_empty());
}
