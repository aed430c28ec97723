//! Imports of every format, from the test image builder and hand-written; broken archives; and an
//! unpacked busybox compared with the output of `tar` for the same layer.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use node_testkit::images::{BUSYBOX, TestImage, busybox};
use serde_json::json;

use super::{ImportOptions, Imported};
use crate::collect::Thoroughness;
use crate::digest::Digest;
use crate::error::Result;
use crate::limits::Limits;
use crate::platform::Platform;
use crate::progress::NoProgress;
use crate::reference::ImageReference;
use crate::testing::{
    MemorySource, Tar, TestStore, gzip, is_root, listing, test_store, test_store_with,
};

fn import(test_store: &TestStore, path: &Path, name: Option<&str>) -> Result<Vec<Imported>> {
    let name = name.map(|name| ImageReference::parse(name).unwrap());
    let options = ImportOptions { name, ..ImportOptions::default() };
    test_store.store.import(path, &options, &NoProgress)
}

fn import_bytes(test_store: &TestStore, bytes: &[u8]) -> Result<Vec<Imported>> {
    test_store.store.import_stream("it", bytes, &ImportOptions::default(), &NoProgress)
}

fn assert_store_is_intact(test_store: &TestStore) {
    assert_eq!(test_store.store.verify(Thoroughness::Full).unwrap(), []);
    assert_eq!(test_store.store.collect().unwrap(), crate::collect::Collected::default());
}

fn small_image() -> TestImage {
    TestImage::new("example.com/small:v1")
        .with_bytes("/etc/motd", 0o640, "hello")
        .with_link("/motd", "etc/motd")
        .with_directory("/tmp", 0o1777)
        .configured(|config| config.cmd = vec!["/bin/true".to_owned()])
}

/// The agent takes a digest of the repository for the trace of a pull: an imported image that had
/// one would count as pulled with the credentials of a pull that never ended.
#[test]
fn an_imported_image_has_a_name_by_digest_only_where_the_archive_gives_one() {
    let built = small_image().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("oci.tar");
    built.write_oci_archive(&archive).unwrap();
    let test_store = test_store();
    let imported = import(&test_store, &archive, None).unwrap();
    assert!(imported[0].record.digests.is_empty(), "{:?}", imported[0].record.digests);
    let (_, digest) = imported[0].record.names.first_key_value().unwrap();
    let named = format!("example.com/small@{digest}");
    let imported = import(&test_store, &archive, Some(&named)).unwrap();
    assert_eq!(imported[0].record.digests.len(), 1);
    assert_eq!(test_store.store.image(&named).unwrap().id, imported[0].record.id);
}

#[test]
fn every_archive_format_gives_the_same_image() {
    let built = small_image().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    built.write_oci_layout(&at("layout")).unwrap();
    built.write_oci_archive(&at("oci.tar")).unwrap();
    built.write_docker_archive(&at("docker.tar")).unwrap();
    let oci = fs::read(at("oci.tar")).unwrap();
    fs::write(at("oci.tar.gz"), gzip(&oci)).unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    fs::write(at("oci.tar.zst"), ruzstd::encoding::compress_to_vec(&oci[..], level)).unwrap();
    let id = Digest::parse(&built.config.digest).unwrap();
    for form in ["layout", "oci.tar", "oci.tar.gz", "oci.tar.zst", "docker.tar"] {
        let test_store = test_store();
        let imported =
            import(&test_store, &at(form), None).unwrap_or_else(|e| panic!("{form}: {e}"));
        assert_eq!(imported.len(), 1, "{form}");
        let record = test_store.store.image("example.com/small:v1").unwrap();
        assert_eq!((record.id, &imported[0].record), (id, &record), "{form}");
        let files = test_store.store.snapshots.files(&record.chain_ids()[0]);
        assert_eq!(fs::read_to_string(files.join("motd")).unwrap(), "hello", "{form}");
        let config = test_store.store.image_config(&record).unwrap();
        assert_eq!(config.config.cmd, ["/bin/true"], "{form}");
        assert_store_is_intact(&test_store);
        // A second import changes nothing; another format adds to the same image.
        import(&test_store, &at(form), None).unwrap();
        import(&test_store, &at("docker.tar"), Some("renamed")).unwrap();
        assert_eq!(test_store.store.images().unwrap().len(), 1, "{form}");
        assert_eq!(test_store.store.image("renamed").unwrap().id, id, "{form}");
        assert_store_is_intact(&test_store);
        assert!(test_store.store.remove("renamed").unwrap());
        test_store.store.collect().unwrap();
        assert!(test_store.store.content.list().unwrap().is_empty(), "{form}");
    }
}

