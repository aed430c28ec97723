//! Atomic replacement, exclusive renames, and locks.

use std::fs;

use super::{Lock, Trash, abandoned, names_in, remove_tree, rename_new, write_whole};
use crate::testing::{deep_tree, in_own_mounts, quick_folder};

#[test]
fn a_written_file_is_whole_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write_whole(&path, b"one").unwrap();
    write_whole(&path, b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(names_in(folder.path()).unwrap(), ["file"]);
}

#[test]
fn a_name_is_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two, place] = ["one", "two", "place"].map(|name| folder.path().join(name));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    assert!(rename_new(&one, &place).unwrap());
    assert!(!rename_new(&two, &place).unwrap());
    assert!(two.is_dir());
}

#[test]
fn a_held_lock_is_seen_also_within_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let held = Lock::exclusive(&path).unwrap();
    assert!(!abandoned(&path).unwrap());
    drop(held);
    assert!(abandoned(&path).unwrap());
    assert!(!abandoned(&folder.path().join("missing")).unwrap());
}

#[test]
fn trash_takes_files_folders_and_links_without_following_them() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "x").unwrap();
    let trash = Trash(folder.path().join("trash"));
    fs::create_dir(&trash.0).unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    std::os::unix::fs::symlink(&kept, tree.join("deep/link")).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    for path in [&tree, &link, &folder.path().join("missing")] {
        trash.take(path).unwrap();
    }
    trash.empty().unwrap();
    assert!(names_in(&trash.0).unwrap().is_empty());
    assert_eq!(fs::read(kept.join("file")).unwrap(), b"x");
}

#[test]
fn a_tree_beyond_every_path_goes() {
    let folder = quick_folder();
    deep_tree(folder.path(), 20_000);
    remove_tree(&folder.path().join("deep")).unwrap();
    assert!(names_in(folder.path()).unwrap().is_empty());
    remove_tree(&folder.path().join("missing/too")).unwrap();
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else_in_the_trash() {
    if !in_own_mounts("durable::tests::what_cannot_be_removed_keeps_nothing_else_in_the_trash") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trash = Trash(folder.path().to_owned());
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
