//! Statuses and events of many kinds of pods, beside those that the reference kubelet writes of the
//! same pods to the same API server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use real_tests::cluster::comparison::{ComparedPod, differences};
use real_tests::cluster::{
    ClusterPrograms, JoinedNode, NEEDS, NODE, RuntimeKind, condition, container_state, is_ready,
    pod_object, shell, waiting_reason,
};
use real_tests::standalone::agent::AgentKind;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

/// Differences that may be, each with its reason: words of the line.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "/resources/limits: reference {\"memory\":\"9007199254740988Ki\"}, ours null",
        "the reference reads the cgroup's \"no limit\" as a limit, now and then",
    ),
    (
        "oom/containerStatuses/main/state/terminated/message: reference null",
        "ours says what the kernel killed and how much it used",
    ),
    ("oom event of ours only: Warning OOMKilling", "the same, as an event"),
];

/// One kind of pod, and when it has come to rest.
struct PodCase {
    name: &'static str,
    spec: Value,
    is_at_rest: fn(&Value) -> bool,
}

fn is_over(pod: &Value) -> bool {
    ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase)
}

fn never(container: &Value) -> Value {
    json!({"containers": [container], "restartPolicy": "Never"})
}

fn named(name: &str, container: Value) -> Value {
    let mut container = container;
    container["name"] = name.into();
    container
}

fn with(container: Value, field: &str, value: Value) -> Value {
    let mut container = container;
    container[field] = value;
    container
}

fn case(name: &'static str, spec: Value, is_at_rest: fn(&Value) -> bool) -> PodCase {
    PodCase { name, spec, is_at_rest }
}

/// Pods that end.
fn ending_cases() -> Vec<PodCase> {
    let memory = json!({"limits": {"memory": "16Mi"}, "requests": {"memory": "16Mi"}});
    let failing =
        json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1});
    let sidecar = with(named("side", shell(STEADY)), "restartPolicy", "Always".into());
    let once = "[ -e /memory/x ] && exit 0; touch /memory/x; exit 1";
    let mounts = json!([{"name": "memory", "mountPath": "/memory"}]);
    vec![
        case("succeeding", never(&shell("exit 0")), is_over),
        case("failing", never(&shell("echo last words > /dev/termination-log; exit 3")), is_over),
        case(
            "failing-init",
            json!({
                "initContainers": [named("first", shell("exit 1")), named("second", shell("exit 0"))],
                "containers": [shell(STEADY)], "restartPolicy": "Never",
            }),
            is_over,
        ),
        case("oom", never(&with(shell("exec tail /dev/zero"), "resources", memory)), is_over),
        case("bad-command", never(&with(shell(""), "command", json!(["/nothing"]))), is_over),
        case("unalive", never(&with(shell(STEADY), "livenessProbe", failing)), is_over),
        case(
            "deadline",
            json!({
                "containers": [shell(STEADY)], "restartPolicy": "Never",
                "activeDeadlineSeconds": 12,
            }),
            is_over,
        ),
        case(
            "sidecar",
            json!({
                "initContainers": [sidecar],
                "containers": [shell("sleep 1")], "restartPolicy": "Never",
            }),
            is_over,
        ),
        case(
            "second-try",
            json!({
                "containers": [with(shell(once), "volumeMounts", mounts)],
                "volumes": [{"name": "memory", "emptyDir": {}}], "restartPolicy": "OnFailure",
            }),
            is_over,
        ),
    ]
}