#[test]
fn unpacking_busybox_gives_the_same_files_as_tar() {
    if !is_root() {
        eprintln!("skipped: owners need root");
        return;
    }
    let image = busybox().unwrap();
    let test_store = test_store();
    import(&test_store, &image.oci_archive().unwrap(), None).unwrap();
    let record = test_store.store.image(BUSYBOX).unwrap();
    let ours = test_store.store.snapshots.files(&record.chain_ids()[0]);
    let theirs = test_store.dir.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let tar = test_store.dir.path().join("layer.tar");
    fs::write(&tar, image.build().unwrap().layer_tar.bytes).unwrap();
    let status = Command::new("tar")
        .args(["--extract", "--same-permissions", "--numeric-owner", "--xattrs", "--file"])
        .arg(&tar)
        .arg("--directory")
        .arg(&theirs)
        .status()
        .unwrap();
    assert!(status.success());
    // The root itself is not an entry of the layer.
    let entries = |root: &Path| {
        listing(root).into_iter().filter(|line| !line.starts_with(' ')).collect::<Vec<_>>()
    };
    let (ours, theirs) = (entries(&ours), entries(&theirs));
    assert!(ours.len() > 100, "{}", ours.len());
    assert_eq!(ours, theirs);
}

#[test]
fn a_plain_dir_is_an_image_of_one_layer() {
    let test_store = test_store();
    let source = test_store.dir.path().join("source");
    fs::create_dir_all(source.join("bin")).unwrap();
    fs::write(source.join("bin/tool"), "tool").unwrap();
    fs::hard_link(source.join("bin/tool"), source.join("bin/second")).unwrap();
    symlink("/etc/passwd", source.join("link")).unwrap();
    let long = format!("{}/{}", "l".repeat(120), "n".repeat(120));
    fs::create_dir(source.join("l".repeat(120))).unwrap();
    fs::write(source.join(&long), "long").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    let attribute = rustix::fs::setxattr(
        source.join("bin/tool"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    );
    let error = import(&test_store, &source, None).unwrap_err().to_string();
    assert!(error.contains("give one"), "{error}");
    let first = import(&test_store, &source, Some("mine:v1")).unwrap();
    let again = import(&test_store, &source, Some("mine:v2")).unwrap();
    assert_eq!(first[0].record.id, again[0].record.id, "the same folder, the same image");
    let files = test_store.store.snapshots.files(&again[0].record.chain_ids()[0]);
    let (mut theirs, ours) = (listing(&source), listing(&files));
    theirs.retain(|line| !line.starts_with("socket"));
    assert_eq!(ours, theirs);
    let mut note = [0; 10];
    if attribute.is_ok() {
        let length = rustix::fs::getxattr(files.join("bin/second"), "user.note", &mut note[..]);
        assert_eq!(&note[..length.unwrap()], b"kept");
    }
    assert_store_is_intact(&test_store);
}

/// An OCI archive of these files.
fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let add = |tar: Tar, (path, bytes): &(&str, Vec<u8>)| {
        tar.entry(tar::EntryType::Regular, path, bytes, |_| {})
    };
    files.iter().fold(Tar::new(), add).bytes()
}

