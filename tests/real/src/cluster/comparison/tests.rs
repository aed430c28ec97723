//! What is left out, and what is found.

use std::collections::BTreeMap;

use serde_json::json;

use super::{ComparedPod, differences, without_numbers};

#[test]
fn numbers_and_identifiers_are_left_out_of_texts() {
    let rows = [
        ("back-off 10s restarting", "back-off Ns restarting"),
        ("Started container main", "Started container main"),
        ("pod=web(0b1c9d1e-7a55-4c11)", "pod=web(ID-ID-ID)"),
        ("dial tcp 10.88.0.5:8080: refused", "dial tcp N.N.N.N:ID: refused"),
        ("a face and a deed", "a face and a deed"),
    ];
    for (text, expected) in rows {
        assert_eq!(without_numbers(text), expected, "{text}");
    }
}

fn reported(status: &serde_json::Value, events: &[&str]) -> BTreeMap<String, ComparedPod> {
    let pod = ComparedPod::new(status, events.iter().map(|&event| event.to_owned()));
    BTreeMap::from([("web".to_owned(), pod)])
}

#[test]
fn the_same_report_of_another_run_does_not_differ() {
    let status = |time: &str, ip: &str, first: &str, second: &str| {
        json!({"phase": "Running", "podIP": ip, "startTime": time,
            "conditions": [{"type": first, "status": "True"}, {"type": second, "status": "True"}]})
    };
    let one = reported(&status("1", "10.0.0.1", "A", "B"), &["Normal Started after 3s"]);
    let other = reported(&status("2", "10.0.0.2", "B", "A"), &["Normal Started after 14s"]);
    assert_eq!(differences(&one, &other), Vec::<String>::new());
}

#[test]
fn every_other_difference_is_named() {
    let reference = reported(
        &json!({"phase": "Failed", "conditions": [{"type": "Ready", "reason": "PodFailed"}]}),
        &["Normal Killing x"],
    );
    let ours = reported(
        &json!({"phase": "Running", "conditions": [{"type": "Ready"}]}),
        &["Normal Started x"],
    );
    assert_eq!(
        differences(&reference, &ours),
        [
            "web/conditions/Ready/reason: reference \"PodFailed\", ours null",
            "web/phase: reference \"Failed\", ours \"Running\"",
            "web event of the reference only: Normal Killing x",
            "web event of ours only: Normal Started x",
        ]
    );
    assert_eq!(differences(&reference, &BTreeMap::new()).len(), 2, "a pod that is missing");
}
