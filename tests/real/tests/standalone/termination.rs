//! Starts and terminations that do not go as planned: an agent that starts before its runtime, a
//! sandbox that dies under its containers, preStop hooks, variables from files; and the verbs that
//! reach into a container, over containerd.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::{Containerd, ContainerdOptions};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use serde_json::Value;

use crate::node::{
    STEADY, StandaloneNode, WAIT_LIMIT, archives, container, containerd, keelson, pod, restarts,
    wait_for,
};

/// The runtime reports its cgroup driver. The configuration names the other one, so that a guess
/// would be wrong.
#[test]
fn an_agent_started_before_its_runtime_waits_for_the_cgroup_driver() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let (mut first, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "early", &first.endpoint())?;
        first.process().kill()?;
        let mut command = keelson.command.clone();
        command.push("--cgroup-driver=systemd".to_owned());
        let agent = AgentProcess::start(bed, &AgentKind { command, ..keelson.clone() }, &home)?;
        agent.place("early", &pod("early", "", STEADY))?;
        let _second = Containerd::start(bed, &ContainerdOptions::default())?;
        runtime.wait_started("early", 1, 0)?;
        wait_for("it is ready", WAIT_LIMIT, || {
            let pods = agent.pods()?;
            let items = pods["items"].as_array().cloned().unwrap_or_default();
            Ok(items.iter().any(crate::node::is_ready))
        })?;
        agent.withdraw_all()?;
        runtime.wait_gone("")?;
        agent.end()?;
        runtime.remove_all()
    })
}

/// `Never` gets no second sandbox; `OnFailure` restarts what has not succeeded; init containers run
/// again from the first.
#[test]
fn a_dead_sandbox_is_replaced_as_the_restart_policy_allows() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(150)).run(move |bed| {
        bed.create_dir("marks")?;
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        node.place("never", "  restartPolicy: Never\n  containers:\n  - {name: main, image: BUSYBOX, command: [sleep, '1000']}")?;
        node.place("failing", FAILING)?;
        let never = node.until_ready("never")?;
        let failing = node.until("one is done, one runs", "failing", |pod| {
            container(pod, "done")["state"].get("terminated").is_some()
                && container(pod, "main")["state"].get("running").is_some()
        })?;
        for pod in [&never, &failing] {
            stop_sandbox(&node, pod)?;
        }
        let never = node.until_phase("never", "Failed")?;
        ensure!(restarts(&never, "main") == 0, "{never:#}");
        let failing = node.until("its second life", "failing", |pod| restarts(pod, "main") == 1)?;
        ensure!(restarts(&failing, "done") == 0, "what has succeeded is done: {failing:#}");
        let expected = "first\nsecond\nmain\nfirst\nsecond\nmain\n";
        let again = wait_for("it runs again", WAIT_LIMIT, || Ok(lines("failing") == expected));
        again.with_context(|| lines("failing"))?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

const FAILING: &str = r#"
  restartPolicy: OnFailure
  volumes: [{name: marks, hostPath: {path: /run/bed/marks}}]
  initContainers:
  - name: first
    image: BUSYBOX
    command: [sh, -c, "echo first >> /marks/failing"]
    volumeMounts: [{name: marks, mountPath: /marks}]
  - name: second
    image: BUSYBOX
    command: [sh, -c, "echo second >> /marks/failing"]
    volumeMounts: [{name: marks, mountPath: /marks}]
  containers:
  - {name: done, image: BUSYBOX, command: ["true"]}
  - name: main
    image: BUSYBOX
    command: [sh, -c, "echo main >> /marks/failing; exec sleep 1000"]
    volumeMounts: [{name: marks, mountPath: /marks}]
"#;

fn lines(file: &str) -> String {
    fs::read_to_string(format!("/run/bed/marks/{file}")).unwrap_or_default()
}

/// Stops the sandbox through the runtime, as an administrator may.
fn stop_sandbox(node: &StandaloneNode<'_>, pod: &Value) -> Result<()> {
    let endpoint = node.containerd.endpoint();
    let client = ["cri-client", "--runtime-endpoint", endpoint.as_str()];
    let listed = node.agent.ask(&[&client[..], &["pods", "-o", "json"]].concat())?;
    let listed: Value = serde_json::from_str(&listed)?;
    let items = listed["items"].as_array().or_else(|| listed.as_array()).context("sandboxes")?;
    let uid = &pod["metadata"]["uid"];
    let found = items.iter().find(|sandbox| sandbox["metadata"]["uid"] == *uid);
    let id = found.and_then(|sandbox| sandbox["id"].as_str());
    let id = id.with_context(|| format!("no sandbox of {uid} in {listed:#}"))?;
    // The agent stops a dead sandbox too: the plugins of one of the two find the network gone.
    let stop = [&client[..], &["stopp", id]].concat();
    node.agent.ask(&stop).or_else(|_| node.agent.ask(&stop)).map(drop)
}

/// Hooks of each kind, a liveness kill that runs one too, and one that fails without leaking a
/// secret.
#[test]
fn pre_stop_hooks_run_before_every_stop_and_a_failing_one_leaks_no_secret() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(150)).run(move |bed| {
        bed.create_dir("marks")?;
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        node.place("unwell", UNWELL)?;
        node.place("files", FILES)?;
        node.place("hooked", HOOKED)?;
        let unwell = node.until("its second life", "unwell", |pod| restarts(pod, "main") >= 1)?;
        ensure!(lines("unwell").starts_with("pre stop\n"), "{:?} {unwell:#}", lines("unwell"));

        let files = node.until_ready("files")?;
        let output = node.shell(&files, "main", "echo \"$SAID\"")?;
        ensure!(output.trim() == "from a file", "{output:?}");

        let hooked = node.until_ready("hooked")?;
        let began = std::time::Instant::now();
        node.agent.withdraw("hooked")?;
        // While another hook of the pod sleeps.
        let output = node.until_explained("hooked", "FailedPreStopHook: PreStopHook failed")?;
        ensure!(!output.contains("a-secret-word"), "{output}");
        node.until_gone("hooked")?;
        ensure!(began.elapsed() >= Duration::from_secs(8), "the sleep of a hook: {hooked:#}");
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        let log = fs::read_to_string(AgentProcess::log(bed, &keelson))?;
        ensure!(log.contains("PreStop hook failed"), "the agent's own log says why");
        node.end()
    })
}

