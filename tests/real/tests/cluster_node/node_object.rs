//! The agent's Node, Lease and events compared with those of the reference kubelet on the same
//! machine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::programs;
use node_testkit::start::{Containerd, ContainerdOptions, ControlPlane};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use serde_json::{Value, json};

const NEEDS: &[&str] = &[
    "containerd",
    "runc",
    "cni-plugins",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    "kubelet",
];
const NODE: &str = "node";
const CONFIGURATION: &str = "nodeLeaseDurationSeconds: 8\n\
    imageGCHighThresholdPercent: 100\n\
    kubeReserved: {cpu: 100m, memory: 64Mi}\n\
    registerWithTaints: [{key: example.com/new, value: \"yes\", effect: NoSchedule}]\n";

/// Paths of the Node where ours may differ from the reference's, each with its reason.
const DIFFERENCES: &[(&str, &str)] = &[
    ("/metadata/managedFields", "the server's record of who wrote what, with times"),
    ("/metadata/creationTimestamp", "another moment"),
    ("/metadata/resourceVersion", "another moment"),
    ("/metadata/uid", "another object"),
];

/// Reasons of events that only one of the two may have.
const EVENT_DIFFERENCES: &[(&str, &str)] = &[
    ("NodeReady", "one that is ready when it registers never becomes it; ours mostly is"),
    ("InvalidDiskCapacity", "the reference's image garbage collection before it has statistics"),
];

struct ObservedNode {
    node: Value,
    reasons: BTreeSet<String>,
    lease: Value,
    /// As the node's port shows it through the API server.
    configuration: Value,
}

#[test]
fn the_node_object_is_what_the_reference_would_write() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(5)).run(|bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        // The bed has no name service.
        let by_address = ["--kubelet-preferred-address-types=InternalIP".to_owned()];
        let plane = ControlPlane::start_with_flags(bed, "*", &by_address)?;
        let kubeconfig = plane.node_kubeconfig(NODE)?;
        let flags = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--node-labels=disk=ssd,topology.kubernetes.io/zone=z1".to_owned(),
        ];
        let mut seen = Vec::new();
        for mut kind in [AgentKind::reference()?, AgentKind::keelson(&keelson)] {
            kind.command.extend(flags.iter().cloned());
            let home = AgentHome::new(bed, kind.name, &containerd.endpoint())?.with(CONFIGURATION);
            let agent = AgentProcess::start(bed, &kind, &home)?;
            seen.push(observe(&plane).with_context(|| log_of(bed, &kind))?);
            agent.end()?;
            plane.kubectl(&["delete", "node", NODE])?;
            plane.kubectl(&["delete", "events", "--all"])?;
        }
        let (ours, reference) = (seen.pop().context("ours")?, seen.pop().context("reference")?);
        compare(&reference, &ours)
    })
}

fn log_of(bed: &Bed, kind: &AgentKind) -> String {
    let log = std::fs::read_to_string(AgentProcess::log(bed, kind)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

fn get(plane: &ControlPlane, arguments: &[&str]) -> Result<Value> {
    let mut all = vec!["get", "--output=json"];
    all.extend(arguments);
    serde_json::from_str(&plane.kubectl(&all)?).context("kubectl get")
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

fn observe(plane: &ControlPlane) -> Result<ObservedNode> {
    let begun = Instant::now();
    let node = loop {
        match get(plane, &["node", NODE]) {
            // The controller-manager gives it its taints and takes them again.
            Ok(node)
                if is_ready(&node)
                    && node["spec"]["taints"]
                        .as_array()
                        .is_some_and(|taints| taints.len() == 1) =>
            {
                break node;
            }
            other if begun.elapsed() > Duration::from_secs(60) => {
                bail!("the node did not become ready: {other:?}")
            }
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    // The reference tries to create it before it has registered, and then again seconds later.
    let lease = loop {
        match get(plane, &["lease", NODE, "--namespace=kube-node-lease"]) {
            Ok(lease) => break lease,
            Err(error) if begun.elapsed() > Duration::from_secs(60) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    std::thread::sleep(Duration::from_secs(4));
    let renewed = get(plane, &["lease", NODE, "--namespace=kube-node-lease"])?;
    ensure!(
        lease["spec"]["renewTime"] != renewed["spec"]["renewTime"],
        "the Lease was not renewed within half its duration: {renewed:#}"
    );
    let events = get(plane, &["events", "--all-namespaces"])?;
    let events = events["items"].as_array().context("items")?;
    let of_node = events.iter().filter(|event| {
        event["involvedObject"]["kind"] == "Node" && event["source"]["component"] == "kubelet"
    });
    let reasons = of_node.map(|event| {
        format!(
            "{} {} {} {}",
            event["type"], event["reason"], event["message"], event["involvedObject"]["apiVersion"]
        )
    });
    let through =
        |path: &str| plane.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy{path}")]);
    let health = through("/healthz")?;
    ensure!(health == "ok", "/healthz: {health}");
    let configuration = serde_json::from_str(&through("/configz")?).context("/configz")?;
    Ok(ObservedNode { node, reasons: reasons.collect(), lease: renewed, configuration })
}

fn compare(reference: &ObservedNode, ours: &ObservedNode) -> Result<()> {
    let mut differences = Vec::new();
    differ("", &without_times(&reference.node), &without_times(&ours.node), &mut differences);
    differences.retain(|line| !DIFFERENCES.iter().any(|(path, _)| line.starts_with(path)));
    let of_lease = |seen: &ObservedNode| {
        json!({
            "holder": seen.lease["spec"]["holderIdentity"],
            "duration": seen.lease["spec"]["leaseDurationSeconds"],
            "owner": seen.lease["metadata"]["ownerReferences"][0]["kind"],
            "api": seen.lease["metadata"]["ownerReferences"][0]["apiVersion"],
        })
    };
    differ("/lease", &of_lease(reference), &of_lease(ours), &mut differences);
    let mut expected = reference.configuration.clone();
    // Each has a home of its own.
    expected["kubeletconfig"]["staticPodPath"] =
        ours.configuration["kubeletconfig"]["staticPodPath"].clone();
    differ("/configz", &expected, &ours.configuration, &mut differences);
    let is_listed = |event: &str| EVENT_DIFFERENCES.iter().any(|(name, _)| event.contains(name));
    let one_sided = reference.reasons.symmetric_difference(&ours.reasons);
    for reason in one_sided.filter(|event| !is_listed(event)) {
        let side = if ours.reasons.contains(reason) { "ours only" } else { "reference only" };
        differences.push(format!("event {side}: {reason}"));
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// Conditions without their timestamps, which differ between the runs.
fn without_times(node: &Value) -> Value {
    let mut node = node.clone();
    for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
        for time in ["lastHeartbeatTime", "lastTransitionTime"] {
            if let Some(condition) = condition.as_object_mut() {
                condition.remove(time);
            }
        }
    }
    node
}

fn differ(path: &str, reference: &Value, ours: &Value, found: &mut Vec<String>) {
    match (reference, ours) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let of = |map: &serde_json::Map<String, Value>| {
                    map.get(key).cloned().unwrap_or(Value::Null)
                };
                differ(&format!("{path}/{key}"), &of(one), &of(other), found);
            }
        }
        (one, other) if one == other => {}
        (one, other) => found.push(format!("{path}: reference {one}, ours {other}")),
    }
}
