//! Volumes from the API: their files, their updates, their tokens; images as volumes; the logins of
//! a pod.

use super::bench::{AgentBench, START};
use crate::contents::ContentChangeStrategy;
use ports::{ApiTime, ContentData, ContentError, ContentObject, IssuedToken};
use runtime_fake::Fault;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// With its gate on, manifests may not refer to such objects.
fn open_gate() -> AgentBench {
    let mut bench = AgentBench::new();
    bench.gates.prevent_static_pod_api_references = false;
    bench
}

fn pod_with(metadata: &str, volume: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, {metadata}}}\nspec:\n  \
         serviceAccountName: web\n  containers:\n  \
         - {{name: main, image: 'i:1', imagePullPolicy: IfNotPresent, \
         volumeMounts: [{{name: v, mountPath: /v}}]}}\n  volumes: [{{name: v, {volume}}}]\n"
    )
}

fn with_volume(volume: &str) -> AgentBench {
    let bench = open_gate();
    bench.script.emit(&[("/m/a", &pod_with("", volume))]);
    bench
}

/// The volume's files as `path=content`.
fn files(bench: &AgentBench) -> String {
    let Some(pod) = bench.pod() else { return String::new() };
    let files = bench.host.files_below(&format!("/pods/{}/volumes/v", pod.uid));
    let shown = files.iter().map(|(path, content)| format!("{}={content}", path.trim_matches('/')));
    shown.collect::<Vec<_>>().join(",")
}

async fn until_files(bench: &AgentBench, expected: &str) -> Duration {
    bench.until(expected, |bench| files(bench) == expected).await
}

fn last_mount_failure(bench: &AgentBench) -> String {
    if bench.pod().is_none() {
        return String::new();
    }
    let events = bench.detail().events.into_iter();
    let mut failed = events.filter(|event| event.reason == "FailedMount");
    failed.next_back().map(|event| event.message).unwrap_or_default()
}

const MAP: &str = "ConfigMap default/settings";

