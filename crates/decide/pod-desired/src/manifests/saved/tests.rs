//! The form of a saved manifest on disk.

use super::*;

#[test]
fn golden_saved_manifest() {
    let text = r#"{"version": 1, "source": "file", "file": "web.yaml", "manifest": "kind: Pod"}"#;
    let saved: SavedManifest = serde_json::from_str(text).expect("a saved manifest");
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(serde_json::to_value(&saved).expect("JSON"), expected);
}
