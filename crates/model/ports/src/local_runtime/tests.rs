//! What the local socket answers of the runtime. Clients of other versions read it.

use super::*;

/// The text is read and written again: a field under another name would be lost on the way.
fn same<T: serde::de::DeserializeOwned + Serialize>(text: &str) {
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let value: T = serde_json::from_str(text).expect("the type");
    assert_eq!(serde_json::to_value(&value).expect("JSON"), expected);
}

#[test]
fn golden_answers_of_the_runtime() {
    same::<LocalCommand>(
        r#"{"command": ["sh"], "stdin": true, "stdout": true, "stderr": true, "tty": true}"#,
    );
    same::<LocalStream>(r#"{"url": "http://127.0.0.1:1/exec/x", "runtime": "r"}"#);
    same::<LocalProcess>(r#"{"pid": 7}"#);
    same::<LocalUsages>(
        r#"{"containers": [
          {"containerId": "c", "name": "a", "podNamespace": "d", "podName": "web", "podUid": "u",
           "at": 1, "cpuNanos": 2, "memoryBytes": 3, "writtenBytes": 4}
        ]}"#,
    );
    same::<LocalImages>(
        r#"{"images": [
          {"id": "sha256:1", "tags": ["t"], "digests": ["d"], "sizeBytes": 1, "pinned": true}
        ]}"#,
    );
    same::<LocalImageName>(r#"{"name": "t"}"#);
}
