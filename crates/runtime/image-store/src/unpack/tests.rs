//! Layers as directories: the result of each kind of entry, whiteouts, and fitting layers to each
//! other.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use tar::EntryType;

use super::{LayerUnpack, UnpackRights, Unpacked};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::progress::NoProgress;
use crate::testing::{Tar, TestStore, gzip, is_root, test_store};
use crate::tree::Tree;

pub(super) fn unpack(tar: &[u8], packed: &[u8], place: &Path, limits: &Limits) -> Result<Unpacked> {
    let layer = LayerUnpack {
        blob: packed,
        diff_id: Digest::of(tar),
        lowest: false,
        limits,
        progress: &NoProgress,
    };
    layer.unpack(&mut Tree::open(place, limits)?, UnpackRights::ours())
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(1000);
    rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value)).ok()?;
    Some(value)
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == 0)
}

#[test]
fn entries_keep_owner_mode_time_and_attributes() {
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let tar = Tar::new()
        .dir("./", 0o751)
        .dir("bin/", 0o555)
        .records(&[
            ("SCHILY.xattr.security.capability", &capability),
            ("SCHILY.xattr.user.note", b"kept"),
            ("SCHILY.xattr.trusted.overlay.redirect", b"/../../etc"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("mtime", b"1234567890.5"),
        ])
        .entry(EntryType::Regular, "bin/tool", b"tool", |header| {
            header.set_mode(0o4755);
            header.set_uid(1000);
            header.set_gid(2000);
        })
        .hard_link("bin/second", "bin/tool")
        .symlink("link", "/bin/tool")
        .entry(EntryType::Fifo, "pipe", b"", |header| header.set_mode(0o620))
        .bytes();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let limits = Limits::default();
    for packed in [
        tar.clone(),
        gzip(&tar),
        ruzstd::encoding::compress_to_vec(&tar[..], ruzstd::encoding::CompressionLevel::Fastest),
    ] {
        let inside = place.join(packed.len().to_string());
        fs::create_dir(&inside).unwrap();
        let unpacked = unpack(&tar, &packed, &inside, &limits).unwrap();
        assert_eq!((unpacked.entries, unpacked.bytes), (6, tar.len() as u64));
        assert!(unpacked.implied.is_empty(), "{:?}", unpacked.implied);
        assert_eq!(fs::metadata(&inside).unwrap().mode() & 0o7777, 0o751);
        let tool = inside.join("bin/tool");
        let found = fs::metadata(&tool).unwrap();
        assert_eq!(fs::read(&tool).unwrap(), b"tool");
        assert_eq!((found.mode() & 0o7777, found.nlink()), (0o4755, 2));
        assert_eq!((found.mtime(), found.mtime_nsec()), (1_234_567_890, 500_000_000));
        assert_eq!(found.ino(), fs::metadata(inside.join("bin/second")).unwrap().ino());
        assert_eq!(fs::read_link(inside.join("link")).unwrap(), Path::new("/bin/tool"));
        assert_eq!(fs::symlink_metadata(inside.join("link")).unwrap().mtime(), 1_000_000_000);
        let pipe = fs::symlink_metadata(inside.join("pipe")).unwrap();
        assert!(pipe.file_type().is_fifo() && pipe.mode() & 0o7777 == 0o620);
        let bin = fs::metadata(inside.join("bin")).unwrap();
        assert_eq!((bin.mode() & 0o7777, bin.mtime()), (0o555, 1_000_000_000));
        assert_eq!(attribute(&tool, "trusted.overlay.redirect"), None);
        assert_eq!(attribute(&tool, "user.overlay.opaque"), None);
        if is_root() {
            assert_eq!((found.uid(), found.gid()), (1000, 2000));
            assert_eq!(attribute(&tool, "security.capability").as_deref(), Some(&capability[..]));
            assert_eq!(attribute(&tool, "user.note").as_deref(), Some(&b"kept"[..]));
            assert_eq!(unpacked.left_out, 2);
        }
    }
}

#[test]
fn later_entries_win() {
    let tar = Tar::new()
        .file("a", "old")
        .file("a", "new")
        .file("b/in", "x")
        .file("b", "file now")
        .file("c", "x")
        .dir("c/", 0o700)
        .file("d", "shared")
        .hard_link("e", "d")
        .file("e", "own")
        .dir("f/", 0o700)
        .file("f/kept", "x")
        .dir("f/", 0o750)
        .bytes();
    let dir = tempfile::tempdir().unwrap();
    unpack(&tar, &tar, dir.path(), &Limits::default()).unwrap();
    let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!((text("a"), text("b")), ("new".to_owned(), "file now".to_owned()));
    assert!(dir.path().join("c").is_dir());
    assert_eq!((text("d"), text("e")), ("shared".to_owned(), "own".to_owned()));
    assert_eq!(text("f/kept"), "x");
    assert_eq!(fs::metadata(dir.path().join("f")).unwrap().mode() & 0o777, 0o750);
}

#[test]
fn a_tar_with_the_wrong_digest_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (tar, other) = (Tar::new().file("a", "x").bytes(), Tar::new().file("a", "y").bytes());
    let error = unpack(&other, &tar, dir.path(), &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::DiffIdMismatch { .. }), "{error}");
    // The digest covers what follows the end marker.
    let longer = [tar.clone(), vec![0; 10_240]].concat();
    assert!(unpack(&tar, &longer, dir.path(), &Limits::default()).is_err());
    assert!(unpack(&longer, &longer, dir.path(), &Limits::default()).is_ok());
}

