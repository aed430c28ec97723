//! Two instances: only one acts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster_fake::{ApiVerb, LoggedRequest};
use node_controller::ApiClients;
use ports::cluster_api::ObjectPath;
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{Stage, bears, leader, seconds};

fn holder(stage: &Stage) -> String {
    let lease = stage.cluster.lease("kube-system", "keelson-node-controller");
    lease.and_then(|lease| lease.spec.holder_identity).unwrap_or_default()
}

/// Writes other than of leases, by one client.
fn acts(stage: &Stage, client: &str) -> Vec<LoggedRequest> {
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
    let lease_events: Vec<String> = stage
        .cluster
        .events()
        .into_iter()
        .filter(|event| event.reason == "LeaderElection")
        .map(|event| event.message)
        .collect();
    let expected =
        ["one became leader", "one stopped leading", "two became leader", "two stopped leading"];
    assert_eq!(lease_events, expected);
}

/// Lists of one term do not count in the next.
#[tokio::test(start_paused = true)]
async fn a_second_term_begins_with_nothing_listed() {
    let stage = Stage::with_nodes(3);
    let running = stage.start_as("one", leader("one"), None);
    seconds(10).await;
    assert!(running.controller.has_synced());
    running.client.faults.turn(|faults| faults.hangs = true);
    stage.until("out of office", 20, || !running.controller.is_leading()).await;
    // It may lead again, but its watches deliver nothing.
    running.client.faults.turn(|faults| {
        faults.hangs = false;
        faults.silent_watches = true;
    });
    stage.until("in office", 30, || running.controller.is_leading()).await;
    seconds(5).await;
    assert!(running.controller.is_leading() && !running.controller.has_synced());
    running.client.faults.reset();
    stage.until("listed", 5, || running.controller.has_synced()).await;
    running.end().await;
}

/// An outage with many pods means thousands of requests at the default rate limit. The leader's
/// lease must not queue behind them.
#[tokio::test(start_paused = true)]
async fn a_flood_of_writes_does_not_cost_the_lease() {
    let stage = Stage::with_nodes(30);
    for node in 0..20 {
        for pod in 0..40 {
            stage.pod(&format!("pod-{node}-{pod}"), &format!("node-{node}"), &bears(Some(5)));
        }
    }
    let client = stage.cluster.client("one");
    let rate = || Arc::new(client.with_rate_limit(20, 30));
    let clients = ApiClients { work: rate(), lease_reads: rate(), election: rate() };
    let running = stage.start_with(client, clients, leader("one"), None);
    seconds(60).await;
    for node in 0..20 {
        stage.nodes.stop_heartbeats(&format!("node-{node}"));
    }
    let marked = |stage: &Stage| {
        let pod = |number: usize| format!("pod-{}-{}", number / 40, number % 40);
        let ready = |number| stage.pod_condition(&pod(number), "Ready");
        (0..800).filter(|number| ready(*number).is_some_and(|it| it.0 == "False")).count()
    };
    stage.until("noticed", 80, || stage.ready("node-7") == "Unknown").await;
    let began = Instant::now();
    while marked(&stage) < 800 {
        assert!(began.elapsed() < Duration::from_secs(200), "{} marked", marked(&stage));
        for _ in 0..10 {
            assert!(running.controller.is_leading(), "after {:?}", began.elapsed());
            seconds(1).await;
        }
    }
    assert!(began.elapsed() > Duration::from_secs(20), "there was no flood");
    let renewals: Vec<Instant> = stage
        .writes("leases")
        .into_iter()
        .filter(|it| it.path.name == "keelson-node-controller" && it.succeeded)
        .map(|it| it.at)
        .collect();
    let pause = renewals.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(pause < Some(Duration::from_secs(5)), "{pause:?} between two renewals");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_followed_within_the_lease() {
    let stage = Stage::with_nodes(4);
    stage.pod("web", "node-1", &bears(Some(100)));
    let first = stage.start_as("one", leader("one"), None);
    seconds(2).await;
    let second = stage.start_as("two", leader("two"), None);
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
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
        old.client.faults.reset();
        seconds(40).await;
        assert!(new.controller.is_leading() && !old.controller.is_leading());
    }
    for number in 0..6 {
        assert_eq!(stage.ready(&format!("node-{number}")), "True");
    }
    assert!(stage.writes("nodes").is_empty(), "no node was ever ill");
}

