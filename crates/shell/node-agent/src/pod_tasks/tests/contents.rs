//! ConfigMaps and Secrets that variables refer to, through their port.

use super::bench::{AgentBench, pod};
use ports::ContentError;
use std::time::Duration;

fn waiting(bench: &AgentBench, word: &str) -> String {
    bench.status("/containerStatuses/0/state/waiting")[word].as_str().unwrap_or_default().to_owned()
}

/// With its gate on, manifests may not refer to such objects.
fn open_gate() -> AgentBench {
    let mut bench = AgentBench::new();
    bench.gates.prevent_static_pod_api_references = false;
    bench
}

/// A variable that is used in a mount, so that its value can be seen.
fn using(optional: bool) -> String {
    let key = format!("{{name: settings, key: place, optional: {optional}}}");
    let env = format!("env: [{{name: PLACE, valueFrom: {{configMapKeyRef: {key}}}}}]");
    let mount = "volumeMounts: [{name: data, mountPath: /data, subPathExpr: at-$(PLACE)}]";
    let rest = if optional { format!(", {env}") } else { format!(", {env}, {mount}") };
    format!("{}  volumes: [{{name: data, emptyDir: {{}}}}]\n", pod("a", &rest))
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_reported_and_requested_again() {
    let mut bench = open_gate();
    bench.script.emit(&[("/m/a", &using(false))]);
    bench.begin();
    let reason = "CreateContainerConfigError";
    bench.until("it is told", |bench| waiting(bench, "reason") == reason).await;
    assert_eq!(waiting(&bench, "message"), "configmap \"settings\" not found");
    for (error, words) in [
        (ContentError::Failed("the server is ill".into()), "the server is ill"),
        (
            ContentError::NoSource("this node has no API server".into()),
            "couldn't get configMap default/settings, no kubeClient defined: \
             this node has no API server",
        ),
    ] {
        bench.contents.refuse("ConfigMap default/settings", error);
        let took = bench.until(words, |bench| waiting(bench, "message") == words).await;
        assert!(took < Duration::from_secs(20), "{words}: {took:?}");
        assert_eq!(waiting(&bench, "reason"), reason);
    }
    bench.contents.hang("ConfigMap default/settings");
    let words = "ConfigMap default/settings could not be read within 30s";
    let took = bench.until(words, |bench| waiting(bench, "message") == words).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    bench.contents.put("ConfigMap default/settings", "place", "here");
    bench.until_running().await;
    let mounts = bench.runtime.containers().remove(0).mounts;
    let data = mounts.iter().find(|mount| mount.container_path == "/data").unwrap();
    assert!(data.host_path.ends_with("/at-here"), "{data:?}");
}

#[tokio::test(start_paused = true)]
async fn an_optional_object_may_be_missing_even_without_an_api_server() {
    for error in [ContentError::NotFound, ContentError::NoSource("nobody".into())] {
        let mut bench = open_gate();
        bench.contents.refuse("ConfigMap default/settings", error);
        bench.script.emit(&[("/m/a", &using(true))]);
        bench.begin();
        let took = bench.until_running().await;
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