#[test]
fn the_index_of_an_archive_may_list_several_images_and_platforms() {
    let mut memory = MemorySource::default();
    let host = Platform::host().architecture;
    let one = memory.image(&[Tar::new().file("one", "1").bytes()]);
    let two = memory.image(&[Tar::new().file("two", "2").bytes()]);
    let foreign_base = json!({ "architecture": "s390x", "os": "linux" });
    let foreign = memory.image_for(&[Tar::new().file("f", "f").bytes()], &foreign_base);
    let named = |descriptor: &crate::spec::Descriptor, name: &str, architecture: &str| {
        let mut value = serde_json::to_value(descriptor).unwrap();
        value["platform"] = json!({ "os": "linux", "architecture": architecture });
        value["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        value
    };
    let index = json!({ "schemaVersion": 2, "manifests": [
        named(&foreign, "example.com/one:v1", "s390x"),
        named(&one, "example.com/one:v1", &host),
        named(&two, "example.com/two:v1", &host),
        named(&foreign, "example.com/foreign:v1", "s390x"),
    ]});
    let names: Vec<_> =
        memory.0.keys().map(|digest| format!("blobs/sha256/{}", digest.hex())).collect();
    let mut files: Vec<(&str, Vec<u8>)> =
        names.iter().map(String::as_str).zip(memory.0.values().cloned()).collect();
    files.push(("index.json", index.to_string().into_bytes()));
    let test_store = test_store();
    let imported = import_bytes(&test_store, &archive(&files)).unwrap();
    let names: Vec<_> = imported.iter().map(|image| image.names[0].to_string()).collect();
    assert_eq!(names, ["example.com/one:v1", "example.com/two:v1"]);
    assert!(test_store.store.image("example.com/foreign:v1").is_err());
    assert_store_is_intact(&test_store);
}

#[test]
fn layers_shared_by_links_in_a_docker_archive_are_found() {
    let layer = Tar::new().file("a", "x").bytes();
    let diff_id = Digest::of(&layer);
    let config = json!({ "architecture": Platform::host().architecture, "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [diff_id, diff_id] } });
    let manifest = json!([{ "Config": "config.json", "RepoTags": ["a:1", "b:2"],
        "Layers": ["one/layer.tar", "two/layer.tar"] }]);
    let tar = Tar::new()
        .symlink("two/layer.tar", "../one/layer.tar")
        .entry(tar::EntryType::Regular, "one/layer.tar", &gzip(&layer), |_| {})
        .file("config.json", &config.to_string())
        .file("repositories", "{}")
        .file("one/VERSION", "1.0")
        .file("unrelated", "nobody needs this")
        .file("manifest.json", &manifest.to_string())
        .bytes();
    let test_store = test_store();
    let imported = import_bytes(&test_store, &tar).unwrap();
    assert_eq!(imported[0].names.len(), 2);
    assert_eq!(test_store.store.image("a:1").unwrap(), test_store.store.image("b:2").unwrap());
    assert_eq!(test_store.store.snapshots.list().unwrap().len(), 2);
    assert_store_is_intact(&test_store);
}

/// The defect, the archive, and a word of the expected error.
fn broken_archives() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let built = small_image().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("oci.tar");
    built.write_oci_archive(&path).unwrap();
    let good = fs::read(&path).unwrap();
    let blob =
        |bytes: &[u8]| (format!("blobs/sha256/{}", Digest::of(b"other").hex()), bytes.to_vec());
    let (lying_path, lying) = blob(b"not what the name says");
    let t = Tar::new;
    vec![
        ("nothing", vec![], "neither index.json"),
        ("garbage", vec![b'g'; 2000], "no tar"),
        ("truncated", good[..good.len() / 2].to_vec(), "truncated"),
        ("cut compression", gzip(&good)[..200].to_vec(), "it:"),
        ("another tar", t().file("hello", "x").bytes(), "neither index.json"),
        ("a blob with other bytes", archive(&[(&lying_path, lying)]), "digest is"),
        ("a blob with a wrong name", t().file("blobs/sha256/xyz", "x").bytes(), "not named"),
        ("a path out", t().file("../escaped", "x").bytes(), "\"..\""),
        (
            "an empty index",
            t().file("index.json", r#"{"schemaVersion":2,"manifests":[]}"#).bytes(),
            "lists no image",
        ),
        ("an index that is none", t().file("index.json", "[]").bytes(), "no JSON object"),
        ("a manifest list that is none", t().file("manifest.json", "{}").bytes(), "manifest.json"),
        ("an empty manifest list", t().file("manifest.json", "[]").bytes(), "lists no image"),
    ]
}

fn broken_documents() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let t = Tar::new;
    vec![
        (
            "a missing configuration",
            t().file("manifest.json", r#"[{"Config":"c","Layers":[]}]"#).bytes(),
            "not in it",
        ),
        (
            "a configuration outside",
            t().file("manifest.json", r#"[{"Config":"../../etc/passwd","Layers":[]}]"#).bytes(),
            "\"..\"",
        ),
        (
            "links in a circle",
            t().symlink("c", "d")
                .symlink("d", "c")
                .file("manifest.json", r#"[{"Config":"c","Layers":[]}]"#)
                .bytes(),
            "too many links",
        ),
        (
            "a link outside",
            t().symlink("c", "/etc/passwd")
                .file("manifest.json", r#"[{"Config":"c","Layers":[]}]"#)
                .bytes(),
            "not in it",
        ),
        (
            "a bad name",
            t().file("c", "{}")
                .file("manifest.json", r#"[{"Config":"c","RepoTags":["A b"],"Layers":[]}]"#)
                .bytes(),
            "image name",
        ),
        (
            "an index of content that is not there",
            t().file(
                "index.json",
                &format!(
                    r#"{{"schemaVersion":2,"manifests":[{{"digest":"{}","size":3}}]}}"#,
                    Digest::of(b"x")
                ),
            )
            .bytes(),
            "not in the store",
        ),
        (
            "too many files",
            (0..200).fold(t(), |tar, at| tar.file(&format!("{at}"), "")).bytes(),
            "exceeds the limit of 100",
        ),
        ("a bomb", gzip(&archive(&[("bomb", vec![0; 30 << 20])])), "exceeds the limit"),
    ]
}

#[test]
fn broken_archives_are_refused_and_leave_nothing() {
    for (name, bytes, words) in broken_archives().into_iter().chain(broken_documents()) {
        let limits = Limits { archive_entries: 100, archive_bytes: 20 << 20, ..Limits::default() };
        let test_store = test_store_with(limits);
        let result = import_bytes(&test_store, &bytes);
        let error = result.expect_err(name).to_string();
        assert!(error.contains(words), "{name}: {error}; expected {words:?}");
        assert!(test_store.store.images().unwrap().is_empty(), "{name}");
        assert!(!test_store.dir.path().join("escaped").exists(), "{name}");
        test_store.store.sweep().unwrap();
        let left = test_store.store.content.list().unwrap();
        assert!(left.is_empty(), "{name} left {left:?}");
    }
}

#[test]
fn a_layout_does_not_lead_out_of_its_dir() {
    let dir = tempfile::tempdir().unwrap();
    let layout = dir.path().join("layout");
    small_image().build().unwrap().write_oci_layout(&layout).unwrap();
    let blobs = layout.join("blobs/sha256");
    let paths: Vec<PathBuf> =
        fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in &paths {
        let outside = dir.path().join("outside");
        fs::rename(path, &outside).unwrap();
        symlink(&outside, path).unwrap();
        let error = import(&test_store(), &layout, None).unwrap_err().to_string();
        assert!(error.contains("opening"), "{error}");
        fs::remove_file(path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let error = import(&test_store(), &layout, None).unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
        fs::remove_file(path).unwrap();
        fs::rename(&outside, path).unwrap();
    }
    import(&test_store(), &layout, None).unwrap();
}
