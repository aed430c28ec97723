//! Pods change hands between the reference kubelet and the agent, and do not notice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Test;
use node_testkit::start::{Containerd, ReferenceKubelet};
use real_tests::standalone::agent::{Agent, Home, Kind};
use real_tests::standalone::runtime::Runtime;

use crate::node::{STEADY, archives, containerd, keelson, only, pod, status, wait_for};

const NAMED: &str = "named";
const UNNAMED: &str = "unnamed";
const UID: &str = "6f5c1a52-7f0e-4b0e-9d31-3f1f5e8f9a10";

#[test]
fn pods_of_the_reference_kubelet_are_adopted_and_given_back() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    let needs: Vec<&'static str> =
        Containerd::NEEDS.iter().chain(ReferenceKubelet::NEEDS).copied().collect();
    Test::new().needs(&needs).deadline(Duration::from_secs(240)).run(move |bed| {
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home = Home::new(bed, "adoption", &containerd.endpoint())?;
        let reference = Agent::start(bed, &Kind::reference()?, &home)?;
        reference.place(UNNAMED, &pod(UNNAMED, "", STEADY))?;
        reference.place(NAMED, &pod(NAMED, &format!(", uid: {UID}"), STEADY))?;
        runtime.wait_started("", 2, 0)?;
        let before = [only(&runtime, NAMED)?.id, only(&runtime, UNNAMED)?.id];
        reference.end()?;

        let ours = Agent::start(bed, &keelson, &home)?;
        for name in [NAMED, UNNAMED] {
            let full = format!("{name}-node");
            wait_for(&format!("{name} runs under the agent"), Duration::from_secs(20), || {
                let Ok(status) = ours.pods().and_then(|pods| status(&pods, &full)) else {
                    return Ok(false);
                };
                Ok(status["phase"] == "Running" && status["containerStatuses"][0]["ready"] == true)
            })?;
        }
        unchanged(&runtime, &before).context("after the agent took over")?;
        // It is ours now: it is ended when its manifest goes, and nothing else is.
        ours.withdraw(UNNAMED)?;
        runtime.wait_gone(UNNAMED)?;
        ensure!(only(&runtime, NAMED)?.id == before[0], "{NAMED} is another container");
        ours.end()?;

        let reference = Agent::start(bed, &Kind::reference()?, &home)?;
        // Nothing tells from outside that the reference has looked at everything: its relist and
        // its housekeeping come every one and two seconds, so this is several of each.
        std::thread::sleep(Duration::from_secs(8));
        let named = only(&runtime, NAMED)?;
        ensure!(named.id == before[0] && named.finished_at == 0, "given back: {named:?}");
        reference.end()?;
        runtime.remove_all()
    })
}

fn unchanged(runtime: &Runtime, before: &[String; 2]) -> Result<()> {
    for (name, id) in [NAMED, UNNAMED].iter().zip(before) {
        let now = only(runtime, name)?;
        ensure!(now.id == *id && now.finished_at == 0, "{name} was {id}, is {now:?}");
    }
    Ok(())
}
