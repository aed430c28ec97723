//! What the local socket answers with. Clients of other versions read it.

use super::*;

/// The text is read and written again: a field under another name would be lost on the way.
fn same<T: serde::de::DeserializeOwned + Serialize>(text: &str) {
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let value: T = serde_json::from_str(text).expect("the type");
    assert_eq!(serde_json::to_value(&value).expect("JSON"), expected);
}

#[test]
fn golden_answers_about_pods() {
    same::<LocalPods>(
        r#"{
          "node": {
            "nodeName": "n", "runtime": "containerd 2.2.2", "allSourcesHaveSpoken": true,
            "troubles": ["t"],
            "events": [
              {"firstAt": 1, "lastAt": 2, "count": 3, "kind": "Warning", "reason": "r",
               "message": "m", "fieldPath": "spec.containers{a}"}
            ],
            "agentLog": "/l"
          },
          "pods": [
            {
              "uid": "u", "namespace": "default", "name": "web", "source": "file",
              "manifest": "/m/web.yaml", "stage": "running",
              "waitingOn": {"why": "w", "nextStep": "s"},
              "doing": ["pull"],
              "containers": [
                {"name": "a", "id": "c", "attempt": 1, "state": "exited", "exitCode": 2,
                 "createdAt": 3, "startedAt": 4, "finishedAt": 5, "logPath": "/p"}
              ],
              "object": {"kind": "Pod"}
            }
          ]
        }"#,
    );
    same::<LocalPodDetail>(
        r#"{
          "pod": {
            "uid": "u", "namespace": "", "name": "", "source": "", "manifest": "", "stage": "",
            "waitingOn": null, "doing": [], "containers": [], "object": null
          },
          "events": [],
          "marks": [{"at": 1, "what": "seen", "container": "a", "attempt": 2}]
        }"#,
    );
}

#[test]
fn golden_requests_and_refusals() {
    same::<LocalStateVersion>(r#"{"version": 7}"#);
    same::<LocalStopAccepted>(r#"{"uid": "u"}"#);
    same::<LocalManifests>(r#"{"manifests": [{"place": "-", "text": "kind: Pod"}]}"#);
    same::<LocalAcceptedPods>(r#"{"pods": [{"namespace": "d", "name": "n", "outcome": "new"}]}"#);
    same::<LocalApiError>(r#"{"refusal": "notFound", "message": "m"}"#);
    same::<LocalApiError>(r#"{"refusal": "ofManifest", "message": "m", "manifest": "f"}"#);
    same::<LocalApiError>(r#"{"refusal": "notNow", "message": "m"}"#);
}
