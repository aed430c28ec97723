//! One row per rule about silence.

use super::*;
use crate::zones::ZoneKey;

fn secs(seconds: u64) -> Attended {
    Attended::default().after(Duration::from_secs(seconds))
}

fn stamp(seconds: i64) -> Stamp {
    Stamp::from_nanos(seconds)
}

fn condition(status: Truth, heartbeat: i64) -> Option<Condition> {
    Some(Condition { status, heartbeat: stamp(heartbeat), transition: stamp(1) })
}

fn node(ready: Option<Truth>) -> NodeFacts {
    let mut conditions = Conditions::default();
    conditions.set(ConditionKind::Ready, ready.and_then(|status| condition(status, 5)));
    NodeFacts {
        created: stamp(77),
        version: 1,
        conditions,
        taints: Vec::new(),
        unschedulable: false,
        zone: ZoneKey::default(),
        excluded: false,
        label_fixes: Vec::new(),
    }
}

fn assessed(facts: &NodeFacts, silence_nanos: u64) -> Assessment {
    let signs = LifeSigns::first_sight(&facts.conditions, None, Attended::default());
    let at = Attended::default().after(Duration::from_nanos(silence_nanos));
    assess(&signs, facts, &Grace::default(), at, Moment::from_secs(900))
}

const MONITOR: u64 = 50_000_000_000;
const STARTUP: u64 = 60_000_000_000;

#[test]
fn when_silence_is_too_long() {
    let rows = [
        ("within grace", Some(Truth::True), MONITOR, false, 0, false),
        ("one nanosecond over", Some(Truth::True), MONITOR + 1, true, 4, true),
        ("not ready before", Some(Truth::False), MONITOR + 1, true, 4, false),
        ("unknown already", Some(Truth::Unknown), MONITOR + 1, true, 0, false),
        ("never posted, startup grace", None, STARTUP, false, 0, false),
        ("never posted, over it", None, STARTUP + 1, true, 4, false),
    ];
    for (name, ready, silence, silent, writes, falls) in rows {
        let got = assessed(&node(ready), silence);
        assert_eq!((got.silent, got.writes.len(), got.falls), (silent, writes, falls), "{name}");
    }
}

#[test]
fn what_is_written() {
    let mut facts = node(Some(Truth::True));
    facts.conditions.set(ConditionKind::MemoryPressure, condition(Truth::Unknown, 6));
    facts.conditions.set(ConditionKind::DiskPressure, condition(Truth::False, 7));
    facts.conditions.set(ConditionKind::NetworkUnavailable, condition(Truth::False, 8));
    let got = assessed(&facts, MONITOR + 1);
    let now = Moment::from_secs(900).stamp();
    let rows: Vec<_> = got
        .writes
        .iter()
        .map(|write| (write.kind, write.because, write.condition.heartbeat))
        .collect();
    assert_eq!(
        rows,
        [
            (ConditionKind::Ready, UnknownBecause::Stopped, stamp(5)),
            (ConditionKind::DiskPressure, UnknownBecause::Stopped, stamp(7)),
            (ConditionKind::PidPressure, UnknownBecause::Never, stamp(77)),
        ],
        "unknown ones stay, missing ones take the creation time, the network is not ours"
    );
    assert!(got.writes.iter().all(|write| write.condition.status == Truth::Unknown));
    assert!(got.writes.iter().all(|write| write.condition.transition == now));
}

#[test]
fn what_counts_as_a_sign_of_life() {
    let with = |beat| {
        let mut facts = node(Some(Truth::True));
        facts.conditions.set(ConditionKind::Ready, condition(Truth::True, beat));
        facts.conditions
    };
    let none = node(None).conditions;
    let start = || LifeSigns::first_sight(&with(5), Some(stamp(50)), secs(0));
    let heard = |change: &dyn Fn(&mut LifeSigns)| {
        let mut signs = start();
        change(&mut signs);
        signs.heard()
    };
    assert_eq!(heard(&|signs| signs.status_seen(&with(5), secs(9))), secs(0), "same heartbeat");
    assert_eq!(heard(&|signs| signs.status_seen(&with(6), secs(9))), secs(9), "newer heartbeat");
    assert_eq!(heard(&|signs| signs.status_seen(&with(-1), secs(9))), secs(9), "clock set back");
    assert_eq!(heard(&|signs| signs.status_seen(&none, secs(9))), secs(9), "Ready removed");
    assert_eq!(heard(&|signs| signs.lease_seen(stamp(50), secs(9))), secs(0), "same renewal");
    assert_eq!(heard(&|signs| signs.lease_seen(stamp(51), secs(9))), secs(9), "renewed");
    assert_eq!(heard(&|signs| signs.lease_seen(stamp(-7), secs(9))), secs(9), "clock set back");
    assert_eq!(heard(&|signs| signs.forgive(secs(4))), secs(4), "forgiven");
    let mut again = start();
    again.lease_seen(stamp(51), secs(3));
    assert_eq!(again.renewed(), Some(stamp(51)));
    again.lease_seen(stamp(51), secs(9));
    assert_eq!(again.heard(), secs(3), "one renewal is heard once");
}

#[test]
fn posting_shortens_the_patience() {
    let grace = Grace::default();
    let mut signs = LifeSigns::first_sight(&node(None).conditions, None, secs(10));
    assert_eq!(signs.patience_ends(&grace), secs(70));
    signs.status_seen(&node(Some(Truth::False)).conditions, secs(20));
    assert_eq!(signs.patience_ends(&grace), secs(70), "20 + 50");
}

#[test]
fn which_pods_are_marked() {
    let rows = [
        (Some(Truth::True), Some(Truth::Unknown), true),
        (Some(Truth::Unknown), Some(Truth::False), true),
        (Some(Truth::False), Some(Truth::Unknown), false),
        (None, Some(Truth::Unknown), false),
        (Some(Truth::True), Some(Truth::True), false),
        (Some(Truth::True), None, false),
    ];
    for (ready, node_ready, expected) in rows {
        assert_eq!(
            pod_to_be_marked(PodReadiness { ready, node_ready }),
            expected,
            "{ready:?} {node_ready:?}"
        );
    }
}

#[test]
fn events_say_what_upstreams_say() {
    let rows = [
        (NodeEvent::Registered, "RegisteredNode", "Node a event: Registered Node a in Controller"),
        (NodeEvent::Removing, "RemovingNode", "Node a event: Removing Node a from Controller"),
        (NodeEvent::NotReady, "NodeNotReady", "Node a status is now: NodeNotReady"),
        (NodeEvent::CidrNotAvailable, "CIDRNotAvailable", "Node a status is now: CIDRNotAvailable"),
        (
            NodeEvent::CidrAssignmentFailed,
            "CIDRAssignmentFailed",
            "Node a status is now: CIDRAssignmentFailed",
        ),
        (
            NodeEvent::Deleting,
            "DeletingNode",
            "Deleting node a because it does not exist in the cloud provider",
        ),
        (NodeEvent::Synced, "Synced", "Node synced successfully"),
    ];
    for (event, reason, message) in rows {
        assert_eq!((event.reason(), event.message("a").as_str()), (reason, message));
    }
    assert_eq!(UnknownBecause::Stopped.reason(), "NodeStatusUnknown");
    assert_eq!(UnknownBecause::Stopped.message(), "Kubelet stopped posting node status.");
    assert_eq!(UnknownBecause::Never.reason(), "NodeStatusNeverUpdated");
    assert_eq!(UnknownBecause::Never.message(), "Kubelet never posted node status.");
}
