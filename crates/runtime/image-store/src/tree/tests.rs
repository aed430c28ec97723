//! Parsing of paths inside a tree, and that nothing is written outside.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Tree, TreePath};
use crate::limits::Limits;

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes(), &Limits::default()).unwrap()
}

#[test]
fn paths_are_made_plain_or_refused() {
    for (text, plain) in
        [("a/b", "a/b"), ("./a//b/", "a/b"), ("/etc/passwd", "etc/passwd"), (".", "."), ("/", ".")]
    {
        assert_eq!(path(text).relative().to_str(), Some(plain), "{text}");
    }
    let long = "n".repeat(256);
    let deep = "d/".repeat(600);
    for text in ["..", "../a", "a/../b", "a/..", &long, &deep] {
        assert!(TreePath::parse(text.as_bytes(), &Limits::default()).is_err(), "{text}");
    }
}

#[test]
fn links_are_resolved_inside_the_tree() {
    for (at, target, expected) in [
        ("a/b", "c", "a/c"),
        ("a/b", "/c", "c"),
        ("a/b", "../../../../c", "c"),
        ("a", "..", "."),
        ("a/b/c", "../x/./y/", "a/x/y"),
    ] {
        let led = path(at).follow(target.as_bytes());
        assert_eq!(led.relative().to_str(), Some(expected), "{at} -> {target}");
    }
}

#[test]
fn dirs_are_created_through_links_and_dangling_links() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    symlink("../../outside", inside.join("out")).unwrap();
    symlink("/abs/olute", inside.join("absolute")).unwrap();
    symlink("loop", inside.join("loop")).unwrap();
    let mut tree = Tree::open(&inside, &Limits::default()).unwrap();
    tree.create_file(&path("out/file")).unwrap();
    tree.create_file(&path("absolute/file")).unwrap();
    assert!(tree.create_file(&path("loop/file")).is_err());
    assert!(inside.join("outside/file").is_file());
    assert!(inside.join("abs/olute/file").is_file());
    assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 0);
    assert_eq!(tree.take_implied_dirs(), [path("outside"), path("abs"), path("abs/olute")]);
}
