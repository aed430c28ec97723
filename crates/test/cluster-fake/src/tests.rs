//! The fake injects the faults that it promises.

use ports::cluster_api::{Deletion, ObjectPath, ObjectSelector, Patch, PatchKind};
use ports::{ApiTime, ClusterApi, ClusterApiError, FeedEvent};
use serde_json::{Value, json};

use crate::FakeCluster;

fn cluster() -> FakeCluster {
    FakeCluster::new(ApiTime::from_nanos(1_000_000_000))
}

fn patch(kind: PatchKind, status: bool, body: &Value) -> Patch {
    let subresource = status.then_some("status".into());
    Patch { kind, subresource, body: body.to_string().into_bytes() }
}

fn version(cluster: &FakeCluster, path: &ObjectPath) -> String {
    cluster.get(path).expect("there")["metadata"]["resourceVersion"].to_string()
}

#[tokio::test(start_paused = true)]
async fn writes_check_preconditions_and_status_is_a_subresource() {
    let cluster = cluster();
    let client = cluster.client("one");
    let path = ObjectPath::node("a");
    cluster.put(
        &path,
        json!({"spec": {"x": 1}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "Kept"},
        ]}}),
    );
    let old = json!({"metadata": {"resourceVersion": "1"}, "spec": {"x": 2}});
    let refused = client.patch(&path, patch(PatchKind::Merge, false, &old)).await;
    assert!(matches!(refused, Err(ClusterApiError::Conflict { .. })));
    let both = json!({"spec": {"x": 2}, "status": {"conditions": []}});
    client.patch(&path, patch(PatchKind::Merge, false, &both)).await.expect("passes");
    let node = cluster.get(&path).expect("there");
    assert_eq!(
        (&node["spec"]["x"], &node["status"]["conditions"][0]["type"]),
        (&json!(2), &json!("Ready"))
    );
    let unknown = json!({"spec": {"x": 9}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    client.patch(&path, patch(PatchKind::StrategicMerge, true, &unknown)).await.expect("passes");
    let node = cluster.get(&path).expect("there");
    assert_eq!(node["spec"]["x"], 2);
    let merged = json!([{"type": "Ready", "status": "Unknown", "reason": "Kept"}]);
    assert_eq!(node["status"]["conditions"], merged);
    let before = version(&cluster, &path);
    client.patch(&path, patch(PatchKind::StrategicMerge, true, &unknown)).await.expect("passes");
    assert_eq!(version(&cluster, &path), before, "what changes nothing makes no version");
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_stays_until_it_is_deleted_without_grace() {
    let cluster = cluster();
    let client = cluster.client("one");
    let path = ObjectPath::pod("default", "web");
    let uid = cluster.put(&path, json!({"spec": {"nodeName": "a"}}));
    let other = Deletion { uid: Some("another".into()), ..Deletion::default() };
    assert!(matches!(client.delete(&path, other).await, Err(ClusterApiError::Conflict { .. })));
    let own = Deletion { uid: Some(uid), ..Deletion::default() };
    client.delete(&path, own.clone()).await.expect("passes");
    let pod = cluster.pod("default", "web").expect("still there");
    assert!(pod.metadata.deletion_timestamp.is_some());
    client.delete(&path, Deletion { grace_seconds: Some(0), ..own }).await.expect("passes");
    assert!(cluster.pod("default", "web").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_lists_follows_breaks_and_lists_again() {
    let cluster = cluster();
    let client = cluster.client("one");
    cluster.put(&ObjectPath::node("a"), json!({}));
    let mut feed = client.watch_nodes(ObjectSelector::default());
    assert_eq!(feed.next().await, FeedEvent::ListBegun);
    assert!(matches!(feed.next().await, FeedEvent::Listed(nodes) if nodes.len() == 1));
    assert_eq!(feed.next().await, FeedEvent::ListEnded);
    cluster.put(&ObjectPath::node("b"), json!({}));
    assert!(matches!(feed.next().await, FeedEvent::Applied(node) if node.metadata.name == "b"));
    client.faults.turn(|faults| faults.away = true);
    assert!(matches!(feed.next().await, FeedEvent::Interrupted(_)));
    assert!(client.read(&ObjectPath::node("a")).await.is_err());
    cluster.remove(&ObjectPath::node("a"));
    client.faults.reset();
    assert_eq!(feed.next().await, FeedEvent::Resumed);
    assert!(matches!(feed.next().await, FeedEvent::Deleted(node) if node.metadata.name == "a"));
    cluster.put(&ObjectPath::node("c"), json!({}));
    cluster.compact();
    assert_eq!(feed.next().await, FeedEvent::ListBegun, "it missed what is no longer kept");
}

#[tokio::test(start_paused = true)]
async fn injected_faults_hit_every_nth_write() {
    let cluster = cluster();
    let client = cluster.client("one");
    let path = ObjectPath::node("a");
    cluster.put(&path, json!({"spec": {}}));
    client.faults.turn(|faults| faults.conflict_every = 2);
    let write = |number: u32| {
        let client = client.clone();
        let path = path.clone();
        async move {
            let body = json!({"spec": {"x": number}});
            client.patch(&path, patch(PatchKind::Merge, false, &body)).await.is_ok()
        }
    };
    assert_eq!([write(1).await, write(2).await, write(3).await], [true, false, true]);
    client.faults.turn(|faults| {
        faults.conflict_every = 0;
        faults.lose_answer_every = 1;
    });
    assert!(!write(4).await);
    assert_eq!(cluster.get(&path).expect("there")["spec"]["x"], 4, "it happened all the same");
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_once_and_evicted_and_tokens_name_their_account() {
    let cluster = cluster();
    let client = cluster.client("one");
    let pod = ObjectPath::pod("default", "web");
    let create = async |path: &ObjectPath, subresource: &str, body: Value| {
        client.create_subresource(path, subresource, body.to_string().into_bytes()).await
    };
    let binding = json!({"target": {"kind": "Node", "name": "a"}});
    let absent = create(&pod, "binding", binding.clone()).await;
    assert!(matches!(absent, Err(ClusterApiError::NotFound { .. })), "{absent:?}");
    cluster.put(&pod, json!({"spec": {}}));
    create(&pod, "binding", binding.clone()).await.expect("bound");
    assert_eq!(cluster.get(&pod).expect("there")["spec"]["nodeName"], "a");
    let again = create(&pod, "binding", binding).await;
    assert!(matches!(again, Err(ClusterApiError::Conflict { .. })), "{again:?}");
    let other = json!({"deleteOptions": {"preconditions": {"uid": "other"}}});
    let refused = create(&pod, "eviction", other).await;
    assert!(matches!(refused, Err(ClusterApiError::Conflict { .. })), "{refused:?}");
    create(&pod, "eviction", json!({})).await.expect("evicted");
    assert!(cluster.get(&pod).expect("marked")["metadata"]["deletionTimestamp"].is_string());
    create(&pod, "eviction", json!({"deleteOptions": {"gracePeriodSeconds": 0}}))
        .await
        .expect("evicted");
    assert_eq!(cluster.get(&pod), None);
    let account = ObjectPath::service_account("default", "builder");
    let uid = cluster.put(&account, json!({}));
    let token = create(&account, "token", json!({"spec": {"expirationSeconds": 600}})).await;
    let token: Value = serde_json::from_slice(&token.expect("a token").json).expect("JSON");
    assert_eq!(token["status"]["token"], format!("token of default/builder {uid}"));
    let unknown = create(&account, "binding", json!({})).await;
    assert!(matches!(unknown, Err(ClusterApiError::Refused { .. })), "{unknown:?}");
}
