//! The JSON of steps and their answers. The process that runs a step may be of another version than
//! the agent, so the format must not change.

use super::*;

#[test]
fn the_json_of_steps_and_answers_does_not_change() {
    for operation in [
        r#"{"EmptyDirectory": {"name": "v", "group": 1}}"#,
        r#"{"Memory": {"name": "v", "size": 2, "group": 1}}"#,
        r#"{"HugePages": {"name": "v", "page_size": "2Mi", "group": null}}"#,
        r#"{"HostPath": {"path": "/h", "kind": "Directory"}}"#,
        r#"{"Pin": {"volume": "v", "volume_path": "/p", "sub_path": "a/b", "container": "c",
                    "index": 3}}"#,
        r#"{"Release": {"container": "c"}}"#,
        r#""TearDown""#,
    ] {
        let text = format!(r#"{{"root": "/r", "uid": "u", "act": {operation}}}"#);
        let step: VolumeStep = serde_json::from_str(&text).expect("a step");
        let expected: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(serde_json::to_value(&step).expect("JSON"), expected);
    }
    for text in [r#"{"Ok": "/p"}"#, r#"{"Err": {"passing": true, "text": "t"}}"#] {
        let answer: StepAnswer = serde_json::from_str(text).expect("an answer");
        let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(serde_json::to_value(&answer).expect("JSON"), expected);
    }
}
