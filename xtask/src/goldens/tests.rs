//! The version check with an outdated golden.

use super::*;

#[test]
fn the_pin_is_read_in_both_forms() {
    assert_eq!(pinned_version("require k8s.io/kubernetes v1.2.3\n"), Some("v1.2.3".into()));
    let block = "require (\n\tk8s.io/kubernetes v1.2.3 // indirect\n)";
    assert_eq!(pinned_version(block), Some("v1.2.3".into()));
    assert_eq!(pinned_version("require other v1.2.3"), None);
}

#[test]
fn an_old_stamp_is_found() {
    assert_eq!(breach_of("a/golden.txt", "# v1.2.3\nx", "v1.2.3"), None);
    assert_eq!(breach_of("goldens/configz-v1.2.3.json", "{}", "v1.2.3"), None);
    assert!(breach_of("a/golden.txt", "# v1.2.30", "v1.2.3").is_some());
    assert!(breach_of("a/golden.txt", "# v1.2.2\nx v1.2.3", "v1.2.3").is_some());
}

#[test]
fn files_are_recognized_as_golden_by_their_names() {
    assert!(is_golden("crates/model/pod-model/src/quantity/golden-pairs.txt"));
    assert!(is_golden("crates/model/node-config/goldens/configz-v1.json"));
    assert!(!is_golden("tests/real-parts/kubernetes/goldens/units/main.go"));
}
