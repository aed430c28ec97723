//! The whole store: versions, sharing, removal, interrupted sources, wrong documents, damage.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::Store;
use crate::assemble::{Naming, Source};
use crate::collect::{Problem, Thoroughness};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::platform::Platform;
use crate::progress::{Progress, Silent, Step};
use crate::reference::Reference;
use crate::spec::{Descriptor, OCI_INDEX, OCI_LAYER, OCI_MANIFEST};
use crate::testing::{Bench, Memory, Tar, bench};

fn layer(name: &str) -> Vec<u8> {
    Tar::new().file(name, name).bytes()
}

fn assemble(bench: &Bench, memory: &dyn Source, top: &Descriptor) -> Result<Digest> {
    let names = vec![Reference::parse("it").unwrap()];
    let naming = Naming { names, ..Naming::default() };
    Ok(bench.store.assemble(memory, top, &naming, &Silent)?.id)
}

fn whole(store: &Store) {
    assert_eq!(store.verify(Thoroughness::Full).unwrap(), []);
}

#[test]
fn a_folder_of_another_version_or_of_somebody_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        Store::open(&folder.path().join(name), Limits::default(), Platform::host())
            .map_err(|error| error.to_string())
    };
    open("new").unwrap();
    open("new").unwrap();
    fs::write(folder.path().join("new/version"), "keelson-image-store 2\n").unwrap();
    let error = open("new").unwrap_err();
    assert!(error.contains("keelson-image-store 2") && error.contains("format 1"), "{error}");
    fs::create_dir(folder.path().join("strange")).unwrap();
    fs::write(folder.path().join("strange/photo.jpg"), "x").unwrap();
    let error = open("strange").unwrap_err();
    assert!(error.contains("photo.jpg"), "{error}");
}

#[test]
fn images_share_layers_and_removal_frees_what_nobody_uses() {
    let bench = bench();
    let store = &bench.store;
    bench.take("one", &[layer("base"), layer("one")]).unwrap();
    let two = bench.take("two", &[layer("base"), layer("two")]).unwrap();
    assert_eq!(store.snapshots.list().unwrap().len(), 3);
    assert_eq!(store.content.list().unwrap().len(), 3 + 2 + 2);
    assert_eq!(store.images().unwrap().len(), 2);
    assert_eq!(store.image_usage(&two).unwrap().inodes, 4);
    assert!(store.usage().unwrap().bytes > 0);
    whole(store);
    assert!(store.remove("one").unwrap());
    assert!(!store.remove("one").unwrap());
    let collected = store.collect().unwrap();
    assert_eq!((collected.snapshots, collected.blobs), (1, 3));
    assert!(store.content.size(&two.layers[0].digest).unwrap().is_some(), "the shared layer");
    whole(store);
    assert_eq!(store.collect().unwrap(), crate::collect::Collected::default());
    assert!(store.untag(&Reference::parse("two").unwrap()).unwrap());
    assert_eq!(store.collect().unwrap().blobs, 0, "an image without a name is an image");
    assert!(store.remove(&two.id.to_string()).unwrap());
    store.collect().unwrap();
    assert!(store.content.list().unwrap().is_empty() && store.snapshots.list().unwrap().is_empty());
}

#[test]
fn names_flags_and_configuration() {
    let bench = bench();
    let store = &bench.store;
    let record = bench.take("one", &[layer("a")]).unwrap();
    store.tag("one", &Reference::parse("example.com/other:v1").unwrap()).unwrap();
    store.pin("example.com/other:v1", true).unwrap();
    let found = store.image(&record.id.hex()[..12]).unwrap();
    let names: Vec<_> = found.names.keys().cloned().collect();
    assert_eq!(names, ["docker.io/library/one:latest", "example.com/other:v1"]);
    assert!(found.pinned && !found.preloaded);
    assert_eq!(found.digests.len(), 1);
    assert_eq!(store.image_config(&found).unwrap().os, "linux");
}

/// Delivers half of the content, then fails; records the requested offsets.
struct Faltering<'a> {
    memory: &'a Memory,
    asked_from: AtomicU64,
}

