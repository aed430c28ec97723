//! Two instances: one acts.

use std::time::Duration;

use cluster_fake::Logged;
use ports::cluster_api::ObjectPath;
use tokio::time::Instant;

use crate::stage::{Stage, bears, leader, seconds};

fn holder(stage: &Stage) -> String {
    let lease = stage.cluster.lease("kube-system", "keelson-node-controller");
    lease.and_then(|lease| lease.spec.holder_identity).unwrap_or_default()
}

/// Writes that are no leases, by one client.
fn acts(stage: &Stage, client: &str) -> Vec<Logged> {
    let mut acts = stage.writes("nodes");
    acts.extend(stage.writes("pods"));
    acts.retain(|it| it.client == client);
    acts
}

#[tokio::test(start_paused = true)]
async fn the_second_waits_and_takes_over_when_the_first_ends() {
    let stage = Stage::with_nodes(4);
    let first = stage.start_as("one", leader("one"), None);
    seconds(5).await;
    let second = stage.start_as("two", leader("two"), None);
    seconds(60).await;
    assert_eq!(holder(&stage), "one");
    assert!(first.controller.is_leading() && !second.controller.is_leading());
    assert!(first.controller.has_synced() && !second.controller.has_synced());
    let name = [("name", "keelson-node-controller")];
    assert_eq!(first.metric("leader_election_master_status", &name), Some(1.0));
    assert_eq!(second.metric("leader_election_master_status", &name), Some(0.0));
    assert!(acts(&stage, "two").is_empty());
    let why = second.controller.explain("node-1").await;
    assert_eq!(why.outlook, "This controller does not lead; ask one.");
    let began = Instant::now();
    first.end().await;
    stage.until("taken over", 10, || holder(&stage) == "two").await;
    assert!(began.elapsed() < Duration::from_secs(6), "a lease that is let go is taken at once");
    seconds(120).await;
    for number in 0..4 {
        assert_eq!(stage.ready(&format!("node-{number}")), "True");
    }
    assert!(second.controller.health().iter().all(|check| check.problem.is_none()));
    second.end().await;
    assert_eq!(holder(&stage), "");
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_followed_within_the_lease() {
    let stage = Stage::with_nodes(4);
    stage.pod("web", "node-1", &bears(Some(100)));
    let first = stage.start_as("one", leader("one"), None);
    seconds(2).await;
    let second = stage.start_as("two", leader("two"), None);
    seconds(60).await;
    stage.nodes.silence("node-1");
    stage.until("given up", 80, || stage.taints("node-1").len() == 2).await;
    let tainted = Instant::now();
    first.kill();
    let took = stage.until("taken over", 30, || holder(&stage) == "two").await;
    assert!(took <= 20, "after {took} s");
    stage.until("sent away", 120, || !stage.is_kept("web")).await;
    let after = tainted.elapsed().as_secs();
    assert!((98..=105).contains(&after), "after {after} s: the time ran on through the change");
    for number in [0, 2, 3] {
        assert_eq!(stage.ready(&format!("node-{number}")), "True");
    }
    second.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_begin() {
    let stage = Stage::with_nodes(6);
    let first = stage.start_as("one", leader("one"), None);
    seconds(2).await;
    let second = stage.start_as("two", leader("two"), None);
    seconds(60).await;
    for round in 0..6 {
        let (old, new, name) = match round % 2 {
            0 => (&first, &second, "two"),
            _ => (&second, &first, "one"),
        };
        assert!(old.controller.is_leading(), "round {round}");
        old.client.faults.turn(|faults| {
            if round % 3 == 0 {
                faults.hangs = true;
            } else {
                faults.away = true;
            }
        });
        let cut = Instant::now();
        while holder(&stage) != name {
            assert!(
                !(old.controller.is_leading() && new.controller.is_leading()),
                "two leaders in round {round}"
            );
            assert!(cut.elapsed() < Duration::from_secs(30), "nobody took over in round {round}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!old.controller.is_leading());
        old.client.faults.mend();
        seconds(40).await;
        assert!(new.controller.is_leading() && !old.controller.is_leading());
    }
    for number in 0..6 {
        assert_eq!(stage.ready(&format!("node-{number}")), "True");
    }
    assert!(stage.writes("nodes").is_empty(), "no node was ever ill");
}

/// Kills and stalls at all times while nodes come and go: nobody acts who may not, and everything
/// that has to happen does.
#[tokio::test(start_paused = true)]
async fn two_fight_while_being_killed_and_stalled() {
    let stage = Stage::with_nodes(12);
    for number in 0..12 {
        stage.pod(&format!("pod-{number}"), &format!("node-{number}"), &bears(Some(20)));
    }
    let mut one = Some(stage.start_as("one-0", leader("one-0"), None));
    let mut two = Some(stage.start_as("two-0", leader("two-0"), None));
    seconds(60).await;
    let mut dice = 12_345_u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) % sides
    };
    let mut watch = Vec::new();
    for round in 1..40 {
        let slot = if roll(2) == 0 { &mut one } else { &mut two };
        let name = format!("{}-{round}", if roll(2) == 0 { "a" } else { "b" });
        match roll(4) {
            0 => {
                if let Some(running) = slot.take() {
                    running.kill();
                }
                *slot = Some(stage.start_as(&name, leader(&name), None));
            }
            1 => slot.as_ref().expect("runs").client.faults.turn(|faults| faults.hangs = true),
            2 => slot.as_ref().expect("runs").client.faults.turn(|faults| faults.away = true),
            _ => slot.as_ref().expect("runs").client.faults.turn(|faults| {
                faults.late = Duration::from_millis(500 + 200 * roll(10));
            }),
        }
        if round == 5 {
            stage.nodes.silence("node-3");
        }
        if round == 20 {
            stage.nodes.silence("node-7");
        }
        for _ in 0..roll(60) {
            seconds(1).await;
            let leading: Vec<bool> =
                [&one, &two].map(|it| it.as_ref().expect("runs").controller.is_leading()).into();
            watch.push(leading.iter().filter(|leads| **leads).count());
        }
        for running in [&one, &two] {
            running.as_ref().expect("runs").client.faults.mend();
        }
        seconds(20).await;
    }
    assert!(watch.iter().all(|leaders| *leaders <= 1), "two led at once");
    assert!(watch.iter().filter(|leaders| **leaders == 1).count() > watch.len() / 3);
    seconds(400).await;
    for number in 0..12 {
        let lost = [3, 7].contains(&number);
        assert_eq!(stage.is_kept(&format!("pod-{number}")), !lost, "pod-{number}");
        let ready = if lost { "Unknown" } else { "True" };
        assert_eq!(stage.ready(&format!("node-{number}")), ready, "node-{number}");
    }
    // Each pod was sent away once, by whoever led then.
    assert_eq!(stage.deletions().len(), 2);
}

/// A lease does not fence: a write that leaves long after it was decided must find its guard.
#[tokio::test(start_paused = true)]
async fn a_write_that_comes_late_changes_nothing_that_changed_meanwhile() {
    let stage = Stage::with_nodes(4);
    let first = stage.start_as("one", leader("one"), None);
    seconds(60).await;
    stage.nodes.silence("node-1");
    first.client.faults.turn(|faults| faults.late = Duration::from_secs(40));
    seconds(56).await;
    // Decided by now, and on its way; the node comes back, and its kubelet writes its status.
    stage.nodes.revive("node-1");
    stage.cluster.edit(&ObjectPath::node("node-1"), |node| {
        node["status"]["conditions"][3]["lastHeartbeatTime"] = "2026-01-02T12:02:00Z".into();
    });
    first.kill();
    seconds(100).await;
    assert_eq!(stage.ready("node-1"), "True");
    assert_eq!(stage.taints("node-1"), [] as [&str; 0]);
}
