//! What controllers make runs: a Deployment that serves and rolls over, Jobs, a DaemonSet, a
//! StatefulSet, and a drain of the node.
//!
//! The scheduler binds the pods and the controllers see the statuses that our agent writes: each
//! step succeeds only if both believe them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::get;
use real_tests::cluster::{ClusterPrograms, JoinedNode, NEEDS, NODE, condition, shell};
use serde_json::{Value, json};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";
/// Serves a page until it is asked to end.
const SERVER: &str = "mkdir /www; echo served by $(hostname) > /www/index.html; \
    trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait";
const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

#[test]
fn what_controllers_make_runs_serves_rolls_over_and_is_drained() -> Result<()> {
    let programs = ClusterPrograms::build()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(8)).run(move |bed| {
        let node = JoinedNode::start(bed, &programs)?;
        deployment(&node).context("Deployment")?;
        jobs(&node).context("Jobs")?;
        daemon_set(&node).context("DaemonSet")?;
        stateful_set(&node).context("StatefulSet")?;
        drain(&node).context("drain")?;
        node.end()
    })
}

/// The template of a workload's pods.
fn template(app: &str, container: &Value, restart_policy: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "containers": [container],
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 2,
        },
    })
}

fn workload(kind: &str, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": name}});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Waits until a workload's status holds; the controller must have seen the last change.
fn until_status(
    node: &JoinedNode<'_>,
    path: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let mut last = Value::Null;
    let result = node.until(&format!("{path}: {what}"), || {
        last = node.api.read(path)?;
        let is_seen = last["status"]["observedGeneration"] == last["metadata"]["generation"];
        Ok((is_seen && holds(&last["status"])).then(|| last.clone()))
    });
    result.with_context(|| format!("{:#}", last["status"]))
}

/// Asks a pod's server for its page, over the pod's own address.
fn page(pod: &Value) -> Result<String> {
    let address: IpAddr = pod["status"]["podIP"].as_str().context("an address")?.parse()?;
    Ok(get(SocketAddr::new(address, 8080), "/")?.body)
}

fn deployment(node: &JoinedNode<'_>) -> Result<()> {
    let mut container = shell(SERVER);
    container["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1});
    let spec = json!({"replicas": 2, "template": template("web", &container, "Always")});
    node.api.create(&format!("{APPS}/deployments"), &workload("Deployment", "web", &spec))?;
    let path = format!("{APPS}/deployments/web");
    until_status(node, &path, "two are available", |status| status["availableReplicas"] == 2)?;
    let before = node.labelled("app=web")?;
    ensure!(before.len() == 2, "{} pods", before.len());
    for pod in &before {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        ensure!(pod["spec"]["nodeName"] == NODE, "{name} was bound elsewhere");
        let served = page(pod)?;
        ensure!(served.trim() == format!("served by {name}"), "{name} served {served:?}");
    }
    // Another template: new pods come, are believed ready, and the old ones go.
    let change = json!({"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}});
    node.api.patch(&path, &change)?;
    until_status(node, &path, "rolled over", |status| {
        status["updatedReplicas"] == 2
            && status["availableReplicas"] == 2
            && status["replicas"] == 2
    })?;
    node.until("only the new pods are left", || {
        let pods = node.labelled("app=web")?;
        let is_new = |pod: &Value| pod["metadata"]["annotations"]["round"] == "two";
        Ok((pods.len() == 2 && pods.iter().all(is_new)).then_some(()))
    })
}

fn job(name: &str, script: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["template"] = template(name, &shell(script), "Never");
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
}

fn jobs(node: &JoinedNode<'_>) -> Result<()> {
    let spec = json!({"completions": 3, "parallelism": 2});
    let jobs = format!("{BATCH}/jobs");
    node.api.create(&jobs, &job("sums", "echo done", spec))?;
    let spec = json!({"backoffLimit": 0});
    node.api.create(&jobs, &job("fails", "exit 3", spec))?;
    let finished = |name: &str, kind: &str| {
        let path = format!("{jobs}/{name}");
        node.until(&format!("Job {name} is {kind}"), || {
            let job = node.api.read(&path)?;
            Ok((condition(&job, kind)["status"] == "True").then_some(job))
        })
    };
    let sums = finished("sums", "Complete")?;
    ensure!(sums["status"]["succeeded"] == 3, "{}", sums["status"]);
    let fails = finished("fails", "Failed")?;
    ensure!(condition(&fails, "Failed")["reason"] == "BackoffLimitExceeded", "{}", fails["status"]);
    let failed = node.labelled("app=fails")?;
    let code = &failed[0]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    ensure!(*code == 3, "{:#}", failed[0]["status"]);
    for name in ["sums", "fails"] {
        node.api.delete(&format!("{jobs}/{name}"), None)?;
        node.until(&format!("the pods of Job {name} are gone"), || {
            Ok(node.labelled(&format!("app={name}"))?.is_empty().then_some(()))
        })?;
    }
    Ok(())
}

fn daemon_set(node: &JoinedNode<'_>) -> Result<()> {
    let spec = json!({"template": template("agent", &shell(STEADY), "Always")});
    node.api.create(&format!("{APPS}/daemonsets"), &workload("DaemonSet", "agent", &spec))?;
    let path = format!("{APPS}/daemonsets/agent");
    let is_ready = |status: &Value| status["numberReady"] == 1 && status["numberAvailable"] == 1;
    until_status(node, &path, "its pod is ready", is_ready)?;
    let before = node.labelled("app=agent")?;
    let change = json!({"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}});
    node.api.patch(&path, &change)?;
    until_status(node, &path, "rolled over", |status| {
        is_ready(status) && status["updatedNumberScheduled"] == 1
    })?;
    let after = node.labelled("app=agent")?;
    ensure!(after.len() == 1, "{} pods", after.len());
    ensure!(after[0]["metadata"]["uid"] != before[0]["metadata"]["uid"], "it is the same pod");
    Ok(())
}

fn stateful_set(node: &JoinedNode<'_>) -> Result<()> {
    let spec = json!({
        "replicas": 2, "serviceName": "db", "template": template("db", &shell(STEADY), "Always"),
    });
    node.api.create(&format!("{APPS}/statefulsets"), &workload("StatefulSet", "db", &spec))?;
    let path = format!("{APPS}/statefulsets/db");
    let is_complete = |status: &Value| status["readyReplicas"] == 2;
    until_status(node, &path, "both are ready", is_complete)?;
    let first = node.pod("db-0")?.context("db-0")?;
    node.delete_pod("db-0", None)?;
    let successor = node.until_pod("db-0", "its successor is ready", |pod| {
        pod["metadata"]["uid"] != first["metadata"]["uid"]
            && condition(pod, "Ready")["status"] == "True"
    })?;
    let name = successor["spec"]["hostname"].as_str();
    ensure!(name == Some("db-0"), "{:#}", successor["spec"]);
    until_status(node, &path, "both are ready again", is_complete).map(drop)
}

fn drain(node: &JoinedNode<'_>) -> Result<()> {
    let pod = real_tests::cluster::pod_object("bare", json!({"containers": [shell(STEADY)]}));
    node.create_bound(&pod)?;
    node.until_ready("bare")?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"},
        "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": "db"}}},
    });
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    node.api.create(budgets, &budget)?;
    node.plane.kubectl(&["cordon", NODE])?;
    let arguments = [
        "drain",
        NODE,
        "--ignore-daemonsets",
        "--force",
        "--delete-emptydir-data",
        "--timeout=60s",
    ];
    node.plane.kubectl(&arguments)?;
    let left: Vec<Value> = node.api.items("/api/v1/namespaces/default/pods")?;
    let here = left.iter().filter(|pod| pod["spec"]["nodeName"] == NODE);
    let apps: Vec<&Value> = here.map(|pod| &pod["metadata"]["labels"]["app"]).collect();
    ensure!(apps == ["agent"], "on the node there are still {apps:?}");
    node.until("the runtime has only the DaemonSet's pod", || {
        Ok((node.runtime.sandboxes()?.len() == 1).then_some(()))
    })?;
    node.plane.kubectl(&["uncordon", NODE])?;
    until_status(node, &format!("{APPS}/deployments/web"), "it is back", |status| {
        status["availableReplicas"] == 2
    })?;
    Ok(())
}