#[tokio::test(start_paused = true)]
async fn a_config_map_is_mounted_and_its_changes_follow_within_a_second() {
    let mut bench = with_volume("configMap: {name: settings}");
    bench.contents.put(MAP, "k", "1");
    bench.begin();
    let took = bench.until_running().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(files(&bench), "k=1");
    let mount = bench.runtime.containers().remove(0).mounts.remove(0);
    assert!(mount.readonly && mount.container_path == "/v", "{mount:?}");
    for value in ["2", "3"] {
        bench.contents.put(MAP, "k", value);
        let took = until_files(&bench, &format!("k={value}")).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    // A map that is gone leaves its last content, and an event.
    bench.contents.remove(MAP);
    let text = "MountVolume.SetUp failed for volume \"v\" : configmap \"settings\" not found";
    bench.until("an event", |bench| last_mount_failure(bench) == text).await;
    assert_eq!(files(&bench), "k=3");
    assert_eq!(bench.phase().as_deref(), Some("Running"));
    bench.contents.put(MAP, "k", "4");
    let took = until_files(&bench, "k=4").await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    // The pod ends: nothing of it is watched any more.
    assert_eq!(bench.contents.watches(MAP), 1);
    bench.script.emit(&[]);
    bench.until("it is gone", |bench| bench.pods().is_empty()).await;
    assert_eq!(bench.contents.watches(MAP), 0);
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_reported_and_awaited() {
    let mut bench = with_volume("secret: {secretName: s, items: [{key: k, path: d/f}]}");
    bench.begin();
    for (change, why) in [
        (None, "secret \"s\" not found"),
        (Some(Err(ContentError::Forbidden("secrets \"s\" is forbidden".into()))), ""),
        (Some(Ok("other")), "references non-existent secret key: k"),
    ] {
        match change {
            None => {}
            Some(Ok(key)) => bench.contents.put("Secret default/s", key, "x"),
            Some(Err(error)) => bench.contents.refuse("Secret default/s", error),
        }
        if why.is_empty() {
            continue;
        }
        let text = format!("MountVolume.SetUp failed for volume \"v\" : {why}");
        bench.until(why, |bench| last_mount_failure(bench) == text).await;
        assert_eq!(bench.status("/containerStatuses/0/state/waiting/reason"), "ContainerCreating");
    }
    bench.contents.put("Secret default/s", "k", "x");
    let took = bench.until_running().await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(files(&bench), "d/f=x");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_no_container_uses_is_not_set_up() {
    let mut bench = open_gate();
    let used = "configMap: {name: settings}}, {name: unused, secret: {secretName: gone}";
    bench.script.emit(&[("/m/a", &pod_with("uid: u-1", used))]);
    bench.contents.put(MAP, "k", "1");
    bench.begin();
    let took = bench.until_running().await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(bench.host.volumes_of("u-1"), ["v"]);
    assert_eq!(bench.contents.watches("Secret default/gone"), 0);
    assert_eq!(last_mount_failure(&bench), "");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_reported() {
    let mut bench = with_volume("secret: {secretName: s}");
    bench.contents.hang("Secret default/s");
    bench.begin();
    let text = "MountVolume.SetUp failed for volume \"v\" : failed to sync secret cache: timed out \
                waiting for the condition";
    let took = bench.until("an event", |bench| last_mount_failure(bench) == text).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    bench.contents.put("Secret default/s", "k", "x");
    let took = bench.until_running().await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_optional_object_appears_in_a_running_pod() {
    let mut bench = with_volume(
        "projected: {sources: [{secret: {name: s, optional: true}}, {configMap: {name: settings}}]}",
    );
    bench.contents.put(MAP, "k", "1");
    bench.begin();
    bench.until_running().await;
    assert_eq!(files(&bench), "k=1");
    bench.contents.put("Secret default/s", "p", "x");
    let took = until_files(&bench, "k=1,p=x").await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    bench.contents.remove("Secret default/s");
    until_files(&bench, "k=1").await;
}

#[tokio::test(start_paused = true)]
async fn labels_follow_in_a_downward_volume() {
    let volume = "downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}";
    let mut bench = open_gate();
    let metadata = |label: &str| format!("uid: u-1, labels: {{x: {label}}}");
    bench.script.emit(&[("/m/a", &pod_with(&metadata("one"), volume))]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(files(&bench), "l=x=\"one\"");
    bench.script.emit(&[("/m/a", &pod_with(&metadata("two"), volume))]);
    until_files(&bench, "l=x=\"two\"").await;
}

fn token(name: &str, after: Duration, lifetime: i64) -> IssuedToken {
    let from = START + i64::try_from(after.as_nanos()).unwrap();
    IssuedToken {
        token: name.to_owned(),
        expires_at: ApiTime::from_nanos(from + lifetime * 1_000_000_000),
        lifetime_seconds: lifetime,
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_bound_to_its_pod_and_renewed_at_80_percent() {
    let began = Instant::now();
    let mut bench = with_volume(
        "projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 1000}}]}",
    );
    bench.begin();
    let text =
        "MountVolume.SetUp failed for volume \"v\" : failed to fetch token: no token for web";
    bench.until("an event", |bench| last_mount_failure(bench) == text).await;
    bench.contents.issue(Ok(token("first", began.elapsed(), 1000)));
    bench.until_running().await;
    let issued_after = began.elapsed();
    assert_eq!(files(&bench), "token=first");
    let demand = bench.contents.demands().pop().unwrap();
    let pod = bench.pod().unwrap();
    assert_eq!((demand.pod_uid, demand.pod_name), (pod.uid, pod.name));
    assert_eq!((demand.expiration_seconds, demand.audience), (Some(1000), None));
    // The renewal fails for a while: the old token stays as long as it is valid.
    bench.contents.issue(Err(ContentError::Failed("away".into())));
    let count = bench.contents.demands().len();
    bench.until("a demand", |bench| bench.contents.demands().len() > count).await;
    let age = began.elapsed().saturating_sub(issued_after);
    assert!(age > Duration::from_secs(780) && age <= Duration::from_secs(801), "{age:?}");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(
        (files(&bench).as_str(), bench.phase().as_deref()),
        ("token=first", Some("Running"))
    );
    bench.contents.issue(Ok(token("second", began.elapsed(), 1000)));
    until_files(&bench, "token=second").await;
    // Not asked again until it is time.
    let count = bench.contents.demands().len();
    sleep(Duration::from_secs(700)).await;
    assert_eq!(bench.contents.demands().len(), count);
}

#[tokio::test(start_paused = true)]
async fn without_watches_a_change_comes_with_the_next_read() {
    let mut bench = with_volume("configMap: {name: settings}");
    bench.content_changes = ContentChangeStrategy::Get;
    bench.contents.put(MAP, "k", "1");
    bench.begin();
    bench.until_running().await;
    bench.contents.put(MAP, "k", "2");
    let took = until_files(&bench, "k=2").await;
    assert!(took > Duration::from_secs(30) && took < Duration::from_secs(70), "{took:?}");
    assert_eq!(bench.contents.watches(MAP), 0);
}

#[tokio::test(start_paused = true)]
async fn content_follows_after_a_kill_of_the_agent() {
    let mut bench = with_volume("configMap: {name: settings}");
    bench.contents.put(MAP, "k", "1");
    bench.begin();
    bench.until_running().await;
    bench.kill().await;
    tokio::task::yield_now().await;
    assert_eq!(bench.contents.watches(MAP), 0);
    bench.contents.put(MAP, "k", "2");
    bench.script.emit(&[("/m/a", &pod_with("", "configMap: {name: settings}"))]);
    bench.begin();
    let took = until_files(&bench, "k=2").await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(bench.calls_of("create_container").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_delays_an_update_and_leaves_the_old_content() {
    let mut bench = with_volume("configMap: {name: settings}");
    bench.contents.put(MAP, "k", "1");
    bench.begin();
    bench.until_running().await;
    bench.host.set_disk_full(true);
    bench.contents.put(MAP, "k", "2");
    bench.until("an event", |bench| !last_mount_failure(bench).is_empty()).await;
    assert_eq!((files(&bench).as_str(), bench.phase().as_deref()), ("k=1", Some("Running")));
    bench.host.set_disk_full(false);
    until_files(&bench, "k=2").await;
}

#[tokio::test(start_paused = true)]
async fn an_image_is_a_volume_once_it_is_pulled() {
    let mut bench = with_volume("image: {reference: 'r.example/data:1', pullPolicy: IfNotPresent}");
    bench.runtime.set_pulls_succeed(true);
    bench.runtime.inject_fault("pull_image", Fault::Refuses("denied".to_owned()));
    bench.begin();
    let reason = |bench: &AgentBench| bench.status("/containerStatuses/0/state/waiting/reason");
    bench.until("the error", |bench| reason(bench) == "ErrImagePull").await;
    bench.until("the back-off", |bench| reason(bench) == "ImagePullBackOff").await;
    bench.until_running().await;
    let mount = bench.runtime.containers().remove(0).mounts.remove(0);
    let image = mount.image.unwrap();
    assert_eq!(image.user_specified_image, "r.example/data:1");
    assert!(mount.readonly && mount.host_path.is_empty() && !image.image.is_empty(), "{image:?}");
    let events = bench.detail().events.into_iter();
    let pulled = events.filter(|event| event.reason == "Pulled").map(|event| event.message);
    let pulled: Vec<String> = pulled.collect();
    assert!(
        pulled.iter().any(|text| text.contains("pulled image \"r.example/data:1\"")),
        "{pulled:?}"
    );
    assert_eq!(bench.calls_of("pull_image").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pull_secrets_of_a_pod_are_used_and_missing_ones_reported() {
    let mut bench = open_gate();
    let login = r#"{"auths": {"r.example": {"username": "pods", "password": "x"}}}"#;
    bench.contents.put_object(
        "Secret default/login",
        ContentObject {
            uid: "s-1".into(),
            secret_type: "kubernetes.io/dockerconfigjson".into(),
            data: ContentData([(".dockerconfigjson".to_owned(), login.into())].into()),
            ..ContentObject::default()
        },
    );
    bench.runtime.set_pulls_succeed(true);
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  \
                imagePullSecrets: [{name: gone}, {name: login}]\n  containers:\n  \
                - {name: main, image: 'r.example/app:1', imagePullPolicy: IfNotPresent}\n";
    bench.script.emit(&[("/m/a", text)]);
    bench.begin();
    bench.until_running().await;
    let pulls = bench.calls_of("pull_image");
    assert!(pulls.len() == 1 && pulls[0].contains("pods"), "{pulls:?}");
    let events = bench.detail().events.into_iter();
    let missing: Vec<String> = events
        .filter(|event| event.reason == "FailedToRetrieveImagePullSecret")
        .map(|event| event.message)
        .collect();
    let expected = "Unable to retrieve some image pull secrets (gone); attempting to pull the image \
                    may not succeed.";
    assert_eq!(missing, [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_crashing_container_restarts_with_known_variables_while_the_api_server_is_away() {
    let mut bench = open_gate();
    let env = "env: [{name: P, valueFrom: {configMapKeyRef: {name: settings, key: k}}}]";
    bench.script.emit(&[("/m/a", &super::bench::pod("a", &format!(", {env}")))]);
    bench.contents.put(MAP, "k", "1");
    bench.begin();
    bench.until_running().await;
    bench.contents.hang(MAP);
    bench.runtime.crash("main", 1);
    let created = |bench: &AgentBench| bench.calls_of("create_container").len();
    let took = bench.until("a restart", |bench| created(bench) == 2).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
    bench.until_running().await;
}
