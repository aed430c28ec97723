//! Shared by the tests of this crate: tars with arbitrary names, images built from layers, a store
//! in a temporary directory, and running a test again in its own mount namespace.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::assemble::{ContentSource, ImageNaming};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::platform::Platform;
use crate::progress::NoProgress;
use crate::reference::ImageReference;
use crate::spec::{Descriptor, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};
use crate::store::ImageStore;

/// Writes hostile tars: names are not checked.
pub(crate) struct Tar(Builder<Vec<u8>>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    /// An entry with all fields given; `change` may alter the header.
    pub(crate) fn entry(
        mut self,
        kind: EntryType,
        path: &str,
        data: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(data.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        change(&mut header);
        header.set_cksum();
        self.0.append(&header, data).unwrap();
        self
    }

    pub(crate) fn file(self, path: &str, data: &str) -> Self {
        self.entry(EntryType::Regular, path, data.as_bytes(), |_| {})
    }

    pub(crate) fn dir(self, path: &str, mode: u32) -> Self {
        self.entry(EntryType::Directory, path, b"", |header| header.set_mode(mode))
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.link(EntryType::Symlink, path, target)
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.link(EntryType::Link, path, target)
    }

    fn link(self, kind: EntryType, path: &str, target: &str) -> Self {
        self.entry(kind, path, b"", |header| {
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        })
    }

    pub(crate) fn device(self, kind: EntryType, path: &str, major: u32, minor: u32) -> Self {
        self.entry(kind, path, b"", |header| {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
        })
    }

    pub(crate) fn records(mut self, records: &[(&str, &[u8])]) -> Self {
        self.0.append_pax_extensions(records.iter().copied()).unwrap();
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A store in a temporary directory.
pub(crate) struct TestStore {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: ImageStore,
}

pub(crate) fn test_store() -> TestStore {
    test_store_with(Limits::default())
}

pub(crate) fn test_store_with(limits: Limits) -> TestStore {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&dir.path().join("store"), limits, Platform::host()).unwrap();
    TestStore { dir, store }
}

/// Content in memory, in place of a registry.
#[derive(Default)]
pub(crate) struct MemorySource(pub(crate) BTreeMap<Digest, Vec<u8>>);

impl MemorySource {
    pub(crate) fn put(&mut self, kind: &str, bytes: Vec<u8>) -> Descriptor {
        let digest = Digest::of(&bytes);
        let size = bytes.len() as u64;
        self.0.insert(digest, bytes);
        let (media_type, annotations) = (kind.to_owned(), BTreeMap::new());
        Descriptor { media_type, digest, size, platform: None, annotations }
    }

    /// An image of these tars for this platform, compressed with gzip.
    pub(crate) fn image(&mut self, tars: &[Vec<u8>]) -> Descriptor {
        let platform = Platform::host();
        self.image_for(tars, &json!({ "architecture": platform.architecture, "os": "linux" }))
    }

    pub(crate) fn image_for(&mut self, tars: &[Vec<u8>], base: &Value) -> Descriptor {
        let diff_ids: Vec<_> = tars.iter().map(|tar| Digest::of(tar)).collect();
        let layers: Vec<_> =
            tars.iter().map(|tar| self.put(&format!("{OCI_LAYER}+gzip"), gzip(tar))).collect();
        let mut config = base.clone();
        config["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });
        let config = self.put(OCI_CONFIG, config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers,
        });
        self.put(OCI_MANIFEST, manifest.to_string().into_bytes())
    }
}

impl ContentSource for MemorySource {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn std::io::Read + '_>> {
        let bytes =
            self.0.get(&descriptor.digest).ok_or(Error::ContentMissing(descriptor.digest))?;
        Ok(Box::new(&bytes[usize::try_from(offset).unwrap()..]))
    }
}

impl TestStore {
    /// Adds an image of these tars under a name.
    pub(crate) fn take(&self, name: &str, tars: &[Vec<u8>]) -> Result<crate::index::StoredImage> {
        let mut memory = MemorySource::default();
        let top = memory.image(tars);
        let naming =
            ImageNaming { names: vec![ImageReference::parse(name)?], ..ImageNaming::default() };
        self.store.assemble(&memory, &top, &naming, &NoProgress)
    }
}

pub(crate) fn is_root() -> bool {
    crate::unpack::UnpackRights::ours().machine
}

/// Runs the named test again in its own mount namespace, as root; returns `true` inside it. Its
/// mounts disappear when it ends. Without root, overlays cannot be mounted: prints that.
pub(crate) fn in_private_mount_namespace(test: &str) -> bool {
    const INSIDE: &str = "IMAGE_STORE_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !is_root() {
        eprintln!("{test}: skipped, mounting needs root");
        return false;
    }
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    // A name that matches no test would succeed as well.
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{test} in its own mount namespace: {}\n{stdout}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// In tmpfs if possible: on a busy disk ten thousand directories take a minute.
pub(crate) fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Creates `deep` with nested directories; each also holds a file and an empty directory.
pub(crate) fn deep_tree(parent: &Path, levels: usize) {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let (mode, flags) = (Mode::from_raw_mode(0o700), OFlags::DIRECTORY | OFlags::CLOEXEC);
    let top = parent.join("deep");
    std::fs::create_dir(&top).unwrap();
    let mut here = rustix::fs::open(&top, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&here, "beside", mode).unwrap();
        mkdirat(&here, "d", mode).unwrap();
        openat(&here, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, mode).unwrap();
        here = openat(&here, "d", flags, Mode::empty()).unwrap();
    }
}

/// Everything in a tree, one line each: kind, mode, owner, time, size or target, path.
pub(crate) fn listing(root: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let mut lines = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let what = if metadata.is_symlink() {
            std::fs::read_link(&path).unwrap().display().to_string()
        } else if metadata.is_file() {
            Digest::of(&std::fs::read(&path).unwrap()).to_string()
        } else {
            metadata.rdev().to_string()
        };
        lines.push(format!(
            "{} {:o} {}:{} {} {what}",
            path.strip_prefix(root).unwrap().display(),
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
        ));
        if metadata.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}