impl Source for Faltering<'_> {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>> {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the line is dead"))
            }
        }
        self.asked_from.fetch_add(offset, Ordering::Relaxed);
        let half = (descriptor.size - offset).div_ceil(2);
        Ok(Box::new(self.memory.fetch(descriptor, offset)?.take(half).chain(Broken)))
    }
}

#[test]
fn an_interrupted_fetch_goes_on_where_it_ended() {
    let bench = bench();
    let mut memory = Memory::default();
    let top = memory.image(&[layer("a")]);
    let faltering = Faltering { memory: &memory, asked_from: AtomicU64::new(0) };
    let mut attempts = 0;
    while let Err(error) = assemble(&bench, &faltering, &top) {
        assert!(error.to_string().contains("the line is dead"), "{error}");
        attempts += 1;
        assert!(attempts < 100, "no progress is kept");
    }
    assert!(attempts > 3 && faltering.asked_from.into_inner() > 0);
    whole(&bench.store);
}

#[test]
fn wrong_content_is_refused_and_leaves_nothing() {
    let mut memory = Memory::default();
    let top = memory.image(&[layer("a")]);
    for (digest, bytes) in &memory.0.clone() {
        let bench = bench();
        let (mut wrong, mut short, mut long) = (bytes.clone(), bytes.clone(), bytes.clone());
        wrong[10] ^= 1;
        short.pop();
        long.push(b' ');
        for lie in [wrong, short, long] {
            memory.0.insert(*digest, lie);
            assert!(assemble(&bench, &memory, &top).is_err());
            assert!(bench.store.images().unwrap().is_empty());
            bench.store.sweep().unwrap();
        }
        assert!(bench.store.snapshots.list().unwrap().is_empty());
        memory.0.insert(*digest, bytes.clone());
        assemble(&bench, &memory, &top).unwrap();
        whole(&bench.store);
    }
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says_is_refused() {
    let bench = bench();
    let mut memory = Memory::default();
    let real = memory.image(&[layer("a")]);
    let other = memory.put(&format!("{OCI_LAYER}+gzip"), crate::testing::gzip(&layer("b")));
    let mut manifest: serde_json::Value = serde_json::from_slice(&memory.0[&real.digest]).unwrap();
    manifest["layers"] = json!([other]);
    let lying = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    let error = assemble(&bench, &memory, &lying).unwrap_err();
    assert!(matches!(error, Error::DiffIdMismatch { .. }), "{error}");
    manifest["layers"] = json!([other, other]);
    let counted = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    let error = assemble(&bench, &memory, &counted).unwrap_err().to_string();
    assert!(error.contains("2 layers") && error.contains("1 diff_ids"), "{error}");
    let artifact = memory.put("application/wasm", b"wasm".to_vec());
    manifest["layers"] = json!([artifact]);
    let artifact = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    let error = assemble(&bench, &memory, &artifact).unwrap_err().to_string();
    assert!(error.contains("no file system"), "{error}");
    assert!(bench.store.images().unwrap().is_empty());
}

/// Lacks one blob.
struct Lacking<'a> {
    memory: &'a Memory,
    missing: Digest,
}

impl Source for Lacking<'_> {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>> {
        if descriptor.digest == self.missing {
            return Err(Error::Source { digest: self.missing, why: "the line is dead".to_owned() });
        }
        self.memory.fetch(descriptor, offset)
    }
}

#[test]
fn a_pull_that_cannot_succeed_leaves_nothing() {
    let bench = bench();
    let mut memory = Memory::default();
    let kept = bench.take("kept", &[layer("shared")]).unwrap();
    let before = bench.store.content.list().unwrap();
    let real = memory.image(&[layer("shared"), layer("a")]);
    let other = memory.put(&format!("{OCI_LAYER}+gzip"), crate::testing::gzip(&layer("b")));
    let mut manifest: serde_json::Value = serde_json::from_slice(&memory.0[&real.digest]).unwrap();
    manifest["layers"][1] = json!(other);
    let lying = memory.put(OCI_MANIFEST, manifest.to_string().into_bytes());
    assert!(matches!(assemble(&bench, &memory, &lying), Err(Error::DiffIdMismatch { .. })));
    assert_eq!(bench.store.content.list().unwrap(), before);
    assert_eq!(bench.store.snapshots.list().unwrap(), kept.chains());
    whole(&bench.store);
}

