//! Moving names, lookups by every kind of name, and a file of another version.

use std::collections::{BTreeMap, BTreeSet};

use super::{ImageIndex, IndexFile, StoredImage};
use crate::digest::Digest;
use crate::error::Error;
use crate::reference::ImageReference;

fn record(seed: &str, names: &[&str]) -> StoredImage {
    let id = Digest::of(seed.as_bytes());
    let names: BTreeMap<_, _> = names.iter().map(|name| ((*name).to_owned(), id)).collect();
    StoredImage {
        id,
        manifest: id,
        digests: BTreeSet::from([format!("docker.io/library/{seed}@{id}")]),
        names,
        blobs: BTreeMap::new(),
        layers: Vec::new(),
        pinned: false,
        preloaded: false,
    }
}

#[test]
fn a_name_belongs_to_one_image() {
    let mut images = ImageIndex::default();
    images.add(record("a", &["docker.io/library/x:latest", "docker.io/library/y:latest"]));
    images.add(record("b", &["docker.io/library/x:latest"]));
    let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
    for (name, expected) in [
        ("x", Some(b)),
        ("docker.io/library/x:latest", Some(b)),
        ("y", Some(a)),
        ("z", None),
        (a.to_string().as_str(), Some(a)),
        (&a.hex()[..12], Some(a)),
        (&a.hex()[..3], None),
        (&format!("a@{a}"), Some(a)),
        (&format!("a:anything@{a}"), Some(a)),
        (&format!("a@{b}"), None),
        ("", None),
    ] {
        assert_eq!(images.find(name).ok().map(|record| record.id), expected, "{name}");
    }
    assert!(images.remove_name(&ImageReference::parse("y").unwrap()));
    assert!(!images.remove_name(&ImageReference::parse("y").unwrap()));
    assert!(images.find("y").is_err());
    assert!(images.images[&a].names.is_empty(), "without a name it is still there by id");
}

#[test]
fn the_same_image_collects_names() {
    let mut images = ImageIndex::default();
    images.add(record("a", &["docker.io/library/x:latest"]));
    let mut again = record("a", &["docker.io/library/z:latest"]);
    again.pinned = true;
    images.add(again);
    let known = images.find("x").unwrap();
    assert_eq!(known, images.find("z").unwrap());
    assert!(known.pinned);
}

#[test]
fn the_file_is_whole_and_of_a_known_version() {
    let dir = tempfile::tempdir().unwrap();
    let file = IndexFile::open(dir.path());
    assert_eq!(file.read().unwrap(), ImageIndex::default());
    file.change(|images| {
        images.add(record("a", &["docker.io/library/x:latest"]));
        Ok(())
    })
    .unwrap();
    assert!(file.read().unwrap().find("x").is_ok());
    std::fs::write(dir.path().join("images.json"), r#"{"version":9,"images":{}}"#).unwrap();
    assert!(matches!(file.read(), Err(Error::UnknownVersion { expected: 1, .. })));
    std::fs::write(dir.path().join("images.json"), "{").unwrap();
    assert!(matches!(file.read(), Err(Error::Damaged { .. })));
}
