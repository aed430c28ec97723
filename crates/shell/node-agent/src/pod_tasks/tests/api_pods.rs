//! Pods of the API server: started, reported, ended, deleted; mirrors of static pods.

use super::bench::{AgentBench, pod};
use super::cluster::{NODE, cluster, cluster_fixture, seconds};
use cluster_fake::ApiVerb;
use ports::ClusterApi;
use ports::cluster_api::{Deletion, ObjectPath, Resource};
use runtime_fake::Behaviour;
use serde_json::{Value, json};
use std::time::Duration;

fn object(restart_policy: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" }, "generation": 1 },
        "spec": {
            "nodeName": NODE,
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 30,
            "containers": [{ "name": "main", "image": "i:1", "imagePullPolicy": "IfNotPresent" }],
        },
        "status": { "phase": "Pending", "qosClass": "BestEffort" },
    })
}

fn path(name: &str) -> ObjectPath {
    ObjectPath::pod("default", name)
}

fn stored(bench: &AgentBench, name: &str) -> Option<Value> {
    cluster(bench).cluster.get(&path(name))
}

fn status(bench: &AgentBench, name: &str, pointer: &str) -> Value {
    let found = stored(bench, name).unwrap_or_default();
    found.pointer(&format!("/status{pointer}")).cloned().unwrap_or_default()
}

fn is_phase(name: &'static str, phase: &'static str) -> impl Fn(&AgentBench) -> bool {
    move |bench| status(bench, name, "/phase") == phase
}

fn condition(bench: &AgentBench, name: &str, kind: &str) -> Value {
    let conditions = status(bench, name, "/conditions");
    let found = conditions.as_array().and_then(|all| all.iter().find(|each| each["type"] == kind));
    found.cloned().unwrap_or_default()
}

/// The bench with a running agent.
async fn begun() -> AgentBench {
    let mut bench = cluster_fixture(|_| {});
    bench.script.emit(&[]);
    bench.begin();
    seconds(5).await;
    bench
}

async fn delete(bench: &AgentBench, name: &str, grace_seconds: i64) {
    let deletion = Deletion { grace_seconds: Some(grace_seconds), ..Deletion::default() };
    let admin = cluster(bench).cluster.client("kubectl");
    admin.delete(&path(name), deletion).await.unwrap();
}

