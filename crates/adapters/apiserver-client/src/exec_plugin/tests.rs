//! Plugins as small shell programs.

use std::path::PathBuf;

use super::*;

const V1: &str = "client.authentication.k8s.io/v1";

fn plugin(script: &str) -> ExecPlugin {
    ExecPlugin {
        api_version: V1.to_owned(),
        command: PathBuf::from("/bin/sh"),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        environment: vec![("GIVEN".to_owned(), Secret::new("hunter2"))],
        install_hint: "install it".to_owned(),
        cluster: Some(serde_json::json!({"server": "https://x"})),
        proxy_url: Some(Secret::new("http://me:pw@p")),
    }
}

#[test]
fn plugin_answers_are_parsed() {
    let wrap = |status: &str| format!(r#"{{"apiVersion":"{V1}","kind":"ExecCredential"{status}}}"#);
    let good = wrap(r#","status":{"token":"t","expirationTimestamp":"1970-01-01T00:00:01Z"}"#);
    let credential = read_answer(good.as_bytes(), V1).expect("a good answer");
    assert_eq!(credential.token, Some(Secret::new("t")));
    assert_eq!(credential.expires, Some(ApiTime::from_nanos(1_000_000_000)));
    for (bad, expected) in [
        ("hunter2".to_owned(), "no ExecCredential"),
        (wrap(""), "no status"),
        (wrap(r#","status":{}"#), "neither"),
        (wrap(r#","status":{"token":7}"#), "no ExecCredential"),
        (wrap(r#","status":{"clientKeyData":"hunter2"}"#), "not both"),
        (good.replace("k8s.io/v1", "k8s.io/v1beta1"), "of client"),
    ] {
        let error = read_answer(bad.as_bytes(), V1).expect_err(&bad);
        assert!(error.contains(expected) && !error.contains("hunter2"), "{bad}: {error}");
    }
}

#[tokio::test]
async fn a_plugin_gets_the_cluster_info_and_returns_a_token() {
    let script = format!(
        r#"[ "$GIVEN" = hunter2 ] || exit 3
        case "$KUBERNETES_EXEC_INFO" in *'"certificate-authority-data":"Q0E="'*) ;; *) exit 4;; esac
        case "$KUBERNETES_EXEC_INFO" in *'"proxy-url":"http://me:pw@p"'*) ;; *) exit 5;; esac
        echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"t"}}}}'"#
    );
    let credential = run_plugin(plugin(&script), Some(Secret::new("CA"))).await.expect("an answer");
    assert_eq!(credential.token, Some(Secret::new("t")));
}

#[tokio::test]
async fn a_failed_or_missing_plugin_is_an_error_without_secrets() {
    let error = run_plugin(plugin("echo hunter2; exit 7"), None).await.expect_err("failed");
    assert!(error.contains('7') && !error.contains("hunter2"), "{error}");
    let missing = ExecPlugin { command: "/nowhere/plugin".into(), ..plugin("") };
    let error = run_plugin(missing.clone(), None).await.expect_err("missing");
    assert!(error.contains("/nowhere/plugin") && error.contains("install it"), "{error}");
    assert!(!format!("{missing:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_plugin_with_endless_output_is_killed() {
    let error = run_plugin(plugin("yes hunter2"), None).await.expect_err("too long");
    assert!(!error.contains("hunter2"), "{error}");
}
