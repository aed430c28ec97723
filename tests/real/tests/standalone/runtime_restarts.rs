//! containerd dies and comes back under running pods: no container is restarted, and what happened
//! meanwhile is caught up with.

use std::time::Duration;

use anyhow::{Result, ensure};
use node_testkit::bed::Test;
use node_testkit::start::{Containerd, ContainerdOptions};
use real_tests::standalone::agent::{Agent, Home};

use crate::node::{STEADY, archives, by_pod, containerd, keelson, pod, wait_for};

const RESTARTS: usize = 3;

/// Thirty by the soak verb; a landing has less time.
fn pods() -> usize {
    if std::env::var_os("KEELSON_KILLS").is_some() { 30 } else { 10 }
}

#[test]
fn a_runtime_killed_under_pods_costs_no_container() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(move |bed| {
        let (mut containerd, runtime) = containerd(bed, &archives)?;
        let home = Home::new(bed, "runtime-restarts", &containerd.endpoint())?;
        let mut agent = Agent::start(bed, &keelson, &home)?;
        for number in 0..pods() {
            let name = format!("steady-{number}");
            agent.place(&name, &pod(&name, "", STEADY))?;
        }
        runtime.wait_started("steady-", pods(), 0)?;
        let before = by_pod(runtime.containers("steady-")?);
        for round in 0..RESTARTS {
            containerd.process().kill()?;
            // What is asked for while there is no runtime is done when there is one.
            let name = format!("meanwhile-{round}");
            agent.place(&name, &pod(&name, "", STEADY))?;
            std::thread::sleep(Duration::from_millis(700));
            containerd = Containerd::start(bed, &ContainerdOptions::default())?;
            runtime.wait_started(&name, 1, 0)?;
            ensure!(!agent.has_ended()?, "the agent ended in round {round}");
        }
        let after = by_pod(runtime.containers("steady-")?);
        for (pod, seen) in &before {
            let now = after.get(pod).map(Vec::as_slice).unwrap_or_default();
            let same = matches!((seen.as_slice(), now), ([old], [new]) if old.id == new.id && new.finished_at == 0);
            ensure!(same, "{pod}: {seen:?} became {now:?}");
        }
        wait_for("all pods run", Duration::from_secs(20), || {
            let pods = agent.pods()?;
            let items = pods["items"].as_array().cloned().unwrap_or_default();
            let running = items.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            Ok(running == self::pods() + RESTARTS)
        })?;
        for round in 0..RESTARTS {
            agent.withdraw(&format!("meanwhile-{round}"))?;
        }
        for number in 0..pods() {
            agent.withdraw(&format!("steady-{number}"))?;
        }
        runtime.wait_gone("")?;
        agent.end()?;
        runtime.remove_all()
    })
}
