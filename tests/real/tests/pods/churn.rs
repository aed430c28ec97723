//! Pods that come, crash, change and go while agent and runtime die.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Test;
use node_testkit::start::Containerd;
use serde_json::Value;

use crate::desk::{Desk, built, manifest};

const STEADY: usize = 4;

fn runs(pod: &Value) -> bool {
    pod.pointer("/object/status/phase").is_some_and(|phase| phase == "Running")
}

fn containers(pod: &Value) -> Value {
    pod["containers"].clone()
}

fn kills() -> Result<u32> {
    std::env::var("KEELSON_KILLS").map_or(Ok(5), |text| text.parse().context("KEELSON_KILLS"))
}

/// Pseudo-random numbers, the same in every run.
fn dice() -> impl FnMut(u64) -> u64 {
    let mut state: u64 = 0x2545_f491_4f6c_dd1d;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[test]
fn kills_of_the_agent_under_churn_restart_no_container() -> Result<()> {
    let built = built()?;
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(400)).run(|bed| {
        let mut desk = Desk::set_up(bed, &built, "")?;
        for at in 0..STEADY {
            desk.write(
                &format!("s{at}.yaml"),
                &manifest(&format!("steady{at}"), "exec sleep 10000", ""),
            )?;
        }
        let mut before = Vec::new();
        for at in 0..STEADY {
            before.push(containers(&desk.until("running", &format!("steady{at}"), runs)?));
        }
        let mut roll = dice();
        for round in 0..kills()? {
            // Comes, changes and goes while the agent is killed at some instant of it.
            let churning = format!("c{}.yaml", round % 3);
            let text =
                manifest(&format!("churn{}", round % 3), &format!("sleep {}; exit 1", roll(3)), "");
            desk.write(&churning, &text)?;
            std::thread::sleep(Duration::from_millis(roll(900)));
            if roll(2) == 0 {
                desk.remove(&churning)?;
                std::thread::sleep(Duration::from_millis(roll(400)));
            }
            println!("kill {round}");
            desk.kill_agent()?;
        }
        for at in 0..3 {
            let _ = desk.remove(&format!("c{at}.yaml"));
        }
        for at in 0..3 {
            desk.until_gone(&format!("churn{at}"))?;
        }
        for (at, before) in before.iter().enumerate() {
            let pod = desk.until("running", &format!("steady{at}"), runs)?;
            ensure!(containers(&pod) == *before, "touched: {pod:#} was {before:#}");
            desk.remove(&format!("s{at}.yaml"))?;
        }
        for at in 0..STEADY {
            desk.until_gone(&format!("steady{at}"))?;
        }
        let left = desk.runtime_containers()?;
        ensure!(left.is_empty(), "left in the runtime: {left:?}");
        Ok(())
    })
}

#[test]
fn containerd_dies_and_returns_and_no_container_restarts() -> Result<()> {
    let built = built()?;
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(|bed| {
        let mut desk = Desk::set_up(bed, &built, "")?;
        for at in 0..STEADY {
            desk.write(
                &format!("s{at}.yaml"),
                &manifest(&format!("steady{at}"), "exec sleep 10000", ""),
            )?;
        }
        let mut before = Vec::new();
        for at in 0..STEADY {
            before.push(containers(&desk.until("running", &format!("steady{at}"), runs)?));
        }
        for round in 0..2 {
            desk.restart_containerd()?;
            // What comes after shows that the agent has caught up.
            let name = format!("after{round}");
            desk.write(&format!("{name}.yaml"), &manifest(&name, "exec sleep 10000", ""))?;
            let began = Instant::now();
            desk.until("running", &name, runs)?;
            println!("a new pod runs {} ms after the runtime is back", began.elapsed().as_millis());
        }
        for (at, before) in before.iter().enumerate() {
            let pod = desk.until("running", &format!("steady{at}"), runs)?;
            ensure!(containers(&pod) == *before, "touched: {pod:#} was {before:#}");
        }
        Ok(())
    })
}
