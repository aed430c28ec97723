//! The form of a claim on disk. Agents of other versions on the machine read it.

use super::*;

#[test]
fn golden_claim() {
    let text = r#"{
      "root": "/r", "id": "ab", "pid": 7, "state": "/s", "cgroups": ["keelson"],
      "directories": ["/var/log/pods"], "networkNamespace": "4:1", "bridge": "keelson0",
      "subnets": [{"network": "10.88.0.0", "prefix": 16}],
      "ports": [
        {"transport": "tcp", "number": 80, "address": "10.0.0.1"},
        {"transport": "udp", "number": 53, "address": null},
        {"transport": "sctp", "number": 9, "address": null}
      ]
    }"#;
    let claim: ClaimedResources = serde_json::from_str(text).expect("a claim");
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(serde_json::to_value(&claim).expect("JSON"), expected);
}