/// Setting the wall clock is not elapsed time; a suspend is.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_costs_nothing_and_a_sleep_the_lease() {
    let stage = Stage::with_nodes(4);
    stage.pod("web", "node-1", &bears(Some(300)));
    let running = stage.start_as("one", leader("one"), None);
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    stage.until("given up", 80, || stage.taints("node-1").len() == 2).await;
    let tainted = Instant::now();
    seconds(20).await;
    for off in [250, 0, 86_400, -86_400] {
        running.machine.off_seconds.store(off, Ordering::Relaxed);
        for _ in 0..20 {
            assert!(running.controller.is_leading(), "set by {off} s");
            seconds(1).await;
        }
    }
    stage.until("sent away", 320, || !stage.is_kept("web")).await;
    let after = tainted.elapsed().as_secs();
    assert!((298..=305).contains(&after), "after {after} s");
    running.machine.slept_seconds.store(60, Ordering::Relaxed);
    assert!(!running.controller.is_leading(), "the lease ran out in its sleep");
    running.end().await;
}

/// Every write in the log was sent by the lease's holder at its arrival, and no later after its
/// last renewal than the time in which it may act plus a write's delay.
fn assert_acts_of_holders(stage: &Stage, on_its_way: Duration) {
    let mut holder = String::new();
    let mut renewed = None;
    let mut acts = 0;
    for logged in
        stage.cluster.log().into_iter().filter(|it| it.succeeded && it.verb != ApiVerb::Read)
    {
        match logged.path.resource.plural {
            "leases" => {
                let spec = logged.body.as_ref().map(|body| body["spec"].clone());
                let by = spec.as_ref().and_then(|spec| spec["holderIdentity"].as_str());
                holder = by.unwrap_or_default().to_owned();
                renewed = Some(logged.at);
            }
            "nodes" | "pods" => {
                acts += 1;
                assert_eq!(logged.client, holder, "{logged:?}");
                let age = renewed.map(|renewed| logged.at - renewed);
                let most = Duration::from_secs(10) + on_its_way;
                assert!(age.is_some_and(|age| age <= most), "{age:?}: {logged:?}");
                let body = logged.body.unwrap_or_default();
                let guarded = body["metadata"]["resourceVersion"].is_string()
                    || body["metadata"]["uid"].is_string();
                assert!(guarded || logged.verb == ApiVerb::Delete, "{}", logged.path.name);
            }
            _ => {}
        }
    }
    assert!(acts >= 200, "{acts} acts");
}

/// Nodes that alternate between ready and not ready, so that there is always something to write.
const FLAPPING: [&str; 2] = ["node-10", "node-11"];

async fn flap(stage: &Stage, second: u64) {
    for (node, period) in FLAPPING.into_iter().zip([3, 5]) {
        if second.is_multiple_of(period) {
            stage.nodes.set_ready(node, (second / period).is_multiple_of(2));
        }
    }
    seconds(1).await;
}

/// Another client writes to the same nodes and the same list meanwhile.
fn taint_as_another_client(stage: &Stage, nodes: &[&str], round: u64) {
    for node in nodes {
        stage.cluster.edit(&ObjectPath::node(node), |node| {
            let key = format!("example.com/round-{round}");
            let taint = json!({"key": key, "effect": "NoSchedule"});
            match node["spec"]["taints"].as_array_mut() {
                Some(taints) => taints.push(taint),
                None => node["spec"]["taints"] = json!([taint]),
            }
        });
    }
}

