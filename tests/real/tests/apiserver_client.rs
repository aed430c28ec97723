//! The API server's client on a real API server: objects, conflicts, leases, events, pages, new
//! certificates, and an API server that is killed and comes back.
//!
//! The rule: what a scripted server cannot show is shown here, above all that the API server
//! accepts our requests and rejects the ones that it should reject. One control plane for all
//! steps.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use apiserver_client::access::TokenSource;
use apiserver_client::{
    ApiClient, ClientOptions, RateLimit, Secret, Watch, WatchedObject, parse_kubeconfig,
};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::{CertificateSubject, ControlPlane, RunningPart};
use ports::cluster_api::{
    ClusterEvent, ClusterEventType, Deletion, ObjectPath, ObjectReference, ObjectSelector, Patch,
    PatchKind, Repetition, Resource,
};
use ports::cluster_objects::{ApiObject, Lease, Node, Pod, Renewal};
use ports::{ApiTime, ClusterApi, ClusterApiError, FeedEvent, ObjectFeed as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const MANY: u32 = 5000;

#[test]
fn the_client_and_a_real_api_server_understand_each_other() -> Result<()> {
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(5)).run(|bed| {
        let mut plane = ControlPlane::start(bed)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let client = client_of(plane.admin_kubeconfig())?;
            nodes_and_pods(&client).await.context("nodes and pods")?;
            leases(&client).await.context("leases")?;
            events(&client).await.context("events")?;
            many_in_pages(&client).await.context("many in pages")?;
            rejections(&plane, &client).await.context("refusals")?;
            new_certificate(&plane).await.context("new certificate")?;
            few_connections(&plane, &client).await.context("few connections")?;
            comes_back(bed, &mut plane, &client).await.context("an API server that comes back")
        })
    })
}

fn client_of(kubeconfig: &Path) -> Result<ApiClient> {
    let access = parse_kubeconfig(&fs::read(kubeconfig)?, kubeconfig, None)?;
    let options = ClientOptions { rate: RateLimit::new(0.0, 0), ..ClientOptions::default() };
    ApiClient::new(access, options).map_err(|message| anyhow!(message))
}

fn json_patch(kind: PatchKind, subresource: Option<&'static str>, body: &Value) -> Patch {
    let body = body.to_string().into_bytes();
    Patch { kind, subresource: subresource.map(Into::into), body }
}

/// Waits for an event of a feed; skips the others.
async fn wait_for<T: WatchedObject + std::fmt::Debug>(
    feed: &mut Watch<T>,
    what: &str,
    is_it: impl Fn(&FeedEvent<T>) -> bool,
) -> Result<FeedEvent<T>> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut last = None;
    while Instant::now() < until {
        let Ok(event) = tokio::time::timeout(Duration::from_secs(60), feed.next()).await else {
            break;
        };
        if is_it(&event) {
            return Ok(event);
        }
        last = Some(event);
    }
    bail!("no {what}; the last event was {last:?}")
}

fn is_about<T: ApiObject>(event: &FeedEvent<T>, name: &str) -> bool {
    match event {
        FeedEvent::Applied(object) => object.identity().name == name,
        FeedEvent::Listed(page) => page.iter().any(|object| object.identity().name == name),
        _ => false,
    }
}

