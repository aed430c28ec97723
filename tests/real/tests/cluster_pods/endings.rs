//! How pods end and what keeps them from starting: force deletion with a successor, a second
//! deletion with a shorter grace period, a missing ConfigMap, mirror pods, a deadline.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use real_tests::cluster::{
    ClusterPrograms, JoinedNode, NEEDS, NODE, container_status, is_ready, pod_object, shell,
    waiting_reason,
};
use serde_json::{Value, json};

/// Ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";
const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

#[test]
fn pods_end_as_requested_and_wait_for_what_is_missing() -> Result<()> {
    let programs = ClusterPrograms::build()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(6)).run(move |bed| {
        let node = JoinedNode::start(bed, &programs)?;
        second_delete(&node).context("a second, shorter deletion")?;
        force_delete(&node).context("force deletion and a successor")?;
        missing_config_map(&node).context("a ConfigMap that is missing")?;
        mirror(&node).context("a mirror pod")?;
        finished_pods(&node).context("pods that have finished")?;
        node.delete_all_pods()?;
        node.end()
    })
}

fn stubborn(name: &str, grace: u32) -> Value {
    let spec = json!({
        "containers": [shell(STUBBORN)], "terminationGracePeriodSeconds": grace,
    });
    pod_object(name, spec)
}

fn uid(pod: &Value) -> &Value {
    &pod["metadata"]["uid"]
}

fn second_delete(node: &JoinedNode<'_>) -> Result<()> {
    node.create_bound(&stubborn("twice", 600))?;
    node.until_ready("twice")?;
    node.delete_pod("twice", None)?;
    node.until_pod("twice", "it is ending", |pod| !pod["metadata"]["deletionTimestamp"].is_null())?;
    std::thread::sleep(Duration::from_secs(2));
    ensure!(node.pod("twice")?.is_some(), "it went before its grace period passed");
    node.delete_pod("twice", Some(1))?;
    let begun = Instant::now();
    node.until_gone("twice")?;
    let took = begun.elapsed();
    // One second of grace, the kill, the status, the last deletion: a busy machine is slow.
    ensure!(took < Duration::from_secs(15), "the shorter grace period took {took:?}");
    Ok(())
}

fn force_delete(node: &JoinedNode<'_>) -> Result<()> {
    node.create_bound(&stubborn("same", 4))?;
    let first = node.until_ready("same")?;
    node.delete_pod("same", Some(0))?;
    ensure!(node.pod("same")?.is_none(), "a forced deletion removes the object at once");
    let second = node.create_bound(&stubborn("same", 2))?;
    ensure!(uid(&first) != uid(&second), "another pod");
    let ready = node.until_pod("same", "the successor is ready", |pod| {
        uid(pod) == uid(&second) && is_ready(pod)
    })?;
    ensure!(container_status(&ready, "main")["restartCount"] == 0, "{:#}", ready["status"]);
    node.until("the first one's container is gone", || {
        let running = node.runtime.containers("same")?;
        Ok((running.iter().filter(|one| one.finished_at == 0).count() == 1).then_some(()))
    })?;
    node.delete_pod("same", None)?;
    node.until_gone("same")
}

