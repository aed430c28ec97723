//! The whole store: versions, sharing, removal, interrupted sources, wrong documents, damage.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::ImageStore;
use crate::assemble::{ContentSource, ImageNaming};
use crate::collect::{StoreDefect, Thoroughness};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::platform::Platform;
use crate::progress::{NoProgress, ProgressListener, ProgressStep};
use crate::reference::ImageReference;
use crate::spec::{Descriptor, OCI_INDEX, OCI_LAYER, OCI_MANIFEST};
use crate::testing::{MemorySource, Tar, TestStore, test_store};

fn layer(name: &str) -> Vec<u8> {
    Tar::new().file(name, name).bytes()
}

fn assemble(
    test_store: &TestStore,
    memory: &dyn ContentSource,
    top: &Descriptor,
) -> Result<Digest> {
    let names = vec![ImageReference::parse("it").unwrap()];
    let naming = ImageNaming { names, ..ImageNaming::default() };
    Ok(test_store.store.assemble(memory, top, &naming, &NoProgress)?.id)
}

fn assert_store_is_intact(store: &ImageStore) {
    assert_eq!(store.verify(Thoroughness::Full).unwrap(), []);
}

#[test]
fn a_dir_of_another_version_or_with_foreign_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        ImageStore::open(&dir.path().join(name), Limits::default(), Platform::host())
            .map_err(|error| error.to_string())
    };
    open("new").unwrap();
    open("new").unwrap();
    fs::write(dir.path().join("new/version"), "keelson-image-store 2\n").unwrap();
    let error = open("new").unwrap_err();
    assert!(error.contains("keelson-image-store 2") && error.contains("format 1"), "{error}");
    fs::create_dir(dir.path().join("strange")).unwrap();
    fs::write(dir.path().join("strange/photo.jpg"), "x").unwrap();
    let error = open("strange").unwrap_err();
    assert!(error.contains("photo.jpg"), "{error}");
}

#[test]
fn images_share_layers_and_removal_frees_unused_ones() {
    let test_store = test_store();
    let store = &test_store.store;
    test_store.take("one", &[layer("base"), layer("one")]).unwrap();
    let two = test_store.take("two", &[layer("base"), layer("two")]).unwrap();
    assert_eq!(store.snapshots.list().unwrap().len(), 3);
    assert_eq!(store.content.list().unwrap().len(), 3 + 2 + 2);
    assert_eq!(store.images().unwrap().len(), 2);
    assert_eq!(store.image_usage(&two).unwrap().inodes, 4);
    assert!(store.usage().unwrap().bytes > 0);
    assert_store_is_intact(store);
    assert!(store.remove("one").unwrap());
    assert!(!store.remove("one").unwrap());
    let collected = store.collect().unwrap();
    assert_eq!((collected.snapshots, collected.blobs), (1, 3));
    assert!(store.content.size(&two.layers[0].digest).unwrap().is_some(), "the shared layer");
    assert_store_is_intact(store);
    assert_eq!(store.collect().unwrap(), crate::collect::Collected::default());
    assert!(store.untag(&ImageReference::parse("two").unwrap()).unwrap());
    assert_eq!(store.collect().unwrap().blobs, 0, "an image without a name is an image");
    assert!(store.remove(&two.id.to_string()).unwrap());
    store.collect().unwrap();
    assert!(store.content.list().unwrap().is_empty() && store.snapshots.list().unwrap().is_empty());
}

#[test]
fn names_flags_and_configuration() {
    let test_store = test_store();
    let store = &test_store.store;
    let record = test_store.take("one", &[layer("a")]).unwrap();
    store.tag("one", &ImageReference::parse("example.com/other:v1").unwrap()).unwrap();
    store.pin("example.com/other:v1", true).unwrap();
    let found = store.image(&record.id.hex()[..12]).unwrap();
    let names: Vec<_> = found.names.keys().cloned().collect();
    assert_eq!(names, ["docker.io/library/one:latest", "example.com/other:v1"]);
    assert!(found.pinned && !found.preloaded);
    assert_eq!(found.digests.len(), 1);
    assert_eq!(store.image_config(&found).unwrap().os, "linux");
}

/// Delivers half of the content, then fails; records the requested offsets.
struct FailingSource<'a> {
    memory: &'a MemorySource,
    fetched_from: AtomicU64,
}

impl ContentSource for FailingSource<'_> {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>> {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the line is dead"))
            }
        }
        self.fetched_from.fetch_add(offset, Ordering::Relaxed);
        let half = (descriptor.size - offset).div_ceil(2);
        Ok(Box::new(self.memory.fetch(descriptor, offset)?.take(half).chain(Broken)))
    }
}

