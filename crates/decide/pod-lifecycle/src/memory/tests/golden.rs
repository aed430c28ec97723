//! The format of a pod's saved history on disk. Every later version of the agent must read it.

use super::super::recover::{SavedMemoryDocument, SavedMemoryRef};

const SAVED: &str = r#"{
  "version": 1,
  "pod": {
    "startTime": 1,
    "containers": {
      "full": {
        "restartCount": 2,
        "highest": 3,
        "reported": {
          "Exited": {
            "exit": {
              "code": 137, "reason": "OOMKilled", "message": "m", "startedAt": 4,
              "finishedAt": 5, "containerId": "c1"
            },
            "image": "i",
            "image_id": "sha256:1"
          }
        },
        "lastExit": {
          "code": 1, "reason": "Error", "message": "", "startedAt": 1, "finishedAt": 2,
          "containerId": "c0"
        },
        "startupPassed": "c1",
        "readiness": ["c1", true],
        "failedProbe": ["c1", "Liveness"],
        "killed": "c0",
        "postStartFailed": "c2",
        "stop": {"id": "c1", "deadline": 9, "hookDone": true},
        "backOff": {"key": 7, "delay_nanos": 8, "updated_at": 9},
        "startFailure": {"reason": "CreateContainerError", "message": "m", "retryAt": 6}
      },
      "new": {"restartCount": 0, "reported": "Nothing", "failedProbe": ["c3", "Readiness"]},
      "starting": {"restartCount": 0, "reported": "Waiting", "failedProbe": ["c4", "Startup"]},
      "up": {"restartCount": 0, "reported": {"Running": {"id": "c5"}}}
    },
    "conditions": {"Ready": {"met": true, "since": 10}},
    "verdict": {
      "failed": true, "reason": "Evicted", "message": "m",
      "disruption": {"reason": "TerminationByKubelet", "message": "d"}
    },
    "ending": {"since": 11, "graceSeconds": 30, "deadline": 12},
    "clearing": {"since": 13, "graceSeconds": 2, "deadline": 14},
    "stoppedSandboxes": ["s0"],
    "podIps": ["10.0.0.1"],
    "killsTold": {"c1": {"order": 15, "unnamed": 16}},
    "cleaned": false
  }
}"#;

#[test]
fn saved_history_keeps_its_field_names() {
    let expected: serde_json::Value = serde_json::from_str(SAVED).expect("JSON");
    let saved: SavedMemoryDocument = serde_json::from_str(SAVED).expect("saved history");
    let out = SavedMemoryRef { version: saved.version, pod: &saved.pod };
    assert_eq!(serde_json::to_value(&out).expect("JSON"), expected);
}
