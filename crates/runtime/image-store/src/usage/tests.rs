//! What is counted, and that depth does not limit it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::testing::{deep_tree, quick_dir};

#[test]
fn each_inode_counts_once_and_nothing_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    fs::create_dir_all(place("tree/a/b")).unwrap();
    fs::create_dir(place("elsewhere")).unwrap();
    fs::write(place("elsewhere/file"), vec![7; 100_000]).unwrap();
    fs::write(place("tree/a/file"), vec![7; 10_000]).unwrap();
    fs::hard_link(place("tree/a/file"), place("tree/a/b/again")).unwrap();
    std::os::unix::fs::symlink(place("elsewhere"), place("tree/link")).unwrap();
    let all = ["tree", "tree/a", "tree/a/b", "tree/a/file", "tree/link"];
    let blocks: u64 =
        all.iter().map(|name| fs::symlink_metadata(place(name)).unwrap().blocks()).sum();
    let expected = Usage { bytes: blocks * 512, inodes: 5 };
    assert_eq!(Usage::of_tree(&place("tree")).unwrap(), expected);
    assert_eq!(Usage::of_tree(&place("missing")).unwrap(), Usage::default());
}

#[test]
fn a_tree_deeper_than_path_max_is_counted() {
    let dir = quick_dir();
    // A file in each directory and one beside it: going up must find what is queued there.
    deep_tree(dir.path(), 5000);
    let usage = Usage::of_tree(&dir.path().join("deep")).unwrap();
    assert_eq!(usage.inodes, 3 * 5000 + 1);
    crate::durable::remove_tree(&dir.path().join("deep")).unwrap();
}