#[test]
fn an_interrupted_fetch_resumes_at_its_offset() {
    let test_store = test_store();
    let mut memory = MemorySource::default();
    let top = memory.image(&[layer("a")]);
    let faltering = FailingSource { memory: &memory, fetched_from: AtomicU64::new(0) };
    let mut attempts = 0;
    while let Err(error) = assemble(&test_store, &faltering, &top) {
        assert!(error.to_string().contains("the line is dead"), "{error}");
        attempts += 1;
        assert!(attempts < 100, "no progress is kept");
    }
    assert!(attempts > 3 && faltering.fetched_from.into_inner() > 0);
    assert_store_is_intact(&test_store.store);
}

#[test]
fn wrong_content_is_refused_and_leaves_nothing() {
    let mut memory = MemorySource::default();
    let top = memory.image(&[layer("a")]);
    for (digest, bytes) in &memory.0.clone() {
        let test_store = test_store();
        let (mut wrong, mut short, mut long) = (bytes.clone(), bytes.clone(), bytes.clone());
        wrong[10] ^= 1;
        short.pop();
        long.push(b' ');
        for lie in [wrong, short, long] {
            memory.0.insert(*digest, lie);
            assert!(assemble(&test_store, &memory, &top).is_err());
            assert!(test_store.store.images().unwrap().is_empty());
            test_store.store.sweep().unwrap();
        }
        assert!(test_store.store.snapshots.list().unwrap().is_empty());
        memory.0.insert(*digest, bytes.clone());
        assemble(&test_store, &memory, &top).unwrap();
        assert_store_is_intact(&test_store.store);
    }
}

#[test]
fn a_layer_with_another_diff_id_than_the_configuration_is_refused() {
    let test_store = test_store();
    let mut memory = MemorySource::default();
    let real = memory.image(&[layer("a")]);
    let other = memory.put(&format!("{OCI_LAYER}+gzip"), crate::testing::gzip(&layer("b")));
    let mut manifest: serde_json::Value = serde_json::from_slice(&memory.0[&real.digest]).unwrap();
    manifest["layers"] = json!([other]);
    let lying = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    let error = assemble(&test_store, &memory, &lying).unwrap_err();
    assert!(matches!(error, Error::DiffIdMismatch { .. }), "{error}");
    manifest["layers"] = json!([other, other]);
    let counted = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    let error = assemble(&test_store, &memory, &counted).unwrap_err().to_string();
    assert!(error.contains("2 layers") && error.contains("1 diff_ids"), "{error}");
    let artifact = memory.put("application/wasm", b"wasm".to_vec());
    manifest["layers"] = json!([artifact]);
    let artifact = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    let error = assemble(&test_store, &memory, &artifact).unwrap_err().to_string();
    assert!(error.contains("no file system"), "{error}");
    assert!(test_store.store.images().unwrap().is_empty());
}

/// Lacks one blob.
struct IncompleteSource<'a> {
    memory: &'a MemorySource,
    missing: Digest,
}

impl ContentSource for IncompleteSource<'_> {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>> {
        if descriptor.digest == self.missing {
            return Err(Error::Source {
                digest: self.missing,
                reason: "the line is dead".to_owned(),
            });
        }
        self.memory.fetch(descriptor, offset)
    }
}

#[test]
fn a_pull_that_cannot_succeed_leaves_nothing() {
    let test_store = test_store();
    let mut memory = MemorySource::default();
    let kept = test_store.take("kept", &[layer("shared")]).unwrap();
    let before = test_store.store.content.list().unwrap();
    let real = memory.image(&[layer("shared"), layer("a")]);
    let other = memory.put(&format!("{OCI_LAYER}+gzip"), crate::testing::gzip(&layer("b")));
    let mut manifest: serde_json::Value = serde_json::from_slice(&memory.0[&real.digest]).unwrap();
    manifest["layers"][1] = json!(other);
    let lying = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    assert!(matches!(assemble(&test_store, &memory, &lying), Err(Error::DiffIdMismatch { .. })));
    assert_eq!(test_store.store.content.list().unwrap(), before);
    assert_eq!(test_store.store.snapshots.list().unwrap(), kept.chain_ids());
    assert_store_is_intact(&test_store.store);
}

