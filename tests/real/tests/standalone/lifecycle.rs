//! The pod lifecycle: order of containers, hooks, restart policies, deadlines, termination
//! messages.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;

use crate::node::{
    StandaloneNode, WAIT_LIMIT, archives, container, ensure_has, keelson, restarts, wait_for,
};

#[test]
fn pods_start_restart_and_terminate_as_specified() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        bed.create_dir("order")?;
        bed.mount_odd_names()?;
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        for (name, spec) in [
            ("ordered", ORDERED),
            ("late", LATE),
            ("once", ONCE),
            ("until-good", UNTIL_GOOD),
            ("crashing", CRASHING),
            ("bad-init", BAD_INIT),
            ("bad-hook", BAD_HOOK),
            ("last-words", LAST_WORDS),
            ("no-program", NO_PROGRAM),
        ] {
            node.place(name, spec)?;
        }
        policies(&node).context("restart policies")?;
        last_words(&node).context("termination messages")?;
        no_program(&node).context("a program that is not there")?;
        back_off(&node).context("crash loop")?;
        hooks(&node).context("hooks that fail")?;
        order(&node).context("order of containers")?;
        let pod = node.until_phase("late", "Failed")?;
        ensure!(pod["status"]["reason"] == "DeadlineExceeded", "{pod:#}");
        node.until_explained("late", "longer than the specified deadline")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

/// Two init containers, then a sidecar whose startup probe gates what comes after it, then main.
const ORDERED: &str = r#"
  terminationGracePeriodSeconds: 10
  volumes: [{name: order, hostPath: {path: /run/bed/order}}]
  initContainers:
  - name: first
    image: BUSYBOX
    command: [sh, -c, "sleep 0.3; echo first >> /order/lines"]
    volumeMounts: [{name: order, mountPath: /order}]
  - name: helper
    image: BUSYBOX
    restartPolicy: Always
    command: [sh, -c, "trap 'echo helper ends >> /order/lines; exit 0' TERM; sleep 1; echo helper >> /order/lines; touch /up; while :; do sleep 0.1; done"]
    startupProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1, failureThreshold: 30}
    volumeMounts: [{name: order, mountPath: /order}]
  - name: second
    image: BUSYBOX
    command: [sh, -c, "echo second >> /order/lines"]
    volumeMounts: [{name: order, mountPath: /order}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "trap 'echo main ends >> /order/lines; exit 0' TERM; echo main >> /order/lines; while :; do sleep 0.1; done"]
    volumeMounts: [{name: order, mountPath: /order}]
    lifecycle:
      postStart: {exec: {command: [sh, -c, "sleep 0.5; echo post start >> /order/lines"]}}
      preStop: {exec: {command: [sh, -c, "echo pre stop >> /order/lines"]}}
"#;

fn order(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("ordered")?;
    for name in ["first", "second"] {
        let ended = &container(&pod, name)["state"]["terminated"];
        ensure!(ended["exitCode"] == 0 && ended["reason"] == "Completed", "{name}: {pod:#}");
    }
    ensure!(container(&pod, "helper")["started"] == true, "{pod:#}");
    // The hook runs beside the container, which counts as ready meanwhile.
    wait_for("the hook after the start", WAIT_LIMIT, || {
        Ok(fs::read_to_string("/run/bed/order/lines")?.contains("post start"))
    })?;
    node.agent.withdraw("ordered")?;
    node.until_gone("ordered")?;
    let lines = fs::read_to_string("/run/bed/order/lines")?;
    let lines: Vec<&str> = lines.lines().collect();
    let expected =
        ["first", "helper", "second", "main", "post start", "pre stop", "main ends", "helper ends"];
    ensure!(lines == expected, "the order: {lines:?}");
    Ok(())
}

const LATE: &str = r#"
  activeDeadlineSeconds: 4
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: BUSYBOX, command: [sleep, "1000"]}]
"#;
const ONCE: &str = r#"
  restartPolicy: Never
  containers:
  - {name: good, image: BUSYBOX, command: [sh, -c, "exit 0"]}
  - {name: bad, image: BUSYBOX, command: [sh, -c, "head -c 6000 /dev/zero | tr '\\0' x > /dev/termination-log; exit 3"]}
"#;
const UNTIL_GOOD: &str = r#"
  restartPolicy: OnFailure
  volumes: [{name: kept, emptyDir: {}}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "[ -e /kept/tried ] && exit 0; touch /kept/tried; exit 4"]
    volumeMounts: [{name: kept, mountPath: /kept}]
"#;

fn policies(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_phase("once", "Failed")?;
    let state = |name| container(&pod, name)["state"]["terminated"].clone();
    ensure!(state("good")["reason"] == "Completed" && state("bad")["reason"] == "Error", "{pod:#}");
    ensure!(state("bad")["exitCode"] == 3 && restarts(&pod, "bad") == 0, "{pod:#}");
    ensure!(state("bad")["message"] == "x".repeat(4096), "4 KiB for one container: {pod:#}");
    node.until_explained("once", "container bad exited with 3 (Error)")?;

    let pod = node.until_phase("until-good", "Succeeded")?;
    ensure!(restarts(&pod, "main") == 1, "the first restart comes at once: {pod:#}");
    let last = &container(&pod, "main")["lastState"]["terminated"];
    ensure!(last["exitCode"] == 4, "{pod:#}");
    Ok(())
}