async fn nodes_and_pods(client: &ApiClient) -> Result<()> {
    let mut feed: Watch<Node> = Watch::start(client, ObjectSelector::default());
    wait_for(&mut feed, "end of the list", |event| *event == FeedEvent::ListEnded).await?;
    let path = ObjectPath::node("n1");
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"kept": "yes"}}});
    let made = client.create(&path, node.to_string().into_bytes()).await?;
    wait_for(&mut feed, "new node", |event| is_about(event, "n1")).await?;
    let again = client.create(&path, node.to_string().into_bytes()).await;
    ensure!(matches!(again, Err(ClusterApiError::AlreadyExists { .. })), "{again:?}");

    // What we do not name stays: labels beside a patched status, a condition beside another.
    for (kind, status) in [("Ready", "Unknown"), ("Other", "True"), ("Ready", "False")] {
        let now = now().to_seconds_text();
        let body = json!({"status": {"conditions": [{"type": kind, "status": status,
            "reason": "Test", "message": "m", "lastHeartbeatTime": now,
            "lastTransitionTime": now}]}});
        let patch = json_patch(PatchKind::StrategicMerge, Some("status"), &body);
        client.patch(&path, patch).await?;
    }
    let applied = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1",
        "annotations": {"applied": "yes"}}});
    client.patch(&path, json_patch(PatchKind::Apply { force: true }, None, &applied)).await?;
    let stored: Value = serde_json::from_slice(&client.read(&path).await?.json)?;
    ensure!(stored["metadata"]["labels"]["kept"] == "yes", "{stored:#}");
    ensure!(stored["metadata"]["annotations"]["applied"] == "yes", "{stored:#}");
    let node: Node = serde_json::from_value(stored)?;
    let conditions: BTreeSet<(&str, &str)> =
        node.status.conditions.iter().map(|c| (c.kind.as_str(), c.status.as_str())).collect();
    ensure!(conditions.is_superset(&[("Ready", "False"), ("Other", "True")].into()), "{node:?}");

    let test = json!([{"op": "test", "path": "/metadata/uid", "value": "another"},
        {"op": "add", "path": "/spec/unschedulable", "value": true}]);
    let failed = client.patch(&path, json_patch(PatchKind::Json, None, &test)).await;
    ensure!(matches!(failed, Err(ClusterApiError::Refused { status: 422, .. })), "{failed:?}");
    let stale = json!({"metadata": {"resourceVersion": made.resource_version},
        "spec": {"unschedulable": true}});
    let failed = client.patch(&path, json_patch(PatchKind::Merge, None, &stale)).await;
    ensure!(matches!(failed, Err(ClusterApiError::Conflict { .. })), "{failed:?}");

    pods(client).await?;
    let deletion = |uid: &str| Deletion { uid: Some(uid.to_owned()), ..Deletion::default() };
    let failed = client.delete(&path, deletion("another")).await;
    ensure!(matches!(failed, Err(ClusterApiError::Conflict { .. })), "{failed:?}");
    client.delete(&path, deletion(&made.uid)).await?;
    wait_for(
        &mut feed,
        "deletion",
        |event| matches!(event, FeedEvent::Deleted(node) if node.metadata.uid == made.uid),
    )
    .await?;
    let gone = client.read(&path).await;
    ensure!(matches!(gone, Err(ClusterApiError::NotFound { .. })), "{gone:?}");
    Ok(())
}

async fn pods(client: &ApiClient) -> Result<()> {
    let path = ObjectPath::pod("default", "bound");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bound"},
        "spec": {"nodeName": "n1", "containers": [{"name": "one", "image": "x"}],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 7}]}});
    let made = client.create(&path, pod.to_string().into_bytes()).await?;
    let mut feed: Watch<Pod> = Watch::start(
        client,
        ObjectSelector::by_fields("spec.nodeName=n1,metadata.namespace=default"),
    );
    wait_for(&mut feed, "our pod", |event| is_about(event, "bound")).await?;
    let wrong =
        Deletion { uid: Some("another".to_owned()), grace_seconds: Some(0), ..Deletion::default() };
    let failed = client.delete(&path, wrong).await;
    ensure!(matches!(failed, Err(ClusterApiError::Conflict { .. })), "{failed:?}");
    // With a grace period the pod stays until its kubelet says so; at once, it is gone.
    let uid = Some(made.uid);
    client
        .delete(&path, Deletion { uid: uid.clone(), grace_seconds: Some(33), ..Default::default() })
        .await?;
    let marked = wait_for(&mut feed, "mark", |event| {
        matches!(event, FeedEvent::Applied(pod) if pod.metadata.deletion_timestamp.is_some())
    })
    .await?;
    let FeedEvent::Applied(marked) = marked else { bail!("{marked:?}") };
    ensure!(marked.metadata.deletion_grace_period_seconds == Some(33), "{marked:?}");
    let seconds = marked.spec.tolerations.iter().find(|one| one.key == "k");
    ensure!(seconds.and_then(|one| one.toleration_seconds) == Some(7), "{marked:?}");
    client.delete(&path, Deletion { uid, grace_seconds: Some(0), ..Default::default() }).await?;
    wait_for(&mut feed, "end", |event| matches!(event, FeedEvent::Deleted(_))).await?;
    Ok(())
}

