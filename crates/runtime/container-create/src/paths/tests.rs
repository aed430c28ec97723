//! Roots with links that lead out of them.

use super::*;
use std::os::unix::fs::symlink;

fn root(dir: &Path) -> ContainerRoot {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    ContainerRoot::new(rustix::fs::open(dir, flags, Mode::empty()).expect("opened"))
}

fn test_dirs() -> (tempfile::TempDir, std::path::PathBuf) {
    let test_dir = tempfile::tempdir().expect("a folder");
    let inside = test_dir.path().join("root");
    std::fs::create_dir(&inside).expect("made");
    (test_dir, inside)
}

#[test]
fn missing_parents_are_created_inside_the_root() {
    let (_test_dir, inside) = test_dirs();
    let root = root(&inside);
    root.find_or_create("/a/b/c", CreateAs::File).expect("made");
    assert!(inside.join("a/b/c").is_file());
    root.find_or_create("/a/d", CreateAs::Dir).expect("made");
    assert!(inside.join("a/d").is_dir());
    root.find_or_create("/a/b/c", CreateAs::File).expect("found");
}

#[test]
fn links_never_lead_out_of_the_root() {
    let (test_dir, inside) = test_dirs();
    let outside = test_dir.path().join("outside");
    std::fs::create_dir(&outside).expect("made");
    let root = root(&inside);
    for (name, target) in [
        ("absolute", outside.to_str().expect("text").to_owned()),
        ("relative", "../../../../outside".to_owned()),
        ("up", "..".to_owned()),
    ] {
        symlink(target, inside.join(name)).expect("linked");
        root.find_or_create(&format!("/{name}/made"), CreateAs::File).expect("made");
        assert_eq!(std::fs::read_dir(&outside).expect("read").count(), 0, "{name} led out");
        assert!(!test_dir.path().join("made").exists(), "{name} led out");
    }
}

#[test]
fn the_target_of_a_dangling_link_is_created_inside_the_root() {
    let (_test_dir, inside) = test_dirs();
    symlink("/run/resolve/stub.conf", inside.join("resolv.conf")).expect("linked");
    root(&inside).find_or_create("/resolv.conf", CreateAs::File).expect("made");
    assert!(inside.join("run/resolve/stub.conf").is_file());
}

#[test]
fn a_loop_of_links_is_an_error() {
    let (_test_dir, inside) = test_dirs();
    symlink("b/x", inside.join("a")).expect("linked");
    symlink("a/x", inside.join("b")).expect("linked");
    let error = root(&inside).find_or_create("/a/y", CreateAs::File).expect_err("a loop");
    assert!(error.to_string().contains("/a/y"), "{error}");
}

#[test]
fn sub_paths_do_not_leave_their_volume() {
    let (test_dir, inside) = test_dirs();
    std::fs::write(test_dir.path().join("secret"), "x").expect("written");
    symlink("../secret", inside.join("leak")).expect("linked");
    symlink(test_dir.path().join("secret"), inside.join("leak2")).expect("linked");
    let volume = inside.to_str().expect("text");
    for odd in ["leak", "leak2", "../secret", "/"] {
        assert!(open_source(volume, odd, false).is_err(), "{odd}");
    }
    assert!(open_source("relative", "", false).is_err());
}

#[test]
fn names_are_split() {
    assert_eq!(split("/a").expect("ok"), ("/", "a"));
    assert_eq!(split("/a/b/").expect("ok"), ("/a", "b"));
    for odd in ["", "/", "a", "/a/..", "/."] {
        assert!(split(odd).is_err(), "{odd}");
    }
}