fn requests(bench: &AgentBench, verb: ApiVerb, name: &str) -> usize {
    let log = cluster(bench).cluster.log();
    log.iter().filter(|entry| entry.verb == verb && entry.path == path(name)).count()
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_runs_is_reported_and_is_removed_when_it_is_deleted() {
    let bench = begun().await;
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    let took = bench.until("it runs", is_phase("web", "Running")).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    seconds(2).await;
    assert_eq!(condition(&bench, "web", "Ready")["status"], "True");
    assert_eq!(status(&bench, "web", "/containerStatuses/0/ready"), true);
    assert_eq!(status(&bench, "web", "/hostIP"), "10.0.0.5");
    let patches = requests(&bench, ApiVerb::Patch, "web");
    assert!(patches <= 3, "{patches} patches");
    seconds(300).await;
    assert_eq!(requests(&bench, ApiVerb::Patch, "web"), patches, "a pod at rest is not written");
    delete(&bench, "web", 30).await;
    let took = bench.until("it is gone", |bench| stored(bench, "web").is_none()).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(requests(&bench, ApiVerb::Delete, "web"), 2, "ours and the client's");
    bench.until("it is forgotten", |bench| bench.pods().is_empty()).await;
    assert!(bench.runtime.containers().is_empty() && bench.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_stays_finished() {
    let mut bench = begun().await;
    cluster(&bench).cluster.put(&path("job"), object("Never"));
    bench.until("it runs", is_phase("job", "Running")).await;
    bench.runtime.crash("main", 0);
    bench.until("it has succeeded", is_phase("job", "Succeeded")).await;
    assert_eq!(status(&bench, "job", "/containerStatuses/0/state/terminated/exitCode"), 0);
    let starts = bench.calls_of("start_container").len();
    bench.kill().await;
    bench.begin();
    seconds(30).await;
    assert_eq!(bench.calls_of("start_container").len(), starts);
    assert_eq!(status(&bench, "job", "/phase"), "Succeeded");
    assert_eq!(status(&bench, "job", "/containerStatuses/0/state/terminated/exitCode"), 0);
    delete(&bench, "job", 30).await;
    bench.until("it is gone", |bench| stored(bench, "job").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_delete_shortens_the_grace_period() {
    let bench = begun().await;
    bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    bench.until("it runs", is_phase("web", "Running")).await;
    delete(&bench, "web", 600).await;
    seconds(5).await;
    assert!(stored(&bench, "web").is_some());
    delete(&bench, "web", 1).await;
    let took = bench.until("it is gone", |bench| stored(bench, "web").is_none()).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_others_failed_is_stopped() {
    let bench = begun().await;
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    bench.until("it runs", is_phase("web", "Running")).await;
    cluster(&bench).cluster.edit(&path("web"), |object| {
        object["status"]["phase"] = json!("Failed");
        object["status"]["reason"] = json!("Evicted");
    });
    seconds(10).await;
    assert!(!bench.runtime.sandboxes().iter().any(|sandbox| sandbox.ready));
    assert_eq!(status(&bench, "web", "/phase"), "Failed");
    assert_eq!(status(&bench, "web", "/reason"), "Evicted");
}

#[tokio::test(start_paused = true)]
async fn a_readiness_gate_of_another_component_makes_the_pod_ready() {
    let bench = begun().await;
    let mut gated = object("Always");
    gated["spec"]["readinessGates"] = json!([{ "conditionType": "example.com/gate" }]);
    cluster(&bench).cluster.put(&path("web"), gated);
    bench.until("it runs", is_phase("web", "Running")).await;
    seconds(2).await;
    assert_eq!(condition(&bench, "web", "Ready")["reason"], "ReadinessGatesNotReady");
    cluster(&bench).cluster.edit(&path("web"), |object| {
        let gate = json!({ "type": "example.com/gate", "status": "True" });
        object["status"]["conditions"].as_array_mut().unwrap().push(gate);
    });
    let is_ready = |bench: &AgentBench| condition(bench, "web", "Ready")["status"] == "True";
    let took = bench.until("it is ready", is_ready).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(condition(&bench, "web", "example.com/gate")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_pod_removed_by_force_ends_and_its_successor_runs() {
    let bench = begun().await;
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    bench.until("it runs", is_phase("web", "Running")).await;
    cluster(&bench).cluster.remove(&path("web"));
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    bench.until("the successor runs", is_phase("web", "Running")).await;
    bench.until("the first is gone", |bench| bench.pods().len() == 1).await;
    assert_eq!(requests(&bench, ApiVerb::Delete, "web"), 0, "the successor was not deleted");
}

#[tokio::test(start_paused = true)]
async fn an_agent_killed_after_the_last_container_ended_still_deletes_the_pod() {
    let mut bench = begun().await;
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    bench.until("it runs", is_phase("web", "Running")).await;
    cluster(&bench).api.faults.turn(|faults| faults.away = true);
    seconds(1).await;
    cluster(&bench).api.faults.turn(|faults| faults.hangs = true);
    delete(&bench, "web", 30).await;
    seconds(5).await;
    bench.kill().await;
    cluster(&bench).api.faults.reset();
    bench.begin();
    bench.until("it is gone", |bench| stored(bench, "web").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn pods_run_on_while_the_api_server_is_away_and_are_reported_later() {
    let bench = begun().await;
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    bench.until("it runs", is_phase("web", "Running")).await;
    cluster(&bench).api.faults.turn(|faults| faults.away = true);
    seconds(30).await;
    bench.runtime.crash("main", 3);
    seconds(300).await;
    let local = bench.pod().unwrap();
    assert_eq!(local.object["status"]["containerStatuses"][0]["restartCount"], 1);
    assert_eq!(status(&bench, "web", "/containerStatuses/0/restartCount"), 0);
    cluster(&bench).api.faults.reset();
    let is_reported =
        |bench: &AgentBench| status(bench, "web", "/containerStatuses/0/restartCount") == 1;
    let took = bench.until("it is reported", is_reported).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_has_a_mirror_with_its_status() {
    let mut bench = cluster_fixture(|_| {});
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("the mirror runs", is_phase("a-n", "Running")).await;
    let mirror = stored(&bench, "a-n").unwrap();
    let annotations = &mirror["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(
        annotations["kubernetes.io/config.mirror"],
        annotations["kubernetes.io/config.hash"]
    );
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    let starts = bench.calls_of("start_container").len();
    cluster(&bench).cluster.remove(&path("a-n"));
    bench.until("the mirror is back", is_phase("a-n", "Running")).await;
    delete(&bench, "a-n", 30).await;
    seconds(60).await;
    assert_eq!(status(&bench, "a-n", "/phase"), "Running");
    assert_eq!(bench.calls_of("start_container").len(), starts, "the static pod goes on");
    bench.script.emit(&[]);
    bench.until("the mirror is gone", |bench| stored(bench, "a-n").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_mirror_stays_while_its_static_pod_ends_and_the_same_pod_counts_on() {
    let mut bench = cluster_fixture(|_| {});
    bench.runtime.set_behaviour("main", Behaviour::IgnoresStop);
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("the mirror runs", is_phase("a-n", "Running")).await;
    let uid_of = |bench: &AgentBench| stored(bench, "a-n").unwrap()["metadata"]["uid"].clone();
    let mirror = uid_of(&bench);
    bench.script.emit(&[]);
    seconds(20).await;
    assert_eq!(uid_of(&bench), mirror, "it still ends");
    bench.script.emit(&[("/m/a", &pod("a", ""))]);
    let has_counted =
        |bench: &AgentBench| status(bench, "a-n", "/containerStatuses/0/restartCount") == 1;
    bench.until("its successor runs", has_counted).await;
    bench.script.emit(&[]);
    bench.until("the mirror is gone", |bench| stored(bench, "a-n").is_none()).await;
    assert!(bench.runtime.containers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_restarts_gets_its_new_image() {
    let bench = begun().await;
    cluster(&bench).cluster.put(&path("web"), object("Never"));
    bench.until("it runs", is_phase("web", "Running")).await;
    bench.runtime.add_image("i:2");
    let mut updated = stored(&bench, "web").unwrap();
    updated["spec"]["containers"][0]["image"] = json!("i:2");
    cluster(&bench).cluster.put(&path("web"), updated);
    let has_restarted =
        |bench: &AgentBench| status(bench, "web", "/containerStatuses/0/restartCount") == 1;
    bench.until("it runs again", has_restarted).await;
    assert_eq!(status(&bench, "web", "/phase"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_container_in_the_nodes_network_sees_the_nodes_address() {
    let bench = begun().await;
    let mut object = object("Always");
    object["spec"]["hostNetwork"] = json!(true);
    let field = json!({ "apiVersion": "v1", "fieldPath": "status.podIP" });
    object["spec"]["containers"][0]["env"] =
        json!([{ "name": "IP", "valueFrom": { "fieldRef": field } }]);
    cluster(&bench).cluster.put(&path("web"), object);
    bench.until("it runs", is_phase("web", "Running")).await;
    let environment = bench.runtime.environment("main");
    assert!(environment.contains(&("IP".to_owned(), "10.0.0.5".to_owned())), "{environment:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_is_rejected() {
    let bench = begun().await;
    let mut large = object("Always");
    large["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "64" } });
    cluster(&bench).cluster.put(&path("large"), large);
    bench.until("it is rejected", is_phase("large", "Failed")).await;
    assert_eq!(status(&bench, "large", "/reason"), "OutOfcpu");
    assert!(bench.runtime.containers().is_empty() && bench.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_class_names_the_handler_and_a_missing_one_is_reported() {
    let bench = begun().await;
    let mut classed = object("Always");
    classed["spec"]["runtimeClassName"] = json!("fast");
    cluster(&bench).cluster.put(&path("web"), classed);
    let reported = |bench: &AgentBench| {
        let reasons = cluster(bench).cluster.reasons("web");
        reasons.iter().any(|reason| reason == "FailedCreatePodSandBox")
    };
    bench.until("the missing class is reported", reported).await;
    assert!(bench.calls_of("run_sandbox").is_empty());
    let class = ObjectPath {
        resource: Resource::RUNTIME_CLASSES,
        namespace: None,
        name: "fast".to_owned(),
    };
    cluster(&bench).cluster.put(&class, json!({ "handler": "fast-handler" }));
    bench.until("it runs", is_phase("web", "Running")).await;
    let handlers = bench.runtime.sandboxes();
    assert!(
        handlers.iter().all(|sandbox| sandbox.runtime_handler == "fast-handler"),
        "{handlers:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn containers_get_the_addresses_of_services() {
    let bench = begun().await;
    let service = ObjectPath::namespaced(Resource::SERVICES, "default", "kubernetes");
    let ports = json!([{ "name": "https", "port": 443 }]);
    cluster(&bench)
        .cluster
        .put(&service, json!({ "spec": { "clusterIP": "10.0.0.1", "ports": ports } }));
    seconds(1).await;
    cluster(&bench).cluster.put(&path("web"), object("Always"));
    bench.until("it runs", is_phase("web", "Running")).await;
    let environment = bench.runtime.environment("main");
    let host = ("KUBERNETES_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned());
    assert!(environment.contains(&host), "{environment:?}");
}