#[test]
fn a_pull_that_broke_leaves_what_it_brought_for_a_day() {
    let bench = bench();
    let store = &bench.store;
    let mut memory = Memory::default();
    let top = memory.image(&[layer("first"), layer("second")]);
    let manifest: serde_json::Value = serde_json::from_slice(&memory.0[&top.digest]).unwrap();
    let missing = Digest::parse(manifest["layers"][1]["digest"].as_str().unwrap()).unwrap();
    let lacking = Lacking { memory: &memory, missing };
    let left = || store.content.list().unwrap().len();
    let a_day_passes = || {
        let long_ago = std::time::SystemTime::now() - store.limits.partial_age;
        for (digest, _) in store.content.list().unwrap() {
            let blob = fs::File::open(store.content.path(&digest)).unwrap();
            blob.set_modified(long_ago).unwrap();
        }
    };
    assert!(matches!(assemble(&bench, &lacking, &top), Err(Error::Source { .. })));
    assert_eq!(left(), 3, "manifest, configuration and a layer for the next attempt");
    assert_eq!(store.sweep().unwrap(), crate::collect::Swept::default());
    assert_eq!(left(), 3);
    // Removed by the next startup's sweep, if there is no next attempt.
    a_day_passes();
    assert_eq!(store.sweep().unwrap().unused, 3);
    assert_eq!(left(), 0);
    // Removed by the next failed pull.
    assemble(&bench, &lacking, &top).unwrap_err();
    a_day_passes();
    let mut others = Memory::default();
    let other = others.image(&[layer("other")]);
    let nothing = Lacking { memory: &others, missing: other.digest };
    assemble(&bench, &nothing, &other).unwrap_err();
    assert_eq!(left(), 0);
    // Content of an image is old too, and stays.
    assemble(&bench, &memory, &top).unwrap();
    a_day_passes();
    assert_eq!(store.sweep().unwrap().unused, 0);
    whole(store);
}

#[test]
fn indexes_lead_to_the_manifest_for_this_machine() {
    let bench = bench();
    let mut memory = Memory::default();
    let host = Platform::host().architecture;
    let ours = memory.image(&[layer("ours")]);
    let foreign = json!({ "architecture": "s390x", "os": "linux" });
    let theirs = memory.image_for(&[layer("theirs")], &foreign);
    let with = |descriptor: &Descriptor, os: &str, architecture: &str| {
        let mut value = serde_json::to_value(descriptor).unwrap();
        value["platform"] = json!({ "os": os, "architecture": architecture });
        value
    };
    let index = |memory: &mut Memory, manifests: &[serde_json::Value]| {
        let text = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests });
        memory.put(OCI_INDEX, text.to_string().into_bytes())
    };
    let attestation = with(&theirs, "unknown", "unknown");
    let others = [attestation.clone(), with(&theirs, "linux", "s390x")];
    let plain = index(&mut memory, &[&others[..], &[with(&ours, "linux", &host)]].concat());
    let id = assemble(&bench, &memory, &plain).unwrap();
    let record = bench.store.image("it").unwrap();
    assert_eq!((record.id, record.names.values().next()), (id, Some(&plain.digest)));
    assert!(record.digests.iter().next().unwrap().ends_with(&plain.digest.to_string()));
    let without_ours = index(&mut memory, &others);
    let nested =
        [serde_json::to_value(&without_ours).unwrap(), serde_json::to_value(&plain).unwrap()];
    let nested = index(&mut memory, &nested);
    assert_eq!(assemble(&bench, &memory, &nested).unwrap(), id, "an index in an index");
    let error = assemble(&bench, &memory, &without_ours).unwrap_err();
    assert!(matches!(error, Error::NoPlatform { .. }), "{error}");
    assert!(error.to_string().contains("linux/s390x"), "{error}");
    assert!(matches!(assemble(&bench, &memory, &theirs), Err(Error::NoPlatform { .. })));
    let mut deep = plain;
    for _ in 0..5 {
        deep = index(&mut memory, &[serde_json::to_value(&deep).unwrap()]);
    }
    let error = assemble(&bench, &memory, &deep).unwrap_err().to_string();
    assert!(error.contains("too deep"), "{error}");
    let mut disguised = ours.clone();
    disguised.media_type = OCI_INDEX.to_owned();
    let error = assemble(&bench, &memory, &disguised).unwrap_err().to_string();
    assert!(error.contains("announced as an index"), "{error}");
}

