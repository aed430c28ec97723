//! Killed at any instant: a process that imports, unpacks, views and removes in a loop is killed
//! without warning, and what it leaves is whole after a sweep.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use node_testkit::images::{BUSYBOX, busybox};

use super::ImportOptions;
use crate::collect::Thoroughness;
use crate::durable::{UNFINISHED, names_in};
use crate::limits::Limits;
use crate::platform::Platform;
use crate::progress::Silent;
use crate::reference::Reference;
use crate::store::Store;
use crate::testing::Tar;

const PLACE: &str = "IMAGE_STORE_KILL_PLACE";
const ROUNDS: usize = 5;
const SEED: u64 = 0x6b65_656c_736f_6e21;

fn open(place: &Path) -> Store {
    Store::open(&place.join("store"), Limits::default(), Platform::host()).unwrap()
}

/// Everything that changes a store, over and over.
fn work(place: &Path, archives: &[PathBuf]) {
    let store = open(place);
    let options = ImportOptions::default();
    for round in 0.. {
        for archive in archives {
            store.import(archive, &options, &Silent).unwrap();
        }
        let many = ImportOptions { name: Reference::parse("many").ok(), ..options.clone() };
        store.import(&place.join("many"), &many, &Silent).unwrap();
        let view = format!("view-{}", round % 3);
        store.create_view(&view, BUSYBOX).unwrap();
        store.remove(BUSYBOX).unwrap();
        store.collect().unwrap();
        store.remove_view(&view).unwrap();
        store.remove("many").unwrap();
        store.collect().unwrap();
    }
}

fn start(place: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["import::kills::a_killed_import_leaves_a_whole_store", "--exact", "--nocapture"])
        .env(PLACE, place)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_import_leaves_a_whole_store() {
    let image = busybox().unwrap();
    let archives = [image.oci_archive().unwrap(), image.docker_archive().unwrap()];
    if let Some(place) = std::env::var_os(PLACE) {
        work(Path::new(&place), &archives);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let many = (0..300).fold(Tar::new(), |tar, at| tar.file(&format!("d{}/f{at}", at % 7), "x"));
    std::fs::create_dir(place.join("many")).unwrap();
    let mut archive = tar::Archive::new(std::io::Cursor::new(many.bytes()));
    archive.unpack(place.join("many")).unwrap();
    drop(open(place));
    let mut random = SEED;
    let mut was_busy = 0;
    for round in 0..ROUNDS {
        let mut child = start(place);
        // A xorshift: the same instants in every run, as far as a machine can.
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
        store.import(archive, &ImportOptions::default(), &Silent).unwrap();
    }
    for view in store.list_views().unwrap() {
        store.remove_view(&view).unwrap();
    }
    store.remove("many").unwrap();
    store.collect().unwrap();
    assert_eq!(store.verify(Thoroughness::Full).unwrap(), []);
    let record = store.image(BUSYBOX).unwrap();
    assert_eq!(store.snapshots.list().unwrap(), record.chains());
    assert_eq!(store.content.list().unwrap().len(), record.blobs.len());
}
