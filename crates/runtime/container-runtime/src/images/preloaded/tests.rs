//! A directory of images that are present at startup.

use image_store::{Limits, Platform};

use super::*;

/// A handmade OCI layout of an image without layers.
fn layout(dir: &Path, name: &str) {
    let blobs = dir.join("blobs/sha256");
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
    fs::write(dir.join("index.json"), index).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[test]
fn a_dir_is_imported_and_pinned_and_errors_are_returned() {
    let place = tempfile::tempdir().unwrap();
    let images = place.path().join("images");
    fs::create_dir(&images).unwrap();
    layout(&images.join("one"), "registry.test/one:1");
    fs::write(images.join("broken.tar"), "nonsense").unwrap();
    fs::write(images.join(".hidden"), "nonsense").unwrap();
    std::os::unix::fs::symlink("broken.tar", images.join("link.tar")).unwrap();
    let store =
        ImageStore::open(&place.path().join("store"), Limits::default(), Platform::host()).unwrap();
    for _ in 0..2 {
        let errors = import(&store, &images).unwrap();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("broken.tar"), "{errors:?}");
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
    let record: PreloadedFiles = serde_json::from_str(text).unwrap();
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
}