/// The directories of an image's layers, the lowest first.
fn layers(test_store: &TestStore, tars: &[Vec<u8>]) -> Vec<std::path::PathBuf> {
    let record = test_store.take("it", tars).unwrap_or_else(|error| panic!("{error}"));
    record.chain_ids().iter().map(|chain| test_store.store.snapshots.files(chain)).collect()
}

#[test]
fn whiteout_markers_become_overlayfs_whiteouts() {
    if !is_root() {
        eprintln!("skipped: trusted attributes need root");
        return;
    }
    let test_store = test_store();
    let lower = Tar::new()
        .file("gone", "x")
        .file("folder/below", "x")
        .file("replaced/below", "x")
        .file("both", "x")
        .file(".wh.lowest", "");
    let upper = Tar::new()
        .file(".wh.gone", "")
        .file("folder/.wh..wh..opq", "")
        .file("folder/above", "x")
        .file(".wh.replaced", "")
        .dir("replaced/", 0o755)
        .file("both", "new")
        .file(".wh.both", "")
        .file("fresh/.wh.nothing-below", "")
        .dir(".wh..wh.plnk/", 0o755)
        .file(".wh..wh.plnk/1.2", "")
        .file(".wh..wh.aufs", "");
    let places = layers(&test_store, &[lower.bytes(), upper.bytes()]);
    let at = |name: &str| places[1].join(name);
    assert!(!places[0].join("lowest").exists() && !places[0].join(".wh.lowest").exists());
    assert!(is_whiteout(&at("gone")));
    let opaque = |name: &str| attribute(&at(name), "trusted.overlay.opaque");
    assert_eq!(opaque("folder").as_deref(), Some(&b"y"[..]));
    assert!(at("folder/above").is_file());
    assert_eq!(opaque("replaced").as_deref(), Some(&b"y"[..]));
    assert_eq!(fs::read_to_string(at("both")).unwrap(), "new");
    assert!(at("fresh").is_dir() && !is_whiteout(&at("fresh/nothing-below")));
    let names: Vec<_> = fs::read_dir(&places[1]).unwrap().collect();
    assert_eq!(names.len(), 5, "markers stay as files: {names:?}");
}

#[test]
fn implied_dirs_take_the_metadata_of_the_lower_layer() {
    let test_store = test_store();
    let lower = Tar::new()
        .dir("./", 0o711)
        .entry(EntryType::Directory, "tmp/", b"", |header| {
            header.set_mode(0o1777);
            header.set_uid(7);
        })
        .dir("usr/lib/", 0o750)
        .symlink("lib", "usr/lib")
        .symlink("alias", "lib")
        .bytes();
    let upper = Tar::new()
        .file("tmp/file", "x")
        .file("lib/new", "x")
        .file("lib/deep/er", "x")
        .file("alias/other", "x")
        .file("made/here", "x")
        .bytes();
    let places = layers(&test_store, &[lower, upper]);
    let at = |name: &str| places[1].join(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("."), 0o711);
    assert_eq!(mode("tmp"), 0o1777);
    assert_eq!(fs::metadata(at("tmp")).unwrap().mtime(), 1_000_000_000);
    if is_root() {
        assert_eq!(fs::metadata(at("tmp")).unwrap().uid(), 7);
    }
    assert_eq!(mode("made"), 0o755);
    for name in ["usr/lib/new", "usr/lib/deep/er", "usr/lib/other"] {
        assert!(at(name).is_file(), "{name}");
    }
    for name in ["lib", "alias"] {
        assert!(fs::symlink_metadata(at(name)).is_err(), "{name} hides the link below");
    }
    assert_eq!(mode("usr/lib"), 0o750);
}

#[test]
fn a_dir_that_the_layer_names_replaces_a_link_below() {
    let test_store = test_store();
    let lower = Tar::new().dir("usr/lib/", 0o755).symlink("lib", "usr/lib").bytes();
    let upper = Tar::new().dir("lib/", 0o700).file("lib/new", "x").bytes();
    let places = layers(&test_store, &[lower, upper]);
    assert!(places[1].join("lib/new").is_file());
}
