//! Which inodes are counted, and that the depth of a tree does not matter.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::testing::{deep_tree, quick_dir};

#[test]
fn each_inode_counts_once_and_symlinks_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("tree/a/b")).unwrap();
    fs::create_dir(path("elsewhere")).unwrap();
    fs::write(path("elsewhere/file"), vec![7; 100_000]).unwrap();
    fs::write(path("tree/a/file"), vec![7; 10_000]).unwrap();
    fs::hard_link(path("tree/a/file"), path("tree/a/b/again")).unwrap();
    std::os::unix::fs::symlink(path("elsewhere"), path("tree/link")).unwrap();
    let all = ["tree", "tree/a", "tree/a/b", "tree/a/file", "tree/link"];
    let blocks: u64 =
        all.iter().map(|name| fs::symlink_metadata(path(name)).unwrap().blocks()).sum();
    let expected = Usage { bytes: blocks * 512, inodes: 5 };
    assert_eq!(Usage::of_tree(&path("tree")).unwrap(), expected);
    assert_eq!(Usage::of_tree(&path("missing")).unwrap(), Usage::default());
}

#[test]
fn a_tree_deeper_than_path_max_is_counted() {
    let dir = quick_dir();
    // Each directory has a file in it and one beside it: back in the parent, the walk must still
    // find the entries queued there.
    deep_tree(dir.path(), 5000);
    let usage = Usage::of_tree(&dir.path().join("deep")).unwrap();
    assert_eq!(usage.inodes, 3 * 5000 + 1);
    crate::durable::remove_tree(&dir.path().join("deep")).unwrap();
}
