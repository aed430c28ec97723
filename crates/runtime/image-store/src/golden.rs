//! The records of the store as they are on disk. Stores of earlier versions are read.

use crate::index::ImageIndex;
use crate::lease::ViewLease;
use crate::snapshot::SnapshotRecord;

/// The text is read and written again: a field under another name would be lost on the way.
fn same<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) {
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let value: T = serde_json::from_str(text).expect("the type");
    assert_eq!(serde_json::to_value(&value).expect("JSON"), expected);
}

fn of(text: &str) -> String {
    text.replace("DIGEST", &format!("sha256:{}", "1".repeat(64)))
}

#[test]
fn golden_records() {
    same::<ImageIndex>(&of(r#"{
      "version": 1,
      "images": {
        "DIGEST": {
          "id": "DIGEST",
          "manifest": "DIGEST",
          "names": {"docker.io/library/a:1": "DIGEST"},
          "digests": ["docker.io/library/a@DIGEST"],
          "blobs": {"DIGEST": 3},
          "layers": [{"digest": "DIGEST", "size": 2, "diff_id": "DIGEST"}],
          "pinned": true,
          "preloaded": true
        }
      }
    }"#));
    same::<ViewLease>(&of(
        r#"{"version": 1, "image": "DIGEST", "chains": ["DIGEST"], "writable": true}"#,
    ));
    same::<SnapshotRecord>(&of(r#"{
      "version": 1, "parent": "DIGEST", "diff_id": "DIGEST",
      "usage": {"bytes": 1, "inodes": 2}
    }"#));
}
