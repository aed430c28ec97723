//! From a manifest to a running pod, through crashes and kills, to nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Test;
use node_testkit::start::Containerd;
use serde_json::Value;

use crate::desk::{Desk, built, manifest};

fn is_running(pod: &Value) -> bool {
    pod.pointer("/object/status/phase").is_some_and(|phase| phase == "Running")
        && pod
            .pointer("/object/status/containerStatuses/0/ready")
            .is_some_and(|ready| ready == true)
}

fn restarts(pod: &Value) -> u64 {
    let count = pod.pointer("/object/status/containerStatuses/0/restartCount");
    count.and_then(Value::as_u64).unwrap_or_default()
}

fn container_id(pod: &Value) -> Result<String> {
    let id = pod.pointer("/object/status/containerStatuses/0/containerID");
    Ok(id.and_then(Value::as_str).context("a container id")?.to_owned())
}

#[test]
fn a_manifest_runs_crashes_survives_the_agent_and_goes() -> Result<()> {
    let built = built()?;
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(240)).run(|bed| {
        let mut desk = Desk::set_up(bed, &built, "")?;
        // Crashes when it is told to, by a file in its own root.
        let command = "trap 'exit 0' TERM; while [ ! -e /crash ]; do sleep 0.1; done; exit 7";
        desk.write("a.yaml", &manifest("alpha", command, ""))?;
        let pod = desk.until("running", "alpha", is_running)?;
        let first = container_id(&pod)?;
        let id = first.split("//").nth(1).context("an id")?.to_owned();

        desk.containerd.run_ctr(&[
            "--namespace",
            "k8s.io",
            "tasks",
            "exec",
            "--exec-id",
            "x",
            &id,
            "touch",
            "/crash",
        ])?;
        let pod = desk.until("restarted", "alpha", |pod| restarts(pod) == 1 && is_running(pod))?;
        let code = pod.pointer("/object/status/containerStatuses/0/lastState/terminated/exitCode");
        ensure!(code.is_some_and(|code| code == 7), "the exit code is told: {pod:#}");
        let second = container_id(&pod)?;
        ensure!(second != first, "another container");

        desk.kill_agent()?;
        let pod = desk.until("known again", "alpha", is_running)?;
        ensure!(container_id(&pod)? == second && restarts(&pod) == 1, "untouched: {pod:#}");

        desk.remove("a.yaml")?;
        desk.until_gone("alpha")?;
        let left = desk.runtime_containers()?;
        ensure!(left.is_empty(), "left in the runtime: {left:?}");
        Ok(())
    })
}
