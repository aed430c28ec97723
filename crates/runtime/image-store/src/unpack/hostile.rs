//! Layers that try to escape, to exhaust the host or to confuse: each is refused with an error or
//! unpacked inside, and a directory beside the layer never changes.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;

use tar::EntryType;

use super::tests::unpack;
use crate::limits::Limits;
use crate::testing::{Tar, gzip, is_root};

/// Expected result of a hostile layer.
enum ExpectedOutcome {
    /// Refused with this text in the error.
    Refused(&'static str),
    /// Unpacked, and this holds for the directory.
    Inside(fn(&Path) -> bool),
}

use ExpectedOutcome::{Inside, Refused};

/// The attack, the tar, the expected result.
type HostileLayer = (&'static str, Vec<u8>, ExpectedOutcome);

fn small() -> Limits {
    Limits {
        layer_bytes: 4 << 20,
        layer_entries: 1000,
        path_bytes: 1000,
        path_depth: 40,
        extension_bytes: 10_000,
        ..Limits::default()
    }
}

fn by_paths() -> Vec<HostileLayer> {
    let t = Tar::new;
    vec![
        ("a path with ..", t().file("../victim/new", "x").bytes(), Refused("\"..\"")),
        ("a path with .. inside", t().file("a/../../victim/new", "x").bytes(), Refused("\"..\"")),
        ("a path that is ..", t().dir("..", 0o777).bytes(), Refused("\"..\"")),
        (
            "a path with .. in a record",
            t().records(&[("path", b"../victim/new")]).file("x", "x").bytes(),
            Refused("\"..\""),
        ),
        (
            "an absolute path",
            t().file("/etc/escaped", "x").bytes(),
            Inside(|place| place.join("etc/escaped").is_file()),
        ),
        (
            "through an absolute link",
            t().symlink("out", "/etc").file("out/escaped", "x").bytes(),
            Inside(|place| place.join("etc/escaped").is_file()),
        ),
        (
            "through a link with ..",
            t().symlink("out", "../victim").file("out/new", "x").bytes(),
            Inside(|place| place.join("victim/new").is_file()),
        ),
        (
            "through a chain of links",
            t().symlink("a", "..").symlink("b", "a/victim").file("b/new", "x").bytes(),
            Inside(|place| place.join("victim/new").is_file()),
        ),
        (
            "a link that is replaced by a file, not written through",
            t().symlink("out", "../victim/file").file("out", "x").bytes(),
            Inside(|place| place.join("out").symlink_metadata().is_ok_and(|m| m.is_file())),
        ),
        (
            "a link that a folder entry would follow",
            t().symlink("out", "../victim").dir("out/", 0o777).file("out/new", "x").bytes(),
            Inside(|place| place.join("out/new").is_file() && !place.join("out").is_symlink()),
        ),
        (
            "a file turned into a link between two entries",
            t().dir("d/", 0o755)
                .file("d/one", "x")
                .symlink("d", "../victim")
                .file("d/two", "x")
                .bytes(),
            Inside(|place| place.join("victim/two").is_file()),
        ),
        (
            "links in a circle",
            t().symlink("a", "b").symlink("b", "a").file("a/x", "x").bytes(),
            Refused("opening"),
        ),
    ]
}

fn by_links_and_markers() -> Vec<HostileLayer> {
    let t = Tar::new;
    vec![
        ("a hard link with ..", t().hard_link("x", "../victim/file").bytes(), Refused("\"..\"")),
        (
            "a hard link to an absolute path",
            t().hard_link("x", "/etc/passwd").bytes(),
            Refused("not in this layer"),
        ),
        (
            "a hard link through a link",
            t().symlink("out", "../victim").hard_link("x", "out/file").bytes(),
            Refused("not in this layer"),
        ),
        (
            "a hard link to a link, then written",
            t().symlink("l", "../victim/file").hard_link("x", "l").file("x", "new").bytes(),
            Inside(|place| fs::read_to_string(place.join("x")).is_ok_and(|text| text == "new")),
        ),
        (
            "a hard link to a folder",
            t().dir("d/", 0o755).hard_link("x", "d").bytes(),
            Refused("is a folder"),
        ),
        (
            "a hard link in place of its own target's folder",
            t().file("d/f", "x").hard_link("d", "d/f").bytes(),
            Refused("beneath the link"),
        ),
        (
            "a whiteout of the folder above",
            t().file(".wh...", "").bytes(),
            Refused("names nothing"),
        ),
        ("a whiteout of nothing", t().file("d/.wh.", "").bytes(), Refused("names nothing")),
        ("a whiteout of .", t().file(".wh..", "").bytes(), Refused("names nothing")),
        ("a file in a whiteout", t().file(".wh.x/file", "").bytes(), Refused("cannot be a folder")),
        (
            "a whiteout through a link",
            t().symlink("out", "../victim").file("out/.wh.file", "").bytes(),
            Inside(|place| place.join("victim").is_dir()),
        ),
        (
            "an opaque marker through a link",
            t().symlink("out", "../victim").file("out/.wh..wh..opq", "").bytes(),
            Inside(|place| place.join("victim").is_dir()),
        ),
    ]
}

fn by_size() -> Vec<HostileLayer> {
    let t = Tar::new;
    let sparse = |real: u64, pieces: &[(u64, u64)]| {
        t().entry(EntryType::GNUSparse, "sparse", b"data", |header| {
            let gnu = header.as_gnu_mut().unwrap();
            gnu.set_real_size(real);
            for (slot, (offset, length)) in gnu.sparse.iter_mut().zip(pieces) {
                slot.set_offset(*offset);
                slot.set_length(*length);
            }
        })
        .bytes()
    };
    let many = (0..1001).fold(t(), |tar, at| tar.file(&format!("f{at}"), "")).bytes();
    // Each symlink shortens the path so far; real depth grows although no path is long.
    let deep = (0..5).fold(t(), |tar, at| {
        let below = "d/".repeat(20);
        let tar = if at == 0 { tar.file(&format!("{below}x"), "") } else { tar };
        tar.file(&format!("l{at}/{below}x"), "")
            .symlink(&format!("l{}", at + 1), &format!("l{at}/{below}"))
    });
    vec![
        ("a huge sparse file", sparse(1 << 50, &[(0, 4)]), Refused("exceeds the limit")),
        ("a sparse map out of order", sparse(100, &[(50, 2), (0, 2)]), Refused("out of order")),
        ("a sparse map beyond the file", sparse(10, &[(8, 4)]), Refused("out of order")),
        ("a sparse map that overflows", sparse(10, &[(u64::MAX, 4)]), Refused("out of order")),
        ("a sparse map without the data", sparse(10, &[(0, 3)]), Refused("differ in size")),
        (
            "a sparse file",
            sparse(1 << 20, &[(4096, 4)]),
            Inside(|place| {
                let sparse = place.join("sparse");
                let data = fs::read(&sparse).unwrap();
                let blocks = fs::metadata(&sparse).unwrap().blocks();
                data.len() == 1 << 20 && &data[4096..4100] == b"data" && blocks < 100
            }),
        ),
        (
            "a file larger than allowed",
            t().entry(EntryType::Regular, "big", &vec![0; 5 << 20], |_| {}).bytes(),
            Refused("exceeds the limit"),
        ),
        (
            "a file that claims more than allowed",
            t().entry(EntryType::Regular, "big", b"x", |header| header.set_size(1 << 60)).bytes(),
            Refused("exceeds the limit"),
        ),
        ("too many entries", many, Refused("exceeds the limit of 1000")),
        (
            "a path too long",
            t().records(&[("path", "p/".repeat(600).as_bytes())]).file("x", "").bytes(),
            Refused("exceeds the limit of 1000"),
        ),
        (
            "a path too deep",
            t().records(&[("path", "p/".repeat(50).as_bytes())]).file("x", "").bytes(),
            Refused("exceeds the limit of 40"),
        ),
        (
            "a name too long",
            t().records(&[("path", "n".repeat(256).as_bytes())]).file("x", "").bytes(),
            Refused("255"),
        ),
        ("a tree made deep by links", deep.bytes(), Refused("depth behind its links")),
        (
            "records without end",
            t().records(&[("comment", &[b'c'; 20_000])]).file("x", "").bytes(),
            Refused("exceeds the limit of 10000"),
        ),
    ]
}

fn by_kind() -> Vec<HostileLayer> {
    let t = Tar::new;
    vec![
        ("a root that is a file", t().symlink(".", "/").bytes(), Refused("no folder")),
        ("a file with a folder's name", t().file("a/", "x").bytes(), Refused("folder's name")),
        (
            "a file used as a folder",
            t().file("a", "x").file("a/b", "x").bytes(),
            Refused("is a file"),
        ),
        ("a link to nothing at all", t().symlink("a", "").bytes(), Refused("empty link")),
        (
            "a forged whiteout",
            t().device(EntryType::Char, "forged", 0, 0).bytes(),
            Refused("whiteout"),
        ),
        (
            "a device",
            t().device(EntryType::Block, "disk", 8, 0).bytes(),
            Inside(|place| {
                let found = fs::symlink_metadata(place.join("disk"));
                if is_root() {
                    found.is_ok_and(|found| found.file_type().is_block_device())
                } else {
                    found.is_err()
                }
            }),
        ),
        (
            "a truncated tar",
            t().file("a", &"x".repeat(3000)).bytes()[..1500].to_vec(),
            Refused("truncated"),
        ),
        ("no tar at all", vec![b'z'; 5000], Refused("no tar")),
        (
            "an owner that means nobody",
            t().entry(EntryType::Regular, "x", b"", |header| header.set_uid(u64::from(u32::MAX)))
                .bytes(),
            Refused("no owner"),
        ),
    ]
}

#[test]
fn hostile_layers_are_refused_or_stay_inside() {
    let rows: Vec<_> =
        [by_paths(), by_links_and_markers(), by_size(), by_kind()].into_iter().flatten().collect();
    assert!(rows.len() >= 40);
    for (name, tar, outcome) in rows {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("file"), "untouched").unwrap();
        let place = dir.path().join("layer");
        fs::create_dir(&place).unwrap();
        let before = crate::testing::listing(&victim);
        let result = unpack(&tar, &gzip(&tar), &place, &small());
        match (outcome, result) {
            (Refused(words), Err(error)) => {
                let text = error.to_string();
                assert!(text.contains(words), "{name}: {text}; expected {words:?}");
            }
            (Refused(_), Ok(_)) => panic!("{name}: was unpacked"),
            (Inside(check), Ok(_)) => assert!(check(&place), "{name}: is not where it should be"),
            (Inside(_), Err(error)) => panic!("{name}: {error}"),
        }
        assert_eq!(crate::testing::listing(&victim), before, "{name}: touched what is outside");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "{name}: made something");
        assert!(!Path::new("/etc/escaped").exists(), "{name}: got out");
    }
}

