//! exec, attach and port-forward over containerd, a runtime with its own streaming server. And the
//! fields that a static pod may not have, because only an API server can add them later.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;

use crate::exec_and_attach::{self, Verbs};
use crate::node::{
    StandaloneNode, archives, container, container_id, ensure_has, keelson, manifest, uid, wait_for,
};

/// MiB each way.
const LARGE: usize = 24;

#[test]
fn exec_attach_port_forward_and_cp_work_over_containerd() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        node.place("box", BOX)?;
        node.place("ask", &ASK.replace("ECHO", &format!("{:?}", exec_and_attach::ECHO)))?;
        node.place("talk", TALK)?;
        for name in ["box", "ask", "talk"] {
            node.until_ready(name)?;
        }
        let program = PathBuf::from(node.agent.program());
        let verbs = Verbs { program, socket: None, dir: bed.create_dir("here")? };
        exec_and_attach::commands(&verbs, "box").context("exec")?;
        exec_and_attach::command_on_a_terminal(&verbs, "box").context("exec on a terminal")?;
        exec_and_attach::large_streams(&verbs, "box", LARGE).context("large streams")?;
        exec_and_attach::copies(&verbs, "box").context("cp")?;
        exec_and_attach::ports(&verbs, "box", LARGE).context("port-forward")?;

        let refused = verbs.refused(&["attach", "-i", "box"])?;
        ensure!(refused.contains("has no standard input"), "{refused}");
        exec_and_attach::attach_to_the_end(&verbs, "ask").context("attach")?;
        node.until_phase("ask", "Succeeded")?;
        ensure!(node.agent.ask(&["logs", "ask"])? == "hello\nover\n", "its log");
        exec_and_attach::attach_again(&verbs, "talk", "echoes").context("attach twice")?;
        exec_and_attach::attach_on_a_terminal(&verbs, "talk", "shell")
            .context("attach on a terminal")?;
        let pod = node.until("its shell has ended", "talk", |pod| {
            container(pod, "shell")["state"].get("terminated").is_some()
        })?;
        let ended = &container(&pod, "shell")["state"]["terminated"];
        ensure!(ended["exitCode"] == 4, "{ended:#}");
        ensure!(container(&pod, "echoes")["state"].get("running").is_some(), "{pod:#}");
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

const BOX: &str = "  containers:\n  - {name: main, image: BUSYBOX, command: [sleep, '1000']}";

const ASK: &str = r"
  restartPolicy: Never
  containers:
  - {name: main, image: BUSYBOX, stdin: true, stdinOnce: true, command: [sh, -c, ECHO]}
";

/// One container echoes its input; one is a shell.
const TALK: &str = r#"
  restartPolicy: Never
  containers:
  - name: echoes
    image: BUSYBOX
    stdin: true
    command: [sh, -c, "while read line; do echo got $line; done; exit 3"]
  - {name: shell, image: BUSYBOX, stdin: true, tty: true, command: [sh]}
"#;

/// upstream: ValidatePodCreate forbids them; and for a static pod no client can add them
/// afterwards.
#[test]
fn a_static_pod_has_no_ephemeral_containers() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        node.place("runs", BOX)?;
        let pod = node.until_ready("runs")?;
        let before = (uid(&pod)?, container_id(&pod, "main")?);
        let words = ["spec.ephemeralContainers", "may not be set when a pod is created"];
        // One that never ran is refused, and said so.
        let debugged = format!("{BOX}\n{EPHEMERAL}");
        node.place("never", &debugged)?;
        let log = real_tests::standalone::agent::AgentProcess::log(bed, &keelson);
        let wait_for_warning = |file: &str| {
            wait_for(&format!("{file} is told"), Duration::from_secs(30), || {
                let log = std::fs::read_to_string(&log)?;
                Ok(log.lines().any(|line| {
                    line.contains(file) && words.iter().all(|word| line.contains(word))
                }))
            })
        };
        wait_for_warning("never.yaml")?;
        ensure!(node.pod("never")?.is_none(), "it is a pod all the same");
        // One that runs goes on as it was, and explains itself.
        node.agent.place("runs", &manifest("runs", &debugged))?;
        wait_for_warning("runs.yaml")?;
        let output = node.until_explained("runs", "spec.ephemeralContainers")?;
        ensure_has(&output, &["runs.yaml"])?;
        let pod = node.until_ready("runs")?;
        ensure!((uid(&pod)?, container_id(&pod, "main")?) == before, "another: {pod:#}");
        ensure!(pod["status"].get("ephemeralContainerStatuses").is_none(), "{pod:#}");
        ensure!(node.runtime.containers("never")?.is_empty(), "something of it runs");
        ensure!(node.runtime.containers("runs")?.len() == 1, "more of it runs");
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

const EPHEMERAL: &str =
    "  ephemeralContainers:\n  - {name: debugger, image: BUSYBOX, command: [sleep, '1000']}";
