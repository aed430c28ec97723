//! The verbs for people on the node: ps, logs, explain, timeline, stop.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;
use serde_json::Value;

use crate::node::{
    StandaloneNode, archives, ensure_has, is_ready, keelson, refused, restarts, uid, wait_for,
};

#[test]
fn ps_logs_explain_timeline_and_stop_work_on_the_node() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        ensure_has(&node.agent.ask(&["ps"])?, &["no pods on this machine"])?;
        ensure_has(&refused(&node.agent, &["explain", "web"])?, &["no pod named web"])?;
        node.place("web", WEB)?;
        let pod = node
            .until("its second life", "web", |pod| restarts(pod, "talker") == 1 && is_ready(pod))?;
        table(&node, &pod).context("ps")?;
        timeline(&node).context("timeline")?;
        logs(&node, &pod).context("logs")?;
        follow_logs(&node).context("logs that go on")?;
        let printed = node.agent.ask(&["explain", "web"])?;
        ensure_has(&printed, &["default/web-node: is where it should be (Running)", "web.yaml"])?;
        ensure_has(&printed, &["Started", "Pulled"])?;
        stop(&node).context("stop")?;
        node.agent.withdraw("web")?;
        node.until_gone("web")?;
        node.end()
    })
}

const WEB: &str = r#"
  terminationGracePeriodSeconds: 1
  containers:
  - name: talker
    image: BUSYBOX
    command: [sh, -c, "[ -e /kept/n ] || { touch /kept/n; echo first life; exit 1; }; echo wrong >&2; sleep 0.3; for i in 1 2 3; do echo line $i; done; while [ ! -e /go ]; do sleep 0.1; done; echo went on; exec sleep 1000"]
    volumeMounts: [{name: kept, mountPath: /kept}]
  - {name: silent, image: BUSYBOX, command: [sleep, "1000"]}
  volumes: [{name: kept, emptyDir: {}}]
"#;

fn table(node: &StandaloneNode<'_>, pod: &Value) -> Result<()> {
    let table = node.agent.ask(&["ps"])?;
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let heads = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"];
    ensure!(rows.len() == 2 && rows[0] == heads, "{table}");
    ensure!(rows[1][..5] == ["default", "web-node", "2/2", "Running", "1"], "{table}");
    let starts: Vec<Option<usize>> =
        table.lines().zip(["STATUS", "Running"]).map(|(line, word)| line.find(word)).collect();
    ensure!(starts[0].is_some() && starts[0] == starts[1], "columns stand in line: {table}");
    let wide = node.agent.ask(&["ps", "-o", "wide"])?;
    let address = pod["status"]["podIP"].as_str().context("an address")?;
    ensure_has(&wide, &[address, "web.yaml", &uid(pod)?])?;
    let yaml = node.agent.ask(&["ps", "-o", "yaml"])?;
    ensure_has(&yaml, &["kind: List", "name: web-node", "phase: Running"])
}

fn timeline(node: &StandaloneNode<'_>) -> Result<()> {
    let marks: Vec<Value> =
        serde_json::from_str(&node.agent.ask(&["timeline", "web", "-o", "json"])?)?;
    let at = |what: &str| {
        let found = marks.iter().find(|mark| mark["what"] == what);
        let found = found.and_then(|mark| mark["at"].as_i64());
        found.with_context(|| format!("no {what} in {marks:#?}"))
    };
    let mut before = 0;
    for what in
        ["seen", "admitted", "sandboxBegan", "sandboxRan", "createBegan", "started", "firstReady"]
    {
        let now = at(what)?;
        ensure!(now >= before, "{what} comes too early: {marks:#?}");
        before = now;
    }
    ensure!(at("firstReady")? - at("seen")? < 60_000_000_000, "{marks:#?}");
    let table = node.agent.ask(&["timeline", "web"])?;
    ensure_has(&table, &["SINCE START", "sandbox ran", "first ready", "talker (restart 1)"])
}

fn logs(node: &StandaloneNode<'_>, pod: &Value) -> Result<()> {
    ensure_has(&refused(&node.agent, &["logs", "web"])?, &["talker, silent"])?;
    let ask = |more: &[&str]| {
        let words = [&["logs", "web", "-c", "talker"], more].concat();
        node.agent.ask(&words)
    };
    wait_for("the lines", Duration::from_secs(10), || Ok(ask(&[])?.lines().count() == 3))?;
    ensure!(ask(&[])? == "line 1\nline 2\nline 3\n", "output alone: {}", ask(&[])?);
    ensure!(node.agent.warnings(&["logs", "web", "-c", "talker"])? == "wrong\n", "errors apart");
    ensure!(ask(&["--tail", "2"])? == "line 2\nline 3\n", "{}", ask(&["--tail", "2"])?);
    ensure!(ask(&["--since", "1h"])?.lines().count() == 3, "all of it is newer");
    ensure!(ask(&["-p"])? == "first life\n", "the life before");
    ensure_has(&ask(&["--timestamps"])?, &["T", "Z line 1\n"])?;
    // What a rotation has put aside is read first.
    let (uid, life) = (uid(pod)?, restarts(pod, "talker"));
    let log = format!("/var/log/pods/default_web-node_{uid}/talker/{life}.log");
    ensure!(Path::new(&log).is_file(), "{log}");
    fs::write(
        format!("{log}.20200101-000000"),
        "2020-01-01T00:00:00.000000000Z stdout F line 0\n",
    )?;
    ensure!(ask(&[])?.starts_with("line 0\nline 1\n"), "rotated first: {}", ask(&[])?);
    ensure!(!ask(&["--since", "1h"])?.contains("line 0"), "too old");
    Ok(())
}

fn follow_logs(node: &StandaloneNode<'_>) -> Result<()> {
    let words = ["logs", "web", "-c", "talker", "-f", "--tail", "1"];
    let mut reader = Command::new(node.agent.program())
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = BufReader::new(reader.stdout.take().context("its output")?).lines();
    let line = lines.next().context("a line")??;
    ensure!(line == "line 3", "the last one first: {line}");
    let pod = node.pod("web")?.context("the pod")?;
    node.shell(&pod, "talker", "touch /go")?;
    let line = lines.next().context("a line")??;
    ensure!(line == "went on", "then what comes: {line}");
    reader.kill()?;
    reader.wait()?;
    Ok(())
}

/// A pod from a manifest is stopped by removing the manifest.
fn stop(node: &StandaloneNode<'_>) -> Result<()> {
    let printed = refused(&node.agent, &["stop", "web"])?;
    let file = node.home.manifests().join("web.yaml");
    ensure_has(&printed, &[&*file.to_string_lossy()])?;
    let pod = node.pod("web")?.context("the pod")?;
    ensure!(pod["status"]["phase"] == "Running", "{pod:#}");
    let printed =
        Command::new(node.agent.program()).args(["ps", "--socket", "/run/none"]).output()?;
    let words = String::from_utf8_lossy(&printed.stderr).into_owned();
    ensure!(!printed.status.success(), "{words}");
    ensure_has(&words, &["no agent answers at /run/none", "`keelson kubelet`"])
}
