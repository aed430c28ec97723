//! Two instances compete for the lease while nodes stop and resume their heartbeats; the instances
//! are killed and stalled in the middle of their work, while another client writes to the same
//! nodes.
//!
//! Rule: only the API server's audit log says which instance wrote what (every process has its own
//! user). The times come from a seed, which is printed. Each interruption waits for work to be in
//! progress, and nothing here depends on which instance is faster.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::{ControlPlane, RunningPart};
use real_tests::node_controller::hollow::{HollowNodePool, now};
use rustix::process::Signal;

use crate::manual_writer::{BY_HAND, ManualWriter};
use crate::stage::{ClusterTest, LOST, bears, seconds, signal};
use crate::verdict::{Interruption, leader, left_alone, only_leaders_acted, was_interrupted};

const WELL: [&str; 7] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6"];
/// One of them; it misses heartbeats repeatedly, never for longer than the grace period.
const BLINKING: &str = "w6";
/// They stop their heartbeats one after the other; the first two resume.
const SILENT: [&str; 4] = ["s0", "s1", "s2", "s3"];
/// Number of pods of each kind on each node that stops.
const PODS: usize = 6;
const LEASE: Duration = Duration::from_secs(3);
const FLAGS: &[&str] = &[
    "--node-monitor-grace-period=5s",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    // So slow that giving a node up takes a while, and requests wait for their turn.
    "--kube-api-qps=15",
    "--kube-api-burst=8",
];
/// The maximum number of processes: two, and one for each that is killed.
const PROCESSES: usize = 4;
const SEED: u64 = 0x5eed_0006;

#[test]
fn two_fight_for_the_lease_and_nothing_is_lost() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(5)).run(|bed| {
        let seed = std::env::var("KEELSON_SEED").map_or(Ok(SEED), |text| text.parse())?;
        println!("seed {seed}");
        let users: Vec<String> =
            (0..PROCESSES).map(|number| format!("instance-{number}")).collect();
        let stage = ClusterTest::audited(bed, &keelson, &users)?;
        stage.join(&WELL, "a")?;
        stage.join(&SILENT, "a")?;
        for node in WELL {
            stage.run_pod(&format!("go0-{node}"), node, &bears(Some(0)))?;
        }
        for (go, stay) in SILENT.iter().flat_map(|node| pods(node)) {
            let node = go.split_once('-').map_or("", |(_, node)| node);
            stage.run_pod(&go, node, &bears(Some(0)))?;
            stage.run_pod(&stay, node, &bears(None))?;
        }
        let manual_writer =
            ManualWriter::start(&stage, [WELL.as_slice(), SILENT.as_slice()].concat());
        stage.runtime.spawn(blink(stage.hollow.clone()));
        let mut fight = LeaseFight {
            stage: &stage,
            dice: seed | 1,
            instances: Vec::new(),
            users: users.into_iter(),
            interruptions: Vec::new(),
        };
        stage.hollow.stop_heartbeats(&SILENT[..1]);
        fight.enter()?;
        fight.enter()?;
        fight.rounds()?;
        stage.until("all is as it should be", seconds(40), || is_right(&stage))?;
        manual_writer.stop(&stage)?;
        ensure!(is_right(&stage)?, "it stays as it should be");
        let interruptions = fight.end()?;
        check_audit_log(&stage, &interruptions)
    })
}

/// Checks the API server's audit log.
fn check_audit_log(stage: &ClusterTest<'_>, interruptions: &[Interruption]) -> Result<()> {
    let writes = stage.audit()?.writes()?;
    let acts = only_leaders_acted(&writes, LEASE)?;
    left_alone(&writes, &WELL)?;
    let hit =
        interruptions.iter().filter(|interruption| was_interrupted(&writes, interruption)).count();
    let claims = writes.iter().filter(|write| write.is_about_leading());
    let leaders: BTreeSet<&String> = claims.filter(|it| it.is_done()).map(|it| &it.user).collect();
    for interruption in interruptions {
        let word =
            if was_interrupted(&writes, interruption) { "in the middle of" } else { "not at" };
        println!(
            "{} was {}, {word} giving up {}",
            interruption.user, interruption.how, interruption.node
        );
    }
    println!("{acts} acts, all by whoever held the lease; {leaders:?} led");
    ensure!(acts >= SILENT.len() * PODS * 3, "{acts} acts: too few to say anything");
    ensure!(
        interruptions.len() >= 5 && hit * 5 >= interruptions.len() * 4,
        "{hit} of {}",
        interruptions.len()
    );
    ensure!(leaders.len() >= 3, "only {leaders:?} ever led");
    Ok(())
}

/// Names of a node's pods: those that are deleted with it at once, and those that tolerate its
/// loss.
fn pods(node: &str) -> Vec<(String, String)> {
    (0..PODS).map(|number| (format!("go{number}-{node}"), format!("stay{number}-{node}"))).collect()
}

/// Taints in the tests' short form, without those that were set by hand.
fn own_taints(stage: &ClusterTest<'_>, node: &str) -> Result<Vec<String>> {
    let taints = stage.taints(node)?;
    Ok(taints.into_iter().filter(|taint| !taint.starts_with(BY_HAND)).collect())
}