#[test]
fn a_bomb_is_stopped_at_the_cap() {
    let dir = tempfile::tempdir().unwrap();
    let inner = vec![0; 64 << 20];
    let tar = Tar::new().entry(EntryType::Regular, "bomb", &inner, |_| {}).bytes();
    let trailing = [Tar::new().file("a", "x").bytes(), inner].concat();
    for plain in [tar, trailing] {
        let packed = gzip(&plain);
        assert!(packed.len() < 1 << 20);
        let error = unpack(&plain, &packed, dir.path(), &small()).unwrap_err().to_string();
        assert!(error.contains("exceeds the limit of 4194304"), "{error}");
    }
    assert!(crate::usage::Usage::of_tree(dir.path()).unwrap().bytes < 6 << 20);
}

/// A symlink that exists before unpacking, as if another process wrote into the directory.
#[test]
fn links_that_are_there_already_are_not_followed_out() {
    let dir = tempfile::tempdir().unwrap();
    let (place, victim) = (dir.path().join("layer"), dir.path().join("victim"));
    fs::create_dir(&place).unwrap();
    fs::create_dir(&victim).unwrap();
    symlink(&victim, place.join("absolute")).unwrap();
    symlink("../victim", place.join("relative")).unwrap();
    let tar = Tar::new().file("absolute/x", "").file("relative/x", "").bytes();
    unpack(&tar, &tar, &place, &small()).unwrap();
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    assert!(place.join("victim/x").is_file());
}
