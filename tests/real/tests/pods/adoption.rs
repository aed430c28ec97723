//! Pods that the reference kubelet started go on under Keelson.

use std::time::Duration;

use anyhow::{Result, ensure};
use node_testkit::bed::Test;
use node_testkit::start::{Containerd, KubeletOptions, ReferenceKubelet};
use serde_json::Value;

use crate::desk::{Desk, built, manifest};

const NEEDS: &[&str] = &["containerd", "runc", "cni-plugins", "kubelet", "kubectl"];

#[test]
fn what_the_reference_kubelet_started_keeps_running() -> Result<()> {
    let built = built()?;
    Test::new().needs(NEEDS).deadline(Duration::from_secs(240)).run(|bed| {
        let mut desk = Desk::set_up(bed, &built, "")?;
        desk.agent.kill()?;
        desk.write("a.yaml", &manifest("alpha", "exec sleep 10000", ""))?;
        let stated = manifest("beta", "exec sleep 10000", "")
            .replace("{name: beta}", "{name: beta, uid: 6f0b3a52-7d0c-4b7e-9d1a-0c3f5a6b7c8d}");
        desk.write("b.yaml", &stated)?;
        let options = KubeletOptions {
            configuration: desk.configuration()?.replace("healthzPort", "# healthzPort"),
            flags: vec!["--hostname-override=desk".to_owned()],
            ..KubeletOptions::default()
        };
        let mut reference = ReferenceKubelet::start(bed, &options)?;
        let ran = desk.wait_for_tasks(reference.process(), 4)?;
        reference.process().kill()?;
        drop(reference);

        desk.kill_agent()?;
        let runs =
            |pod: &Value| pod.pointer("/object/status/phase").is_some_and(|it| it == "Running");
        for name in ["alpha", "beta"] {
            desk.until("adopted", name, runs)?;
        }
        std::thread::sleep(Duration::from_secs(3));
        let runs = desk.tasks()?;
        ensure!(ran == runs, "the same processes: {ran:?} then {runs:?}");
        for (file, name) in [("a.yaml", "alpha"), ("b.yaml", "beta")] {
            desk.remove(file)?;
            desk.until_gone(name)?;
        }
        Ok(())
    })
}