#[test]
fn content_of_a_broken_pull_is_kept_for_a_day() {
    let test_store = test_store();
    let store = &test_store.store;
    let mut memory = MemorySource::default();
    let top = memory.image(&[layer("first"), layer("second")]);
    let manifest: serde_json::Value = serde_json::from_slice(&memory.0[&top.digest]).unwrap();
    let missing = Digest::parse(manifest["layers"][1]["digest"].as_str().unwrap()).unwrap();
    let lacking = IncompleteSource { memory: &memory, missing };
    let left = || store.content.list().unwrap().len();
    let a_day_passes = || {
        let long_ago = std::time::SystemTime::now() - store.limits.partial_age;
        for (digest, _) in store.content.list().unwrap() {
            let blob = fs::File::open(store.content.path(&digest)).unwrap();
            blob.set_modified(long_ago).unwrap();
        }
    };
    assert!(matches!(assemble(&test_store, &lacking, &top), Err(Error::Source { .. })));
    assert_eq!(left(), 3, "manifest, configuration and a layer for the next attempt");
    assert_eq!(store.sweep().unwrap(), crate::collect::Swept::default());
    assert_eq!(left(), 3);
    // Removed by the next startup's sweep, if there is no next attempt.
    a_day_passes();
    assert_eq!(store.sweep().unwrap().unused, 3);
    assert_eq!(left(), 0);
    // Removed by the next failed pull.
    assemble(&test_store, &lacking, &top).unwrap_err();
    a_day_passes();
    let mut others = MemorySource::default();
    let other = others.image(&[layer("other")]);
    let nothing = IncompleteSource { memory: &others, missing: other.digest };
    assemble(&test_store, &nothing, &other).unwrap_err();
    assert_eq!(left(), 0);
    // Content of an image is old too, and stays.
    assemble(&test_store, &memory, &top).unwrap();
    a_day_passes();
    assert_eq!(store.sweep().unwrap().unused, 0);
    assert_store_is_intact(store);
}

#[test]
fn indexes_lead_to_the_manifest_for_this_machine() {
    let test_store = test_store();
    let mut memory = MemorySource::default();
    let host = Platform::host().architecture;
    let ours = memory.image(&[layer("ours")]);
    let foreign = json!({ "architecture": "s390x", "os": "linux" });
    let theirs = memory.image_for(&[layer("theirs")], &foreign);
    let with = |descriptor: &Descriptor, os: &str, architecture: &str| {
        let mut value = serde_json::to_value(descriptor).unwrap();
        value["platform"] = json!({ "os": os, "architecture": architecture });
        value
    };
    let index = |memory: &mut MemorySource, manifests: &[serde_json::Value]| {
        let text = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests });
        memory.put(OCI_INDEX, text.to_string().into_bytes())
    };
    let attestation = with(&theirs, "unknown", "unknown");
    let others = [attestation.clone(), with(&theirs, "linux", "s390x")];
    let plain = index(&mut memory, &[&others[..], &[with(&ours, "linux", &host)]].concat());
    let id = assemble(&test_store, &memory, &plain).unwrap();
    let record = test_store.store.image("it").unwrap();
    assert_eq!((record.id, record.names.values().next()), (id, Some(&plain.digest)));
    assert!(record.digests.iter().next().unwrap().ends_with(&plain.digest.to_string()));
    let without_own_layers = index(&mut memory, &others);
    let nested =
        [serde_json::to_value(&without_own_layers).unwrap(), serde_json::to_value(&plain).unwrap()];
    let nested = index(&mut memory, &nested);
    assert_eq!(assemble(&test_store, &memory, &nested).unwrap(), id, "an index in an index");
    let error = assemble(&test_store, &memory, &without_own_layers).unwrap_err();
    assert!(matches!(error, Error::NoPlatform { .. }), "{error}");
    assert!(error.to_string().contains("linux/s390x"), "{error}");
    assert!(matches!(assemble(&test_store, &memory, &theirs), Err(Error::NoPlatform { .. })));
    let mut deep = plain;
    for _ in 0..5 {
        deep = index(&mut memory, &[serde_json::to_value(&deep).unwrap()]);
    }
    let error = assemble(&test_store, &memory, &deep).unwrap_err().to_string();
    assert!(error.contains("too deep"), "{error}");
    let mut disguised = ours.clone();
    disguised.media_type = OCI_INDEX.to_owned();
    let error = assemble(&test_store, &memory, &disguised).unwrap_err().to_string();
    assert!(error.contains("announced as an index"), "{error}");
}