const CRASHING: &str = r#"
  containers: [{name: main, image: BUSYBOX, command: [sh, -c, "echo this life; exit 5"]}]
"#;

fn back_off(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until("it waits", "crashing", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    })?;
    let message = container(&pod, "main")["state"]["waiting"]["message"].to_string();
    // The first restart comes at once, the next after 10 s, then 20 s: by now it may be later.
    let is_reported = ["10s", "20s", "40s", "1m20s"].iter().any(|wait| {
        let words = format!("back-off {wait} restarting failed container=main pod=");
        message.contains(&format!("{words}crashing-node_default("))
    });
    ensure!(is_reported, "{message}");
    ensure!(restarts(&pod, "main") >= 1, "{pod:#}");
    let output = node.until_explained("crashing", "CrashLoopBackOff")?;
    ensure_has(&output, &["next: "])?;
    node.until_explained("crashing", "BackOff")?;
    wait_for("ps says it", WAIT_LIMIT, || {
        Ok(node.agent.ask(&["ps"])?.contains("CrashLoopBackOff"))
    })?;
    ensure!(node.agent.ask(&["logs", "-p", "crashing"])? == "this life\n", "its earlier life");
    Ok(())
}

const BAD_INIT: &str = r#"
  restartPolicy: Never
  initContainers: [{name: first, image: BUSYBOX, command: [sh, -c, "exit 6"]}]
  containers: [{name: main, image: BUSYBOX, command: [sh, -c, "exit 0"]}]
"#;
const BAD_HOOK: &str = r#"
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    command: [sleep, "1000"]
    lifecycle: {postStart: {exec: {command: [sh, -c, "echo a secret; exit 1"]}}}
"#;

fn hooks(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_phase("bad-init", "Failed")?;
    ensure!(container(&pod, "first")["state"]["terminated"]["exitCode"] == 6, "{pod:#}");
    ensure!(container(&pod, "main")["state"]["waiting"]["reason"] == "PodInitializing", "{pod:#}");
    let output = node.until_explained("bad-hook", "FailedPostStartHook")?;
    ensure!(!output.contains("secret"), "what a hook says is not for everybody: {output}");
    node.until("the container is ended", "bad-hook", |pod| restarts(pod, "main") >= 1)?;
    Ok(())
}

const LAST_WORDS: &str = r#"
  restartPolicy: Never
  containers:
  - name: file
    image: BUSYBOX
    terminationMessagePath: /tmp/words
    command: [sh, -c, "printf words > /tmp/words; echo log; exit 1"]
  - name: long
    image: BUSYBOX
    command: [sh, -c, "head -c 6000 /dev/zero | tr '\\0' x > /dev/termination-log"]
  - name: log
    image: BUSYBOX
    terminationMessagePolicy: FallbackToLogsOnError
    command: [sh, -c, "for i in $(seq 200); do echo line $i; done; exit 1"]
  - name: good
    image: BUSYBOX
    terminationMessagePolicy: FallbackToLogsOnError
    command: [sh, -c, "echo not told"]
"#;

fn last_words(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_phase("last-words", "Failed")?;
    let message = |name| {
        let message = &container(&pod, name)["state"]["terminated"]["message"];
        message.as_str().unwrap_or_default().to_owned()
    };
    ensure!(message("file") == "words", "{pod:#}");
    // 12 KiB for the whole pod, a fourth for each.
    ensure!(message("long") == "x".repeat(3072), "{} bytes", message("long").len());
    let log = message("log");
    ensure!(log.len() <= 2048 && log.lines().count() <= 80, "within both caps: {log}");
    ensure!(log.starts_with("line 121\n") && log.ends_with("line 200\n"), "the last lines: {log}");
    ensure!(message("good").is_empty(), "{pod:#}");
    // Where nothing is kept nothing is lost: the logs say it all.
    wait_for("all of the log", WAIT_LIMIT, || {
        let log = node.agent.ask(&["logs", "last-words", "-c", "log"])?;
        Ok(log.lines().count() == 200)
    })
}

const NO_PROGRAM: &str = r#"
  restartPolicy: Never
  containers:
  - name: main
    image: BUSYBOX
    command: [/no/such/program]
"#;

/// The runtime's error is the only information, and it is reported once.
fn no_program(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_phase("no-program", "Failed")?;
    let ended = &container(&pod, "main")["state"]["terminated"];
    ensure!(ended["reason"] == "StartError" && ended["exitCode"] == 128, "{pod:#}");
    let message = ended["message"].as_str().unwrap_or_default();
    ensure!(message.contains("/no/such/program"), "{message}");
    let start: String = message.chars().take(40).collect();
    ensure!(message.matches(&start).count() == 1, "once: {message}");
    Ok(())
}