fn missing_config_map(node: &JoinedNode<'_>) -> Result<()> {
    let mut by_variable = shell(STEADY);
    by_variable["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    node.create_bound(&pod_object("by-variable", json!({"containers": [by_variable]})))?;
    let mut by_file = shell(STEADY);
    by_file["volumeMounts"] = json!([{"name": "settings", "mountPath": "/settings"}]);
    let volumes = json!([{"name": "settings", "configMap": {"name": "settings"}}]);
    node.create_bound(&pod_object(
        "by-file",
        json!({"containers": [by_file], "volumes": volumes}),
    ))?;
    let waits = node.until_pod("by-variable", "waits for its ConfigMap", |pod| {
        waiting_reason(pod, "main") == "CreateContainerConfigError"
    })?;
    let message = &container_status(&waits, "main")["state"]["waiting"]["message"];
    ensure!(*message == "configmap \"settings\" not found", "{message}");
    ensure!(waits["status"]["phase"] == "Pending", "{:#}", waits["status"]);
    let waits = node.until_pod("by-file", "waits for its volume", |pod| {
        waiting_reason(pod, "main") == "ContainerCreating"
    })?;
    ensure!(waits["status"]["phase"] == "Pending", "{:#}", waits["status"]);
    node.until("an event shows what is missing", || {
        let events = node.events("by-file")?;
        let shows = |line: &String| {
            line.contains("Warning FailedMount")
                && line.contains("configmap \"settings\" not found")
        };
        Ok(events.iter().any(shows).then_some(()))
    })
    .with_context(|| format!("{:#?}", node.events("by-file")))?;
    ensure!(node.runtime.containers("by-")?.is_empty(), "a container was made without it");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
        "data": {"COLOUR": "green"},
    });
    node.api.create("/api/v1/namespaces/default/configmaps", &map)?;
    for name in ["by-variable", "by-file"] {
        node.within(Duration::from_secs(180), &format!("{name} runs with it"), || {
            Ok(node.pod(name)?.filter(is_ready))
        })?;
    }
    let seen = node.plane.kubectl(&["exec", "by-variable", "--", "sh", "-c", "echo $COLOUR"])?;
    ensure!(seen.trim() == "green", "{seen}");
    let seen = node.plane.kubectl(&["exec", "by-file", "--", "cat", "/settings/COLOUR"])?;
    ensure!(seen.trim() == "green", "{seen}");
    Ok(())
}

fn mirror(node: &JoinedNode<'_>) -> Result<()> {
    let manifest = pod_object("fixed", json!({"containers": [shell(STEADY)]})).to_string();
    node.agent()?.place("fixed", &manifest)?;
    let name = format!("fixed-{NODE}");
    let mirror = node.until_ready(&name)?;
    let annotations = &mirror["metadata"]["annotations"];
    for key in ["kubernetes.io/config.mirror", "kubernetes.io/config.hash"] {
        ensure!(annotations[key].is_string(), "{annotations:#}");
    }
    ensure!(annotations["kubernetes.io/config.source"] == "file", "{annotations:#}");
    let owner = &mirror["metadata"]["ownerReferences"][0];
    ensure!(owner["kind"] == "Node" && owner["name"] == NODE, "{owner}");
    let running = node.runtime.containers(&name)?;
    node.delete_pod(&name, Some(0))?;
    let again =
        node.until_pod(&name, "it is made again", |pod| uid(pod) != uid(&mirror) && is_ready(pod))?;
    ensure!(again["metadata"]["annotations"] == *annotations, "{again:#}");
    let after = node.runtime.containers(&name)?;
    ensure!(running == after, "the static pod was touched: {running:?} {after:?}");
    node.agent()?.withdraw("fixed")?;
    node.until_gone(&name)
}

/// A pod of a Job stays as it ended until it is deleted, also across a deadline.
fn finished_pods(node: &JoinedNode<'_>) -> Result<()> {
    let spec = json!({"containers": [shell("exit 4")], "restartPolicy": "Never"});
    node.create_bound(&pod_object("failed", spec))?;
    let spec = json!({
        "containers": [shell(STEADY)], "restartPolicy": "Never", "activeDeadlineSeconds": 2,
    });
    node.create_bound(&pod_object("late", spec))?;
    let failed =
        node.until_pod("failed", "has failed", |pod| pod["status"]["phase"] == "Failed")?;
    let state = &container_status(&failed, "main")["state"]["terminated"];
    ensure!(state["exitCode"] == 4 && state["reason"] == "Error", "{state}");
    let late = node.until_pod("late", "has failed", |pod| pod["status"]["phase"] == "Failed")?;
    ensure!(late["status"]["reason"] == "DeadlineExceeded", "{:#}", late["status"]);
    Ok(())
}
