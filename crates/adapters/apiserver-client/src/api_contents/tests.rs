//! Objects and tokens as an API server sends them, and as it should not.

use super::*;

fn name(kind: ContentKind) -> ContentName {
    ContentName { kind, namespace: "shop".into(), name: "a".into() }
}

fn stored(json: &str) -> StoredObject {
    StoredObject { uid: "u".into(), resource_version: "7".into(), json: json.into() }
}

fn read(kind: ContentKind, json: &str) -> Result<String, String> {
    let read = object(&name(kind), stored(json)).map_err(|error| error.to_string())?;
    let shown =
        |(key, bytes): (&String, &Vec<u8>)| format!("{key}={}", String::from_utf8_lossy(bytes));
    let binary = read.binary_data.0.iter().map(|entry| format!("binary {}", shown(entry)));
    let data: Vec<String> = read.data.0.iter().map(shown).chain(binary).collect();
    Ok(format!("{} {} {}", data.join(","), read.immutable, read.secret_type))
}

#[test]
fn data_of_objects() {
    use ContentKind::{ConfigMap, Secret};
    for (kind, json, expected) in [
        (ConfigMap, r#"{}"#, Ok(" false ")),
        (ConfigMap, r#"{"data":null,"immutable":true}"#, Ok(" true ")),
        (
            ConfigMap,
            r#"{"data":{"k":"v"},"binaryData":{"b":"eHk="}}"#,
            Ok("k=v,binary b=xy false "),
        ),
        (
            ConfigMap,
            r#"{"binaryData":{"b":"hunter2!"}}"#,
            Err("ConfigMap shop/a: key \"b\" is not base64"),
        ),
        (Secret, r#"{"data":{"k":"eHk=","e":""},"type":"Opaque"}"#, Ok("e=,k=xy false Opaque")),
        (Secret, r#"{"data":{"k":"hunter2!"}}"#, Err("Secret shop/a: key \"k\" is not base64")),
        (
            Secret,
            r#"{"data":{"k":5}}"#,
            Err("Secret shop/a: not such an object, at line 1 column 14"),
        ),
        (ConfigMap, r#"hunter2"#, Err("ConfigMap shop/a: not such an object, at line 1 column 1")),
    ] {
        let outcome = read(kind, json);
        assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{json}");
    }
}

#[test]
fn errors_of_the_api() {
    let request = String::new();
    let refused = |status| ClusterApiError::Refused {
        request: request.clone(),
        status,
        reason: "R".into(),
        message: "no".into(),
    };
    assert_eq!(content_error(refused(403)), ContentError::Forbidden("no".into()));
    assert!(matches!(content_error(refused(422)), ContentError::Failed(_)));
    let missing = ClusterApiError::NotFound { request: request.clone() };
    assert_eq!(content_error(missing), ContentError::NotFound);
}

#[test]
fn tokens() {
    let demand = TokenDemand {
        namespace: "shop".into(),
        service_account: "web".into(),
        audience: Some("vault".into()),
        expiration_seconds: Some(600),
        pod_name: "p".into(),
        pod_uid: "p-1".into(),
    };
    let sent: serde_json::Value = serde_json::from_slice(&token_request(&demand)).unwrap();
    assert_eq!(sent["spec"]["audiences"], json!(["vault"]));
    assert_eq!(sent["spec"]["boundObjectRef"]["uid"], "p-1");
    let of_server = TokenDemand { audience: None, ..demand.clone() };
    let sent: serde_json::Value = serde_json::from_slice(&token_request(&of_server)).unwrap();
    assert_eq!(sent["spec"]["audiences"], json!([]));
    let good = r#"{"spec":{"expirationSeconds":700},"status":{"token":"t","expirationTimestamp":"2026-01-02T03:04:05Z"}}"#;
    let token = issued(&demand, &stored(good)).unwrap();
    assert_eq!((token.token.as_str(), token.lifetime_seconds), ("t", 700));
    assert!(!format!("{token:?}").contains("\"t\""));
    for bad in [
        r#"{"status":{"token":"hunter2","expirationTimestamp":"soon"}}"#,
        r#"{"status":{"token":"","expirationTimestamp":"2026-01-02T03:04:05Z"}}"#,
        r#"{"status":"hunter2"}"#,
    ] {
        let error = issued(&demand, &stored(bad)).unwrap_err().to_string();
        assert!(error.contains("shop/web") && !error.contains("hunter2"), "{error}");
    }
}