/// Fails its probe until it has received SIGTERM once.
const UNWELL: &str = r#"
  volumes: [{name: marks, hostPath: {path: /run/bed/marks}}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    livenessProbe: {exec: {command: [test, -e, /marks/unwell]}, periodSeconds: 1, failureThreshold: 1}
    lifecycle: {preStop: {exec: {command: [sh, -c, "echo pre stop >> /marks/unwell"]}}}
    volumeMounts: [{name: marks, mountPath: /marks}]
  terminationGracePeriodSeconds: 5
"#;

const FILES: &str = r#"
  volumes: [{name: shared, emptyDir: {}}]
  initContainers:
  - name: writer
    image: BUSYBOX
    command: [sh, -c, "echo \"NAME='from a file'\" > /shared/variables"]
    volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sleep, "1000"]
    env:
    - name: SAID
      valueFrom: {fileKeyRef: {volumeName: shared, path: variables, key: NAME}}
"#;

/// One hook calls a server in the pod, one sleeps, one fails.
const HOOKED: &str = r#"
  terminationGracePeriodSeconds: 20
  containers:
  - name: served
    image: BUSYBOX
    command: [sh, -c, "trap 'exit 0' TERM; mkdir /www; echo x > /www/bye; httpd -f -p 8080 -h /www & while :; do sleep 0.1; done"]
    readinessProbe: {httpGet: {path: /bye, port: 8080}, periodSeconds: 1}
    lifecycle: {preStop: {httpGet: {path: /bye, port: 8080}}}
  - name: slow
    image: BUSYBOX
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    lifecycle: {preStop: {sleep: {seconds: 8}}}
  - name: failing
    image: BUSYBOX
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    lifecycle: {preStop: {exec: {command: [sh, -c, "echo a-secret-word >&2; exit 3"]}}}
"#;
