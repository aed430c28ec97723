//! Kills at random times: a process that imports, unpacks, views and removes in a loop is killed,
//! and a sweep must leave a sound store. A pull that is killed in the middle must be resumed by the
//! next.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use node_testkit::images::{BUSYBOX, busybox};

use super::ImportOptions;
use crate::assemble::{ContentSource, ImageNaming};
use crate::collect::Thoroughness;
use crate::durable::{UNFINISHED, names_in};
use crate::error::Result;
use crate::limits::Limits;
use crate::platform::Platform;
use crate::progress::NoProgress;
use crate::reference::ImageReference;
use crate::spec::Descriptor;
use crate::store::ImageStore;
use crate::testing::{MemorySource, Tar};

const STORE_DIR_VARIABLE: &str = "IMAGE_STORE_KILL_PLACE";
const ROUNDS: usize = 5;
const SEED: u64 = 0x6b65_656c_736f_6e21;

fn open(place: &Path) -> ImageStore {
    ImageStore::open(&place.join("store"), Limits::default(), Platform::host()).unwrap()
}

/// All operations that change a store, in a loop.
fn run_store_operations(place: &Path, archives: &[PathBuf]) {
    let store = open(place);
    let options = ImportOptions::default();
    for round in 0.. {
        for archive in archives {
            store.import(archive, &options, &NoProgress).unwrap();
        }
        let many = ImportOptions { name: ImageReference::parse("many").ok(), ..options.clone() };
        store.import(&place.join("many"), &many, &NoProgress).unwrap();
        let view = format!("view-{}", round % 3);
        store.create_view(&view, BUSYBOX).unwrap();
        store.remove(BUSYBOX).unwrap();
        store.collect().unwrap();
        store.remove_view(&view).unwrap();
        store.remove("many").unwrap();
        store.collect().unwrap();
    }
}

fn start(place: &Path, test: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("import::kills::{test}"), "--exact", "--nocapture"])
        .env(STORE_DIR_VARIABLE, place)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_import_leaves_a_whole_store() {
    let image = busybox().unwrap();
    let archives = [image.oci_archive().unwrap(), image.docker_archive().unwrap()];
    if let Some(place) = std::env::var_os(STORE_DIR_VARIABLE) {
        run_store_operations(Path::new(&place), &archives);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let many = (0..300).fold(Tar::new(), |tar, at| tar.file(&format!("d{}/f{at}", at % 7), "x"));
    std::fs::create_dir(place.join("many")).unwrap();
    let mut archive = tar::Archive::new(std::io::Cursor::new(many.bytes()));
    archive.unpack(place.join("many")).unwrap();
    drop(open(place));
    let mut random = SEED;
    let mut was_busy = 0;
    for round in 0..ROUNDS {
        let mut child = start(place, "a_killed_import_leaves_a_whole_store");
        // A xorshift: the same times in every run, as far as a machine can.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(150 + random % 700));
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "round {round}: the import ended by itself: {ended:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(place);
        was_busy += usize::from(!names_in(&store.sessions()).unwrap().is_empty());
        store.sweep().unwrap();
        assert_eq!(store.verify(Thoroughness::Full).unwrap(), [], "round {round}");
        for part in ["", "content/ingest", "snapshots", "leases"] {
            let names = names_in(&store.root().join(part)).unwrap();
            let left: Vec<_> = names.iter().filter(|name| name.starts_with(UNFINISHED)).collect();
            assert!(left.is_empty(), "round {round}: {part} has {left:?}");
        }
        for part in ["trash", "sessions"] {
            assert!(
                names_in(&store.root().join(part)).unwrap().is_empty(),
                "round {round}: {part}"
            );
        }
        let leases = store.list_views().unwrap();
        let views = names_in(&store.views()).unwrap();
        assert!(views.iter().all(|view| leases.contains(view)), "round {round}: {views:?}");
    }
    assert!(was_busy > 0, "no kill came in the middle of anything");
    let store = open(place);
    for archive in &archives {
        store.import(archive, &ImportOptions::default(), &NoProgress).unwrap();
    }
    for view in store.list_views().unwrap() {
        store.remove_view(&view).unwrap();
    }
    store.remove("many").unwrap();
    store.collect().unwrap();
    assert_eq!(store.verify(Thoroughness::Full).unwrap(), []);
    let record = store.image(BUSYBOX).unwrap();
    assert_eq!(store.snapshots.list().unwrap(), record.chain_ids());
    assert_eq!(store.content.list().unwrap().len(), record.blobs.len());
}

const LAYER_BYTES: usize = 1 << 20;

/// The same image in both processes: one layer that does not compress.
fn pulled_image() -> (MemorySource, Descriptor) {
    let mut random = SEED;
    let data: Vec<u8> = std::iter::repeat_with(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random.to_le_bytes()[0]
    })
    .take(LAYER_BYTES)
    .collect();
    let mut memory = MemorySource::default();
    let layer = Tar::new().entry(tar::EntryType::Regular, "data", &data, |_| {}).bytes();
    let top = memory.image(&[layer]);
    (memory, top)
}