#[test]
fn verify_finds_damage() {
    let test_store = test_store();
    let record = test_store.take("it", &[layer("a"), layer("b")]).unwrap();
    let store = &test_store.store;
    let blob = record.layers[0].digest;
    let path = store.content.path(&blob);
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 1;
    fs::write(&path, &bad).unwrap();
    assert_eq!(store.verify(Thoroughness::Quick).unwrap(), []);
    let found = store.verify(Thoroughness::Full).unwrap();
    assert!(matches!(found[..], [StoreDefect::BlobDigest { .. }]), "{found:?}");
    fs::write(&path, b"short").unwrap();
    let found = store.verify(Thoroughness::Quick).unwrap();
    assert!(matches!(found[..], [StoreDefect::BlobSize { found: 5, .. }]), "{found:?}");
    fs::remove_file(&path).unwrap();
    let chain = record.chain_ids()[1];
    let snapshot = store.snapshots.files(&chain);
    fs::remove_dir_all(snapshot.parent().unwrap()).unwrap();
    let found = store.verify(Thoroughness::Quick).unwrap();
    assert_eq!(
        found,
        [
            StoreDefect::BlobMissing { image: record.id, blob },
            StoreDefect::SnapshotMissing { image: record.id, chain },
        ]
    );
    test_store.take("it", &[layer("a"), layer("b")]).unwrap();
    assert_store_is_intact(store);
}

#[test]
fn sweep_removes_unfinished_content_and_never_finished_content() {
    let test_store = test_store();
    let store = &test_store.store;
    test_store.take("it", &[layer("a")]).unwrap();
    store.create_view("kept", "it").unwrap();
    let unused = store.content.put(b"whole, though nobody uses it").unwrap();
    let root = store.root();
    fs::create_dir_all(root.join("snapshots/.unfinished-1/fs/deep")).unwrap();
    fs::create_dir_all(root.join("views/half/changes")).unwrap();
    fs::create_dir_all(root.join("trash/x/y")).unwrap();
    for file in
        ["sessions/dead", "leases/.unfinished-2", ".unfinished-3", "content/ingest/.unfinished-4"]
    {
        fs::write(root.join(file), "x").unwrap();
    }
    let live = store.snapshots.begin().unwrap();
    let swept = store.sweep().unwrap();
    assert_eq!((swept.ingests, swept.snapshots, swept.views, swept.files), (1, 1, 1, 2));
    assert!(live.files().is_dir(), "what somebody makes stays");
    for gone in ["snapshots/.unfinished-1", "views/half", "trash/x", "sessions/dead"] {
        assert!(!root.join(gone).exists(), "{gone}");
    }
    assert!(store.content.size(&unused).unwrap().is_some());
    assert!(store.view("kept").unwrap().is_some() && store.image("it").is_ok());
    drop(live);
    assert_eq!(store.sweep().unwrap(), crate::collect::Swept::default());
    assert_store_is_intact(store);
}

/// Collecting while other threads add and remove images never removes content they use.
#[test]
fn collect_never_takes_content_in_use_by_other_threads() {
    let test_store = test_store();
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let test_store = &test_store;
            scope.spawn(move || {
                for round in 0..6 {
                    let name = format!("image-{worker}");
                    let layers = [layer("shared"), layer(&format!("{worker}-{}", round % 2))];
                    test_store.take(&name, &layers).unwrap();
                    let view = format!("view-{worker}-{round}");
                    test_store.store.create_view(&view, &name).unwrap();
                    test_store.store.remove(&name).unwrap();
                    test_store.store.remove_view(&view).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..30 {
                test_store.store.collect().unwrap();
                test_store.store.sweep().unwrap();
            }
        });
    });
    assert_store_is_intact(&test_store.store);
    test_store.store.collect().unwrap();
    assert!(test_store.store.snapshots.list().unwrap().is_empty());
    assert!(test_store.store.content.list().unwrap().is_empty());
}

#[test]
fn progress_is_reported_as_values() {
    #[derive(Default)]
    struct RecordedSteps(std::sync::Mutex<Vec<ProgressStep>>);
    impl ProgressListener for RecordedSteps {
        fn step(&self, step: ProgressStep) {
            self.0.lock().unwrap().push(step);
        }
    }
    let test_store = test_store();
    let mut memory = MemorySource::default();
    let top = memory.image(&[layer("a"), layer("b"), layer("c")]);
    for again in [false, true] {
        let heard = RecordedSteps::default();
        test_store.store.assemble(&memory, &top, &ImageNaming::default(), &heard).unwrap();
        let steps = heard.0.into_inner().unwrap();
        let mut arrived: BTreeMap<Digest, u64> = BTreeMap::new();
        for step in &steps {
            match step {
                ProgressStep::Received { digest: Some(digest), done, .. } if !again => {
                    arrived.insert(*digest, *done);
                }
                ProgressStep::Present { digest, bytes } if again => {
                    arrived.insert(*digest, *bytes);
                }
                ProgressStep::Layers { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let sizes = memory.0.iter().map(|(digest, bytes)| (*digest, bytes.len() as u64));
        assert_eq!(arrived, sizes.collect());
        assert!(steps.contains(&ProgressStep::Layers { done: 3, of: 3 }));
    }
}
