//! A directory of images that are present at startup.

use image_store::{Limits, Platform};

use super::*;

/// A handmade OCI layout of an image without layers.
fn layout(folder: &Path, name: &str) {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |text: String| {
        let digest = image_store::Digest::of(text.as_bytes()).to_string();
        fs::write(blobs.join(digest.trim_start_matches("sha256:")), &text).unwrap();
        (digest, text.len())
    };
    let platform = Platform::host().to_string();
    let mut parts = platform.split('/');
    let (os, machine) = (parts.next().unwrap(), parts.next().unwrap());
    let config = put(format!(
        r#"{{"architecture":"{machine}","os":"{os}","config":{{"Env":["N={name}"]}},
            "rootfs":{{"type":"layers","diff_ids":[]}}}}"#
    ));
    let kind = "application/vnd.oci.image";
    let manifest = put(format!(
        r#"{{"schemaVersion":2,"mediaType":"{kind}.manifest.v1+json","config":{{"mediaType":
            "{kind}.config.v1+json","digest":"{}","size":{}}},"layers":[]}}"#,
        config.0, config.1
    ));
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"{kind}.manifest.v1+json","digest":"{}",
            "size":{},"annotations":{{"io.containerd.image.name":"{name}"}}}}]}}"#,
        manifest.0, manifest.1
    );
    fs::write(folder.join("index.json"), index).unwrap();
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[test]
fn a_folder_is_imported_and_kept_and_what_is_wrong_is_told() {
    let place = tempfile::tempdir().unwrap();
    let images = place.path().join("images");
    fs::create_dir(&images).unwrap();
    layout(&images.join("one"), "registry.test/one:1");
    fs::write(images.join("broken.tar"), "nonsense").unwrap();
    fs::write(images.join(".hidden"), "nonsense").unwrap();
    std::os::unix::fs::symlink("broken.tar", images.join("link.tar")).unwrap();
    let store =
        Store::open(&place.path().join("store"), Limits::default(), Platform::host()).unwrap();
    for _ in 0..2 {
        let problems = import(&store, &images).unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("broken.tar"), "{problems:?}");
        let record = store.image("registry.test/one:1").unwrap();
        assert!(record.preloaded);
        store.collect().unwrap();
        assert!(store.image("registry.test/one:1").is_ok(), "a clean-up leaves it");
    }
    assert!(import(&store, &place.path().join("missing")).is_err());
}

#[test]
fn golden_record_on_disk() {
    let text = r#"{
          "version": 1,
          "files": {"/images/a.tar": {"size": 1, "changed": [2, 3], "images": ["sha256:1"]}}
        }"#;
    let record: Note = serde_json::from_str(text).unwrap();
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
}