async fn leases(client: &ApiClient) -> Result<()> {
    let mut lease = Lease::default();
    lease.metadata.namespace = "default".to_owned();
    lease.metadata.name = "heartbeat".to_owned();
    lease.spec.holder_identity = Some("one".to_owned());
    lease.spec.lease_duration_seconds = Some(40);
    lease.spec.renew_time = Some(now());
    let made = client.create_lease(&lease).await?;
    ensure!(made.spec.lease_duration_seconds == Some(40), "{made:?}");
    let again = client.create_lease(&lease).await;
    ensure!(matches!(again, Err(ClusterApiError::AlreadyExists { .. })), "{again:?}");

    let mut mine = client.read_lease("default", "heartbeat").await?;
    ensure!(mine == made, "{mine:?}");
    let written = lease.spec.renew_time.map(ApiTime::to_micros_text);
    ensure!(mine.spec.renew_time.map(ApiTime::to_micros_text) == written, "{mine:?}");
    let mut theirs = mine.clone();
    theirs.spec.holder_identity = None;
    theirs.spec.lease_transitions = Some(1);
    let theirs = client.update_lease(&theirs).await?;
    ensure!(theirs.spec.holder_identity.is_none(), "absent fields are cleared: {theirs:?}");
    mine.spec.renew_time = Some(now());
    let failed = client.update_lease(&mine).await;
    ensure!(matches!(failed, Err(ClusterApiError::Conflict { .. })), "{failed:?}");
    let kept = client.read_lease("default", "heartbeat").await?;
    ensure!(kept == theirs, "nothing was overwritten: {kept:?}");
    let gone = client.read_lease("default", "none").await;
    ensure!(matches!(gone, Err(ClusterApiError::NotFound { .. })), "{gone:?}");
    Ok(())
}

async fn events(client: &ApiClient) -> Result<()> {
    let event = ClusterEvent {
        about: ObjectReference {
            kind: "Node".to_owned(),
            name: "n1".to_owned(),
            ..ObjectReference::default()
        },
        kind: ClusterEventType::Warning,
        reason: "Tried".to_owned(),
        message: "it was tried".to_owned(),
        component: "test".to_owned(),
        host: String::new(),
        at: now(),
    };
    let stored_event = client.create_event(&event).await?;
    let again = Repetition { count: 3, last: now(), message: None };
    client.repeat_event(&stored_event, again).await?;
    let path =
        ObjectPath::namespaced(Resource::EVENTS, &stored_event.namespace, &stored_event.name);
    let stored: Value = serde_json::from_slice(&client.read(&path).await?.json)?;
    ensure!(stored["count"] == 3 && stored["reason"] == "Tried", "{stored:#}");
    ensure!(stored["involvedObject"]["name"] == "n1", "{stored:#}");
    Ok(())
}

async fn many_in_pages(client: &ApiClient) -> Result<()> {
    let namespace = ObjectPath {
        resource: Resource { group: "", version: "v1", plural: "namespaces" },
        namespace: None,
        name: "many".to_owned(),
    };
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "many"}});
    client.create(&namespace, body.to_string().into_bytes()).await?;
    let mut work = tokio::task::JoinSet::new();
    for worker in 0..20 {
        let client = client.clone();
        work.spawn(async move {
            for number in (worker..MANY).step_by(20) {
                let mut lease = Lease::default();
                lease.metadata.namespace = "many".to_owned();
                lease.metadata.name = format!("lease-{number}");
                client.create_lease(&lease).await?;
            }
            Ok::<_, ClusterApiError>(())
        });
    }
    while let Some(outcome) = work.join_next().await {
        outcome??;
    }
    let mut feed: Watch<Renewal> = Watch::start(client, ObjectSelector::in_namespace("many"));
    let (mut pages, mut names) = (0, BTreeSet::new());
    loop {
        match feed.next().await {
            FeedEvent::ListBegun => {}
            FeedEvent::Listed(page) => {
                ensure!(page.len() <= 500, "a page of {}", page.len());
                pages += 1;
                names.extend(page.into_iter().map(|lease| lease.name));
            }
            FeedEvent::ListEnded => break,
            other => bail!("{other:?}"),
        }
    }
    ensure!(names.len() == MANY as usize && pages == 10, "{} in {pages} pages", names.len());
    Ok(())
}

async fn rejections(plane: &ControlPlane, client: &ApiClient) -> Result<()> {
    let file = plane.admin_kubeconfig();
    let mut access = parse_kubeconfig(&fs::read(file)?, file, None)?;
    access.certificate = None;
    access.token = Some(TokenSource::Fixed(Secret::new("nonsense")));
    let stranger = ApiClient::new(access, ClientOptions::default()).map_err(|e| anyhow!(e))?;
    let failed = stranger.read(&ObjectPath::node("n1")).await;
    ensure!(matches!(failed, Err(ClusterApiError::Unauthenticated { .. })), "{failed:?}");
    let node = client_of(&plane.node_kubeconfig("mine")?)?;
    let failed = node.read_lease("many", "lease-1").await;
    ensure!(matches!(failed, Err(ClusterApiError::Refused { status: 403, .. })), "{failed:?}");
    // A token that the API server gave out is as good as a certificate.
    let token = plane.kubectl(&["create", "token", "default"])?;
    let mut access = parse_kubeconfig(&fs::read(file)?, file, None)?;
    access.certificate = None;
    access.token = Some(TokenSource::Fixed(Secret::new(token.trim())));
    let account = ApiClient::new(access, ClientOptions::default()).map_err(|e| anyhow!(e))?;
    ensure!(current_user(&account).await? == "system:serviceaccount:default:default");
    ensure!(current_user(client).await? == "bed-admin");
    Ok(())
}