#[test]
fn damage_is_found() {
    let bench = bench();
    let record = bench.take("it", &[layer("a"), layer("b")]).unwrap();
    let store = &bench.store;
    let blob = record.layers[0].digest;
    let path = store.content.path(&blob);
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 1;
    fs::write(&path, &bad).unwrap();
    assert_eq!(store.verify(Thoroughness::Quick).unwrap(), []);
    let found = store.verify(Thoroughness::Full).unwrap();
    assert!(matches!(found[..], [Problem::BlobDigest { .. }]), "{found:?}");
    fs::write(&path, b"short").unwrap();
    let found = store.verify(Thoroughness::Quick).unwrap();
    assert!(matches!(found[..], [Problem::BlobSize { found: 5, .. }]), "{found:?}");
    fs::remove_file(&path).unwrap();
    let chain = record.chains()[1];
    let snapshot = store.snapshots.files(&chain);
    fs::remove_dir_all(snapshot.parent().unwrap()).unwrap();
    let found = store.verify(Thoroughness::Quick).unwrap();
    assert_eq!(
        found,
        [
            Problem::BlobMissing { image: record.id, blob },
            Problem::SnapshotMissing { image: record.id, chain },
        ]
    );
    bench.take("it", &[layer("a"), layer("b")]).unwrap();
    whole(store);
}

#[test]
fn sweeping_removes_half_made_things_and_never_whole_ones() {
    let bench = bench();
    let store = &bench.store;
    bench.take("it", &[layer("a")]).unwrap();
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
    whole(store);
}

/// Collecting while other threads add and remove images never removes content they use.
#[test]
fn collecting_while_others_work() {
    let bench = bench();
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..6 {
                    let name = format!("image-{worker}");
                    let layers = [layer("shared"), layer(&format!("{worker}-{}", round % 2))];
                    bench.take(&name, &layers).unwrap();
                    let view = format!("view-{worker}-{round}");
                    bench.store.create_view(&view, &name).unwrap();
                    bench.store.remove(&name).unwrap();
                    bench.store.remove_view(&view).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..30 {
                bench.store.collect().unwrap();
                bench.store.sweep().unwrap();
            }
        });
    });
    whole(&bench.store);
    bench.store.collect().unwrap();
    assert!(bench.store.snapshots.list().unwrap().is_empty());
    assert!(bench.store.content.list().unwrap().is_empty());
}

#[test]
fn progress_is_told_as_values() {
    #[derive(Default)]
    struct Heard(std::sync::Mutex<Vec<Step>>);
    impl Progress for Heard {
        fn step(&self, step: Step) {
            self.0.lock().unwrap().push(step);
        }
    }
    let bench = bench();
    let mut memory = Memory::default();
    let top = memory.image(&[layer("a"), layer("b"), layer("c")]);
    for again in [false, true] {
        let heard = Heard::default();
        bench.store.assemble(&memory, &top, &Naming::default(), &heard).unwrap();
        let steps = heard.0.into_inner().unwrap();
        let mut arrived: BTreeMap<Digest, u64> = BTreeMap::new();
        for step in &steps {
            match step {
                Step::Received { digest: Some(digest), done, .. } if !again => {
                    arrived.insert(*digest, *done);
                }
                Step::Present { digest, bytes } if again => {
                    arrived.insert(*digest, *bytes);
                }
                Step::Layers { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let sizes = memory.0.iter().map(|(digest, bytes)| (*digest, bytes.len() as u64));
        assert_eq!(arrived, sizes.collect());
        assert!(steps.contains(&Step::Layers { done: 3, of: 3 }));
    }
}
