//! Two instances on a real API server: killed, stopped, and an API server that goes away.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use node_testkit::bed::Test;
use node_testkit::programs;
use node_testkit::start::{ControlPlane, Running};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Stage, bears, seconds};

const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];

fn signal(process: &Running, signal: Signal) -> Result<()> {
    let id = i32::try_from(process.process_id())?;
    if let Some(id) = Pid::from_raw(id) {
        kill_process(id, signal)?;
    }
    Ok(())
}

#[test]
fn leaders_come_and_go_and_no_node_is_called_lost() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    Test::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(6)).run(|bed| {
        let mut stage = Stage::new(bed, &keelson)?;
        stage.join(&NODES, "a")?;
        for node in NODES {
            stage.run_pod(&format!("pod-{node}"), node, &bears(Some(1)))?;
        }
        let mut first = stage.controller("first", &[])?;
        stage.until("the first leads", seconds(20), || Ok(!stage.holder().is_empty()))?;
        let leader = stage.holder();
        let mut second = stage.controller("second", &[])?;
        let well = |stage: &Stage<'_>| -> Result<bool> {
            for node in NODES {
                if stage.ready(node)? != "True" || !stage.is_kept(&format!("pod-{node}"))? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        stage.stays("the first goes on", seconds(8), || Ok(stage.holder() == leader))?;
        // Killed: the second follows once the lease has run out.
        first.kill()?;
        let took = stage.until("taken over", seconds(20), || Ok(stage.holder() != leader))?;
        ensure!(took >= seconds(3), "not before the lease could have run out: {took:?}");
        let leader = stage.holder();
        stage.stays("all are well", seconds(12), || well(&stage))?;
        // Stopped, and going on much later: it must find out that it leads no more.
        let third = stage.controller("third", &[])?;
        std::thread::sleep(seconds(3));
        signal(&second, Signal::STOP)?;
        stage.until("taken over", seconds(20), || Ok(stage.holder() != leader))?;
        let leader = stage.holder();
        std::thread::sleep(seconds(5));
        signal(&second, Signal::CONT)?;
        stage
            .stays("all are well", seconds(12), || Ok(well(&stage)? && stage.holder() == leader))?;
        ensure!(second.is_alive()?, "it stands for election again");
        // The API server goes away for longer than the grace, for everybody.
        let id = i32::try_from(stage.cluster.plane.api_server().process_id())?;
        let id = Pid::from_raw(id).expect("a process");
        kill_process(id, Signal::STOP)?;
        std::thread::sleep(seconds(15));
        kill_process(id, Signal::CONT)?;
        let began = Instant::now();
        while began.elapsed() < seconds(15) {
            // An answer may fail at first; a wrong one may not come.
            ensure!(well(&stage).unwrap_or(true), "somebody was condemned for our absence");
            std::thread::sleep(Duration::from_millis(300));
        }
        // And whoever leads now still sees: a silent node is found out.
        stage.hollow.silence(&["n2"]);
        stage.until("noticed", seconds(40), || Ok(stage.ready("n2")? == "Unknown"))?;
        stage.until("sent away", seconds(20), || Ok(!stage.is_kept("pod-n2")?))?;
        // Asked to end, the lease is free at once.
        drop((second, third));
        stage.until("free", seconds(5), || Ok(stage.holder().is_empty()))?;
        Ok(())
    })
}
