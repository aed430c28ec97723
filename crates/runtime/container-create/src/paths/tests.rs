//! Roots with links that lead out of them.

use super::*;
use std::os::unix::fs::symlink;

fn root(folder: &Path) -> Root {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Root::new(rustix::fs::open(folder, flags, Mode::empty()).expect("opened"))
}

fn beds() -> (tempfile::TempDir, std::path::PathBuf) {
    let bed = tempfile::tempdir().expect("a folder");
    let inside = bed.path().join("root");
    std::fs::create_dir(&inside).expect("made");
    (bed, inside)
}

#[test]
fn missing_parents_are_made_inside() {
    let (_bed, inside) = beds();
    let root = root(&inside);
    root.find_or_make("/a/b/c", Missing::File).expect("made");
    assert!(inside.join("a/b/c").is_file());
    root.find_or_make("/a/d", Missing::Folder).expect("made");
    assert!(inside.join("a/d").is_dir());
    root.find_or_make("/a/b/c", Missing::File).expect("found");
}

#[test]
fn links_stay_inside_whatever_they_say() {
    let (bed, inside) = beds();
    let outside = bed.path().join("outside");
    std::fs::create_dir(&outside).expect("made");
    let root = root(&inside);
    for (name, target) in [
        ("absolute", outside.to_str().expect("text").to_owned()),
        ("relative", "../../../../outside".to_owned()),
        ("up", "..".to_owned()),
    ] {
        symlink(target, inside.join(name)).expect("linked");
        root.find_or_make(&format!("/{name}/made"), Missing::File).expect("made");
        assert_eq!(std::fs::read_dir(&outside).expect("read").count(), 0, "{name} led out");
        assert!(!bed.path().join("made").exists(), "{name} led out");
    }
}

#[test]
fn a_link_to_nowhere_is_made_good_inside() {
    let (_bed, inside) = beds();
    symlink("/run/resolve/stub.conf", inside.join("resolv.conf")).expect("linked");
    root(&inside).find_or_make("/resolv.conf", Missing::File).expect("made");
    assert!(inside.join("run/resolve/stub.conf").is_file());
}

#[test]
fn loops_end() {
    let (_bed, inside) = beds();
    symlink("b/x", inside.join("a")).expect("linked");
    symlink("a/x", inside.join("b")).expect("linked");
    let error = root(&inside).find_or_make("/a/y", Missing::File).expect_err("a loop");
    assert!(error.to_string().contains("/a/y"), "{error}");
}

#[test]
fn sub_paths_do_not_leave_their_volume() {
    let (bed, inside) = beds();
    std::fs::write(bed.path().join("secret"), "x").expect("written");
    symlink("../secret", inside.join("leak")).expect("linked");
    symlink(bed.path().join("secret"), inside.join("leak2")).expect("linked");
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
