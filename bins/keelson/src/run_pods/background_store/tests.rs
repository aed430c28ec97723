//! The form of a background agent's record on disk.

use super::*;

#[test]
fn golden_record() {
    let text = r#"{
      "version": 1, "namespace": "default", "name": "web", "manifest": "/m/web.yaml",
      "text": "kind: Pod"
    }"#;
    let record: BackgroundPodRecord = serde_json::from_str(text).expect("a record");
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(serde_json::to_value(&record).expect("JSON"), expected);
}
