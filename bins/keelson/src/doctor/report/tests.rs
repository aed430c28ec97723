//! The form of `keelson doctor -o json`, which scripts read.

use super::*;

#[test]
fn golden_report() {
    let finding = |verdict, next_step: Option<&str>| MachineFinding {
        name: "n",
        verdict,
        found: "f".to_owned(),
        next_step: next_step.map(str::to_owned),
    };
    let findings = [
        finding(MachineVerdict::Good, None),
        finding(MachineVerdict::Limited, Some("s")),
        finding(MachineVerdict::Missing, Some("s")),
    ];
    let report: serde_json::Value = serde_json::from_str(&json(&findings)).expect("JSON");
    let expected = serde_json::json!({"usable": false, "findings": [
        {"name": "n", "verdict": "good", "found": "f"},
        {"name": "n", "verdict": "limited", "found": "f", "nextStep": "s"},
        {"name": "n", "verdict": "missing", "found": "f", "nextStep": "s"},
    ]});
    assert_eq!(report, expected);
}