/// Whether all of the node's pods that should be deleted are being deleted.
fn is_cleared(stage: &ClusterTest<'_>, node: &str) -> Result<bool> {
    for (go, stay) in pods(node) {
        let stays = stage.is_kept(&stay)? && !stage.is_pod_ready(&stay)?;
        if stage.is_kept(&go)? || !stays {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Nodes with heartbeats are untainted, silent ones are tainted, and every node that was ever lost
/// was cleared of its pods.
fn is_right(stage: &ClusterTest<'_>) -> Result<bool> {
    for node in WELL.iter().chain(&SILENT[..2]) {
        if stage.ready(node)? != "True" || !own_taints(stage, node)?.is_empty() {
            return Ok(false);
        }
    }
    for node in &SILENT[2..] {
        if stage.ready(node)? != "Unknown" || own_taints(stage, node)? != LOST {
            return Ok(false);
        }
    }
    for node in WELL {
        let pod = format!("go0-{node}");
        ensure!(stage.is_kept(&pod)? && stage.is_pod_ready(&pod)?, "{node} was never lost");
    }
    SILENT.iter().try_fold(true, |right, node| Ok(right && is_cleared(stage, node)?))
}

struct ControllerInstance {
    user: String,
    process: RunningPart,
    stalled: bool,
}

impl ControllerInstance {
    fn check_log(&self) -> Result<()> {
        let log = std::fs::read_to_string(self.process.log())?;
        ensure!(!log.contains("panicked"), "{}: {log}", self.user);
        Ok(())
    }
}

struct LeaseFight<'a> {
    stage: &'a ClusterTest<'a>,
    dice: u64,
    instances: Vec<ControllerInstance>,
    users: std::vec::IntoIter<String>,
    interruptions: Vec<Interruption>,
}

impl LeaseFight<'_> {
    fn enter(&mut self) -> Result<()> {
        let user = self.users.next().context("as many processes as were thought of")?;
        let kubeconfig = self.stage.cluster.plane.user_kubeconfig(&user)?;
        let process = self.stage.controller_by(&user, &kubeconfig, FLAGS)?;
        self.instances.push(ControllerInstance { user, process, stalled: false });
        Ok(())
    }

    fn below(&mut self, limit: u64) -> Duration {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        Duration::from_millis(self.dice % limit)
    }

    fn rounds(&mut self) -> Result<()> {
        self.wait_for(0)?;
        self.kill("killed")?;
        self.stage.hollow.stop_heartbeats(&SILENT[1..2]);

        self.wait_for(1)?;
        self.stall("stalled until another is at work")?;
        self.stage.hollow.stop_heartbeats(&SILENT[2..3]);

        self.wait_for(2)?;
        self.wake()?;
        self.come_back(0)?;
        self.stall("stalled for less than the lease")?;
        std::thread::sleep(Duration::from_millis(200) + self.below(500));
        self.wake()?;
        std::thread::sleep(self.below(300));
        self.kill("killed after a stall")?;
        self.stage.hollow.stop_heartbeats(&SILENT[3..]);

        self.wait_for(3)?;
        self.come_back(1)?;
        self.stall("stalled for about as long as the lease lasts")?;
        std::thread::sleep(LEASE - Duration::from_millis(300) + self.below(600));
        self.wake()
    }

    /// Waits until an instance has begun to taint the node, and a random time longer.
    fn wait_for(&mut self, round: usize) -> Result<()> {
        let node = SILENT[round];
        self.stage.until(node, seconds(40), || Ok(self.stage.ready(node)? == "Unknown"))?;
        std::thread::sleep(Duration::from_millis(50) + self.below(700));
        Ok(())
    }

    /// A node that was cleared resumes its heartbeats; the current leader has to detect it.
    fn come_back(&self, round: usize) -> Result<()> {
        let node = SILENT[round];
        self.stage.until("cleared", seconds(40), || is_cleared(self.stage, node))?;
        self.stage.runtime.block_on(self.stage.hollow.resume_heartbeats(&[node]))
    }

    /// Kills or stalls the current leader, and records the interruption.
    fn interrupt(&mut self, how: &'static str) -> Result<usize> {
        let writes = self.stage.audit()?.writes()?;
        let user = leader(&writes).context("nobody leads")?.to_owned();
        let found = self.instances.iter().position(|it| it.user == user);
        let found = found.with_context(|| format!("{user} leads, and does not run"))?;
        // The one that fell silent last, of those that were noticed.
        let noticed = |node: &str| {
            writes.iter().any(|it| it.resource == "nodes/status" && it.node() == Some(node))
        };
        let node = SILENT.into_iter().rev().find(|node| noticed(node));
        let node = node.context("no node was noticed")?;
        self.interruptions.push(Interruption { how, user, node, at: now() });
        Ok(found)
    }

    fn kill(&mut self, how: &'static str) -> Result<()> {
        let victim = self.interrupt(how)?;
        let mut instance = self.instances.remove(victim);
        instance.process.kill()?;
        instance.check_log()?;
        self.enter()
    }

    fn stall(&mut self, how: &'static str) -> Result<()> {
        let victim = self.interrupt(how)?;
        let instance = self.instances.get_mut(victim).context("it runs")?;
        instance.stalled = true;
        signal(&instance.process, Signal::STOP)
    }

    fn wake(&mut self) -> Result<()> {
        for instance in self.instances.iter_mut().filter(|it| it.stalled) {
            instance.stalled = false;
            signal(&instance.process, Signal::CONT)?;
        }
        Ok(())
    }

    /// Stops all in good order.
    fn end(mut self) -> Result<Vec<Interruption>> {
        for instance in &mut self.instances {
            ensure!(instance.process.is_alive()?, "{} lives", instance.user);
            instance.process.stop();
            instance.check_log()?;
        }
        Ok(self.interruptions)
    }
}

/// Alternates one second without and one with heartbeats.
async fn blink(hollow: HollowNodePool) {
    loop {
        hollow.stop_heartbeats(&[BLINKING]);
        tokio::time::sleep(seconds(1)).await;
        if let Err(error) = hollow.resume_heartbeats(&[BLINKING]).await {
            eprintln!("blink: {error:#}");
        }
        tokio::time::sleep(seconds(1)).await;
    }
}