/// Pods that run on or wait.
fn lasting_cases() -> Vec<PodCase> {
    let probe = |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 1});
    let map = json!([{"configMapRef": {"name": "nowhere"}}]);
    let is_running = |pod: &Value| !container_state(pod, "main")["running"].is_null();
    let nowhere = "registry.k8s.io/nowhere:1";
    // An image may be asked for before the sandbox is up.
    let waits_for_image = |pod: &Value| {
        waiting_reason(pod, "main") == "ImagePullBackOff"
            && condition(pod, "PodReadyToStartContainers")["status"] == "True"
    };
    vec![
        case(
            "ready",
            json!({"containers": [with(shell(STEADY), "readinessProbe", probe("true"))]}),
            is_ready,
        ),
        case(
            "not-ready",
            json!({"containers": [with(shell(STEADY), "readinessProbe", probe("false"))]}),
            is_running,
        ),
        case("crash-loop", json!({"containers": [shell("exit 1")]}), |pod| {
            waiting_reason(pod, "main") == "CrashLoopBackOff"
        }),
        case(
            "init-crash-loop",
            json!({
                "initContainers": [named("first", shell("exit 1"))],
                "containers": [shell(STEADY)],
            }),
            |pod| waiting_reason(pod, "first") == "CrashLoopBackOff",
        ),
        case(
            "no-image",
            json!({"containers": [with(shell(""), "image", nowhere.into())]}),
            waits_for_image,
        ),
        case("no-config", json!({"containers": [with(shell(STEADY), "envFrom", map)]}), |pod| {
            waiting_reason(pod, "main") == "CreateContainerConfigError"
        }),
        case(
            "one-of-two",
            json!({
                "containers": [shell(STEADY), named("done", shell("exit 0"))],
                "restartPolicy": "OnFailure",
            }),
            |pod| !container_state(pod, "done")["terminated"].is_null(),
        ),
    ]
}

#[test]
fn statuses_and_events_are_those_of_the_reference() -> Result<()> {
    let programs = ClusterPrograms::build()?;
    let needs: Vec<&'static str> = NEEDS.iter().copied().chain(["kubelet"]).collect();
    BedTest::new().needs(&needs).deadline(Duration::from_mins(8)).run(move |bed| {
        let mut node = JoinedNode::without_agent(bed, &programs, RuntimeKind::Containerd)?;
        let cases: Vec<PodCase> = ending_cases().into_iter().chain(lasting_cases()).collect();
        let mut reports = Vec::new();
        for kind in [AgentKind::reference()?, programs.keelson.clone()] {
            node.replace_agent(kind.clone())?;
            node.until_schedulable()?;
            reports.push(report(&node, &cases).with_context(|| kind.name.to_owned())?);
            node.delete_all_pods()?;
            node.api.delete(&format!("/api/v1/nodes/{NODE}"), None)?;
            node.plane.kubectl(&["delete", "events", "--all"])?;
        }
        let ours = reports.pop().context("ours")?;
        let reference = reports.pop().context("the reference's")?;
        ensure!(ours.values().all(|pod| !pod.events.is_empty()), "a pod without events: {ours:#?}");
        let mut found = differences(&reference, &ours);
        found.retain(|line| !DIFFERENCES.iter().any(|(words, _)| line.contains(words)));
        ensure!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
        node.end()
    })
}

/// Creates all pods at once and takes the status of each when it has come to rest.
fn report(node: &JoinedNode<'_>, cases: &[PodCase]) -> Result<BTreeMap<String, ComparedPod>> {
    for case in cases {
        let mut pod = pod_object(case.name, case.spec.clone());
        // The volume of a token has a random name.
        pod["spec"]["automountServiceAccountToken"] = false.into();
        node.create_bound(&pod)?;
    }
    let mut statuses: BTreeMap<String, Value> = BTreeMap::new();
    let all = node.within(Duration::from_secs(120), "all pods are at rest", || {
        for pod in node.api.items(PODS)? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let case = cases.iter().find(|case| case.name == name);
            if case.is_some_and(|case| (case.is_at_rest)(&pod)) && !statuses.contains_key(name) {
                statuses.insert(name.to_owned(), pod["status"].clone());
            }
        }
        Ok((statuses.len() == cases.len()).then_some(()))
    });
    all.with_context(|| {
        let missing = cases.iter().filter(|case| !statuses.contains_key(case.name));
        let pods = missing.map(|case| node.pod(case.name).ok().flatten().unwrap_or_default());
        let shown: Vec<String> = pods.map(|pod| format!("{:#}", pod["status"])).collect();
        shown.join("\n")
    })?;
    // Events are written after the fact, at a limited rate.
    std::thread::sleep(Duration::from_secs(6));
    let mut reports = BTreeMap::new();
    for (name, status) in statuses {
        let events = node.events(&name)?;
        reports.insert(name, ComparedPod::new(&status, events));
    }
    Ok(reports)
}