/// Delivers a part of a layer, creates the marker file, and then blocks.
struct StallingSource<'a> {
    memory: &'a MemorySource,
    mark: PathBuf,
}

struct StallingReader<'a> {
    inner: Box<dyn Read + 'a>,
    left: usize,
    mark: &'a Path,
}

impl Read for StallingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            // Everything read before is in the store by now.
            std::fs::write(self.mark, "")?;
            loop {
                std::thread::park();
            }
        }
        self.left -= 1;
        self.inner.read(buffer)
    }
}

impl ContentSource for StallingSource<'_> {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>> {
        let inner = self.memory.fetch(descriptor, offset)?;
        if descriptor.size < LAYER_BYTES as u64 / 2 {
            return Ok(inner);
        }
        Ok(Box::new(StallingReader { inner, left: 3, mark: &self.mark }))
    }
}

/// Records the offset from which the layer was fetched.
struct RecordingSource<'a> {
    memory: &'a MemorySource,
    layer_from: AtomicU64,
}

impl ContentSource for RecordingSource<'_> {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>> {
        if descriptor.size >= LAYER_BYTES as u64 / 2 {
            self.layer_from.store(offset, Ordering::SeqCst);
        }
        self.memory.fetch(descriptor, offset)
    }
}

#[test]
fn a_killed_pull_leaves_a_whole_store_and_goes_on_where_it_was() {
    let (memory, top) = pulled_image();
    let naming = ImageNaming {
        names: vec![ImageReference::parse("pulled").unwrap()],
        ..ImageNaming::default()
    };
    if let Some(place) = std::env::var_os(STORE_DIR_VARIABLE) {
        let place = Path::new(&place);
        let source = StallingSource { memory: &memory, mark: place.join("stuck") };
        open(place).assemble(&source, &top, &naming, &NoProgress).unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let mut child = start(place, "a_killed_pull_leaves_a_whole_store_and_goes_on_where_it_was");
    while !place.join("stuck").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the pull ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let store = open(place);
    store.sweep().unwrap();
    assert_eq!(store.verify(Thoroughness::Full).unwrap(), []);
    assert!(store.images().unwrap().is_empty(), "half an image");
    let source = RecordingSource { memory: &memory, layer_from: AtomicU64::new(0) };
    store.assemble(&source, &top, &naming, &NoProgress).unwrap();
    let from = source.layer_from.into_inner();
    assert!(from > 0 && from < LAYER_BYTES as u64, "asked for from {from}");
    assert_eq!(store.verify(Thoroughness::Full).unwrap(), []);
    store.remove("pulled").unwrap();
    store.collect().unwrap();
    assert!(store.content.list().unwrap().is_empty());
}
