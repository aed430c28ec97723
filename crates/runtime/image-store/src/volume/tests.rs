//! Volumes filled from images, in a mount namespace where layers are merged.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tar::EntryType;

use super::copy_volume;
use crate::testing::{Tar, TestStore, in_private_mount_namespace, is_root, listing, test_store};

fn filled() -> Tar {
    Tar::new()
        .entry(EntryType::Directory, "data/", b"", |header| {
            header.set_mode(0o2750);
            header.set_uid(1000);
            header.set_gid(1001);
        })
        .records(&[("SCHILY.xattr.user.note", b"kept")])
        .entry(EntryType::Regular, "data/file", b"lower", |header| {
            header.set_mode(0o4640);
            header.set_uid(1000);
        })
        .file("data/deep/er/file", "x")
        .file("data/gone", "x")
        .symlink("data/link", "../../../../etc/passwd")
        .hard_link("data/second", "data/file")
        .entry(EntryType::Fifo, "data/pipe", b"", |_| {})
        .device(EntryType::Char, "data/null", 1, 3)
        .file("plain", "x")
        .symlink("by-link", "/data")
        .symlink("out", "../../../../../../../../etc")
        .symlink("loop", "loop")
}

fn empty(test_store: &TestStore, name: &str) -> std::path::PathBuf {
    let place = test_store.dir.path().join(name);
    fs::create_dir(&place).unwrap();
    place
}

/// The image's files are unchanged and equal to their copy.
fn same(original: &Path, copy: &Path) {
    assert_eq!(listing(copy), listing(original));
    let inode = |name: &str| fs::metadata(copy.join(name)).unwrap().ino();
    assert_eq!(inode("file"), inode("second"), "a hard link stays one");
    let note = |path: &Path| {
        let mut note = [0; 16];
        rustix::fs::getxattr(path.join("file"), "user.note", &mut note[..]).map(|_| note)
    };
    assert_eq!(note(copy), note(original), "attributes");
}

#[test]
fn a_volume_of_one_layer_is_copied_as_it_is() {
    if !is_root() {
        eprintln!("skipped: owners and devices need root");
        return;
    }
    let test_store = test_store();
    test_store.take("it", &[filled().bytes()]).unwrap();
    let view = test_store.store.create_view("c", "it").unwrap();
    let layer = view.overlay.lower[0].clone();
    for (at, path) in ["/data", "data/", "/by-link", "/../../data/./deep/.."].iter().enumerate() {
        let to = empty(&test_store, &at.to_string());
        assert!(copy_volume(&view.overlay, path, &to).unwrap(), "{path}");
        same(&layer.join("data"), &to);
        fs::write(to.join("file"), "changed").unwrap();
        assert_eq!(fs::read_to_string(layer.join("data/file")).unwrap(), "lower");
    }
}

#[test]
fn nothing_outside_the_image_is_copied() {
    let test_store = test_store();
    test_store.take("it", &[filled().bytes()]).unwrap();
    let view = test_store.store.create_view("c", "it").unwrap();
    let to = empty(&test_store, "to");
    // The image has no /etc of its own.
    for path in ["/missing", "/out", "/data/missing/deeper"] {
        assert!(!copy_volume(&view.overlay, path, &to).unwrap(), "{path}");
    }
    for path in ["/plain", "/plain/beneath", "/loop", "/data/file"] {
        let refused = copy_volume(&view.overlay, path, &to).unwrap_err().to_string();
        assert!(refused.contains(path), "{refused}");
    }
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
}

#[test]
fn a_volume_of_several_layers_shows_the_last_of_each() {
    let test = "volume::tests::a_volume_of_several_layers_shows_the_last_of_each";
    if !in_private_mount_namespace(test) {
        return;
    }
    let test_store = test_store();
    let upper = Tar::new()
        .file("data/.wh.gone", "")
        .file("data/deep/.wh..wh..opq", "")
        .file("data/deep/new", "x");
    test_store.take("it", &[filled().bytes(), upper.bytes()]).unwrap();
    let view = test_store.store.create_view("c", "it").unwrap();
    // Files that a container wrote before are not copied.
    let changes = view.overlay.upper.clone().unwrap().changes;
    fs::create_dir(changes.join("data")).unwrap();
    fs::write(changes.join("data/mine"), "x").unwrap();
    let to = empty(&test_store, "to");
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(copy_volume(&view.overlay, "/data", &to).unwrap());
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    let metadata = fs::metadata(&to).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o2750, 1000));
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&to), ["deep", "file", "link", "null", "pipe", "second"]);
    assert_eq!(names(&to.join("deep")), ["new"]);
}