/// Kills and stalls at any time while nodes come and go: no instance acts without leading, and
/// everything that must happen does.
#[tokio::test(start_paused = true)]
async fn two_controllers_act_one_at_a_time_while_killed_and_stalled() {
    let stage = Stage::with_nodes(12);
    for number in 0..12 {
        let bears = bears((number < 10).then_some(20));
        stage.pod(&format!("pod-{number}"), &format!("node-{number}"), &bears);
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
            stage.nodes.stop_heartbeats("node-3");
        }
        if round == 20 {
            stage.nodes.stop_heartbeats("node-7");
        }
        taint_as_another_client(&stage, &["node-3", "node-7"], round);
        for second in 0..roll(60) {
            flap(&stage, second).await;
            let leading: Vec<bool> =
                [&one, &two].map(|it| it.as_ref().expect("runs").controller.is_leading()).into();
            watch.push(leading.iter().filter(|leads| **leads).count());
        }
        for running in [&one, &two] {
            running.as_ref().expect("runs").client.faults.reset();
        }
        for second in 0..20 {
            flap(&stage, second).await;
        }
    }
    assert!(watch.iter().all(|leaders| *leaders <= 1), "two led at once");
    assert!(watch.iter().filter(|leaders| **leaders == 1).count() > watch.len() / 3);
    for node in FLAPPING {
        stage.nodes.set_ready(node, true);
    }
    seconds(400).await;
    for number in 0..12 {
        let lost = [3, 7].contains(&number);
        assert_eq!(stage.is_kept(&format!("pod-{number}")), !lost, "pod-{number}");
        let ready = if lost { "Unknown" } else { "True" };
        assert_eq!(stage.ready(&format!("node-{number}")), ready, "node-{number}");
    }
    // Each pod was evicted once, by the leader of that time.
    assert_eq!(stage.deletions().len(), 2);
    assert_acts_of_holders(&stage, Duration::from_millis(2_500));
    // No write was lost: all taints of the other client are there, and both of ours.
    for node in ["node-3", "node-7"] {
        let taints = stage.taints(node);
        let theirs = taints.iter().filter(|it| it.starts_with("example.com/round-")).count();
        assert_eq!((theirs, taints.len()), (39, 41), "{node}: {taints:?}");
    }
}

/// A lease does not fence: a write sent long after its decision must be refused by its guard.
#[tokio::test(start_paused = true)]
async fn a_write_that_comes_late_changes_nothing_that_changed_meanwhile() {
    let stage = Stage::with_nodes(4);
    let first = stage.start_as("one", leader("one"), None);
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    first.client.faults.turn(|faults| faults.late = Duration::from_secs(40));
    seconds(56).await;
    // Decided by now, and in flight; the node comes back, and its kubelet writes its status.
    stage.nodes.resume_heartbeats("node-1");
    stage.cluster.edit(&ObjectPath::node("node-1"), |node| {
        node["status"]["conditions"][3]["lastHeartbeatTime"] = "2026-01-02T12:02:00Z".into();
    });
    first.kill();
    seconds(100).await;
    assert_eq!(stage.ready("node-1"), "True");
    assert_eq!(stage.taints("node-1"), [] as [&str; 0]);
}

/// A process that is stopped while its requests are queued finds two things at once when it
/// continues: their turn has come, and its leadership has expired. The latter counts.
#[tokio::test(start_paused = true)]
async fn a_write_queued_before_a_stop_is_not_sent_after_the_lease_expired() {
    let stage = Stage::with_nodes(10);
    for pod in 0..40 {
        stage.pod(&format!("pod-{pod}"), "node-1", &bears(Some(5)));
    }
    let client = stage.cluster.client("one");
    let (work, quick) = (Arc::new(client.with_rate_limit(4, 4)), Arc::new(client.clone()));
    let clients = ApiClients { work, lease_reads: quick.clone(), election: quick };
    let running = stage.start_with(client, clients, leader("one"), None);
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    stage.until("at work", 120, || stage.deletions().len() >= 3).await;
    let stopped = Instant::now();
    tokio::time::advance(Duration::from_secs(60)).await;
    seconds(10).await;
    let log = stage.cluster.log().into_iter();
    let after: Vec<LoggedRequest> = log
        .filter(|it| it.at > stopped && it.client == "one" && it.verb != ApiVerb::Read)
        .collect();
    let kind = |it: &LoggedRequest| it.path.resource.plural;
    let claim = after.iter().position(|it| kind(it) == "leases" && it.succeeded);
    let before = &after[..claim.expect("it stands for election again")];
    let strays: Vec<_> = before.iter().filter(|it| ["nodes", "pods"].contains(&kind(it))).collect();
    assert!(strays.is_empty(), "sent without the lease: {strays:?}");
    stage.until("and goes on in its next term", 200, || stage.deletions().len() == 40).await;
    running.end().await;
}