async fn current_user(client: &ApiClient) -> Result<String> {
    let resource =
        Resource { group: "authentication.k8s.io", version: "v1", plural: "selfsubjectreviews" };
    let path = ObjectPath { resource, namespace: None, name: "me".to_owned() };
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let stored = client.create(&path, body.to_string().into_bytes()).await?;
    let review: Value = serde_json::from_slice(&stored.json)?;
    Ok(review["status"]["userInfo"]["username"].as_str().context("a name")?.to_owned())
}

/// The files that the kubeconfig names are replaced, and the client's user changes without a
/// restart.
async fn new_certificate(plane: &ControlPlane) -> Result<()> {
    let kubeconfig = plane.node_kubeconfig("before")?;
    let client = client_of(&kubeconfig)?;
    ensure!(current_user(&client).await? == "system:node:before");
    let subject = CertificateSubject {
        common_name: "system:node:after",
        organization: Some("system:nodes"),
        ..CertificateSubject::default()
    };
    // The same file names: what `node_kubeconfig` wrote is overwritten.
    plane.authority().issue("node-before", &subject)?;
    client.refresh_credentials().await.map_err(|message| anyhow!(message))?;
    ensure!(current_user(&client).await? == "system:node:after");
    Ok(())
}

/// Three watches and many requests share a connection.
async fn few_connections(plane: &ControlPlane, client: &ApiClient) -> Result<()> {
    let port: u16 = plane.url().rsplit(':').next().context("a port")?.parse()?;
    let _nodes: Watch<Node> = Watch::start(client, ObjectSelector::default());
    let _pods: Watch<Pod> = Watch::start(client, ObjectSelector::default());
    let mut leases: Watch<Renewal> = Watch::start(client, ObjectSelector::in_namespace("default"));
    wait_for(&mut leases, "end of the list", |event| *event == FeedEvent::ListEnded).await?;
    let ours: BTreeSet<String> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string("/proc/self/net/tcp")?;
    let to_server = format!(":{port:04X}");
    // Columns: 2 is the remote address, 3 the state (01 is established), 9 the inode.
    let count = table
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>())
        .filter(|row| row.len() > 9 && row[2].ends_with(&to_server) && row[3] == "01")
        .filter(|row| ours.contains(row[9]))
        .count();
    ensure!((1..=2).contains(&count), "{count} connections to the API server");
    Ok(())
}

async fn comes_back(bed: &Bed, plane: &mut ControlPlane, client: &ApiClient) -> Result<()> {
    let mut feed: Watch<Renewal> = Watch::start(client, ObjectSelector::in_namespace("default"));
    wait_for(&mut feed, "end of the list", |event| *event == FeedEvent::ListEnded).await?;
    let process = plane.api_server().process_id();
    let line = fs::read(format!("/proc/{process}/cmdline"))?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let target = i32::try_from(process).ok().and_then(Pid::from_raw).context("a process id")?;
    kill_process(target, Signal::KILL)?;
    wait_for(&mut feed, "interruption", |event| matches!(event, FeedEvent::Interrupted(_))).await?;
    let failed = client.read_lease("default", "heartbeat").await;
    ensure!(matches!(failed, Err(ClusterApiError::Unreachable { .. })), "{failed:?}");

    let (program, arguments) = words.split_first().context("no command line")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let _again = RunningPart::start(bed, "kube-apiserver-again", &mut command)?;
    wait_for(&mut feed, "resumption", |event| *event == FeedEvent::Resumed).await?;
    let mut lease = Lease::default();
    lease.metadata.namespace = "default".to_owned();
    lease.metadata.name = "afterwards".to_owned();
    let until = Instant::now() + Duration::from_secs(60);
    while let Err(error) = client.create_lease(&lease).await {
        ensure!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    wait_for(&mut feed, "change", |event| is_about(event, "afterwards")).await?;
    Ok(())
}

fn now() -> ApiTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ApiTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
