//! One row per rule about silence.

use super::*;
use crate::zones::ZoneKey;

fn secs(seconds: u64) -> ObservedTime {
    ObservedTime::default().after(Duration::from_secs(seconds))
}

fn stamp(seconds: i64) -> RemoteTime {
    RemoteTime::from_nanos(seconds)
}

fn condition(status: ConditionState, heartbeat: i64) -> Option<NodeConditionFacts> {
    Some(NodeConditionFacts { status, heartbeat: stamp(heartbeat), transition: stamp(1) })
}

fn node(ready: Option<ConditionState>) -> NodeHealthFacts {
    let mut conditions = Conditions::default();
    conditions.set(ConditionKind::Ready, ready.and_then(|status| condition(status, 5)));
    NodeHealthFacts {
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

fn assessed(facts: &NodeHealthFacts, silence_nanos: u64) -> Assessment {
    let heartbeats = NodeHeartbeats::first_seen(&facts.conditions, None, ObservedTime::default());
    let at = ObservedTime::default().after(Duration::from_nanos(silence_nanos));
    assess(&heartbeats, facts, &Grace::default(), at, ControllerTime::from_secs(900))
}

const MONITOR: u64 = 50_000_000_000;
const STARTUP: u64 = 60_000_000_000;

#[test]
fn silence_beyond_the_grace_period_is_detected() {
    let rows = [
        ("within grace", Some(ConditionState::True), MONITOR, false, 0, false),
        ("one nanosecond over", Some(ConditionState::True), MONITOR + 1, true, 4, true),
        ("not ready before", Some(ConditionState::False), MONITOR + 1, true, 4, false),
        ("unknown already", Some(ConditionState::Unknown), MONITOR + 1, true, 0, false),
        ("never posted, startup grace", None, STARTUP, false, 0, false),
        ("never posted, over it", None, STARTUP + 1, true, 4, false),
    ];
    for (name, ready, silence, silent, writes, not_ready_transition) in rows {
        let got = assessed(&node(ready), silence);
        assert_eq!(
            (got.silent, got.writes.len(), got.not_ready_transition),
            (silent, writes, not_ready_transition),
            "{name}"
        );
    }
}

#[test]
fn silence_sets_conditions_to_unknown() {
    let mut facts = node(Some(ConditionState::True));
    facts.conditions.set(ConditionKind::MemoryPressure, condition(ConditionState::Unknown, 6));
    facts.conditions.set(ConditionKind::DiskPressure, condition(ConditionState::False, 7));
    facts.conditions.set(ConditionKind::NetworkUnavailable, condition(ConditionState::False, 8));
    let got = assessed(&facts, MONITOR + 1);
    let now = ControllerTime::from_secs(900).stamp();
    let rows: Vec<_> = got
        .writes
        .iter()
        .map(|write| (write.kind, write.because, write.condition.heartbeat))
        .collect();
    assert_eq!(
        rows,
        [
            (ConditionKind::Ready, UnknownReason::Stopped, stamp(5)),
            (ConditionKind::DiskPressure, UnknownReason::Stopped, stamp(7)),
            (ConditionKind::PidPressure, UnknownReason::Never, stamp(77)),
        ],
        "unknown ones stay, missing ones take the creation time, the network is not ours"
    );
    assert!(got.writes.iter().all(|write| write.condition.status == ConditionState::Unknown));
    assert!(got.writes.iter().all(|write| write.condition.transition == now));
}

#[test]
fn heartbeats_and_renewals_reset_silence() {
    let with = |beat| {
        let mut facts = node(Some(ConditionState::True));
        facts.conditions.set(ConditionKind::Ready, condition(ConditionState::True, beat));
        facts.conditions
    };
    let none = node(None).conditions;
    let start = || NodeHeartbeats::first_seen(&with(5), Some(stamp(50)), secs(0));
    let last_seen = |change: &dyn Fn(&mut NodeHeartbeats)| {
        let mut heartbeats = start();
        change(&mut heartbeats);
        heartbeats.last_seen()
    };
    assert_eq!(
        last_seen(&|heartbeats| heartbeats.observe_status(&with(5), secs(9))),
        secs(0),
        "same heartbeat"
    );
    assert_eq!(
        last_seen(&|heartbeats| heartbeats.observe_status(&with(6), secs(9))),
        secs(9),
        "newer heartbeat"
    );
    assert_eq!(
        last_seen(&|heartbeats| heartbeats.observe_status(&with(-1), secs(9))),
        secs(9),
        "clock set back"
    );
    assert_eq!(
        last_seen(&|heartbeats| heartbeats.observe_status(&none, secs(9))),
        secs(9),
        "Ready removed"
    );
    assert_eq!(
        last_seen(&|heartbeats| heartbeats.observe_lease(stamp(50), secs(9))),
        secs(0),
        "same renewal"
    );
    assert_eq!(
        last_seen(&|heartbeats| heartbeats.observe_lease(stamp(51), secs(9))),
        secs(9),
        "renewed"
    );
    assert_eq!(
        last_seen(&|heartbeats| heartbeats.observe_lease(stamp(-7), secs(9))),
        secs(9),
        "clock set back"
    );
    assert_eq!(last_seen(&|heartbeats| heartbeats.reset_silence(secs(4))), secs(4), "forgiven");
    let mut again = start();
    again.observe_lease(stamp(51), secs(3));
    assert_eq!(again.renewed(), Some(stamp(51)));
    again.observe_lease(stamp(51), secs(9));
    assert_eq!(again.last_seen(), secs(3), "one renewal is heard once");
}

#[test]
fn the_first_status_shortens_the_grace() {
    let grace = Grace::default();
    let mut heartbeats = NodeHeartbeats::first_seen(&node(None).conditions, None, secs(10));
    assert_eq!(heartbeats.grace_ends_at(&grace), secs(70));
    heartbeats.observe_status(&node(Some(ConditionState::False)).conditions, secs(20));
    assert_eq!(heartbeats.grace_ends_at(&grace), secs(70), "20 + 50");
}

#[test]
fn ready_pods_of_a_not_ready_node_are_marked() {
    let rows = [
        (Some(ConditionState::True), Some(ConditionState::Unknown), true),
        (Some(ConditionState::Unknown), Some(ConditionState::False), true),
        (Some(ConditionState::False), Some(ConditionState::Unknown), false),
        (None, Some(ConditionState::Unknown), false),
        (Some(ConditionState::True), Some(ConditionState::True), false),
        (Some(ConditionState::True), None, false),
    ];
    for (ready, node_ready, expected) in rows {
        assert_eq!(
            must_mark_not_ready(PodReadiness { ready, node_ready }),
            expected,
            "{ready:?} {node_ready:?}"
        );
    }
}

#[test]
fn events_have_upstream_texts() {
    let rows = [
        (
            NodeHealthEvent::Registered,
            "RegisteredNode",
            "Node a event: Registered Node a in Controller",
        ),
        (
            NodeHealthEvent::Removing,
            "RemovingNode",
            "Node a event: Removing Node a from Controller",
        ),
        (NodeHealthEvent::NotReady, "NodeNotReady", "Node a status is now: NodeNotReady"),
        (
            NodeHealthEvent::CidrNotAvailable,
            "CIDRNotAvailable",
            "Node a status is now: CIDRNotAvailable",
        ),
        (
            NodeHealthEvent::CidrAssignmentFailed,
            "CIDRAssignmentFailed",
            "Node a status is now: CIDRAssignmentFailed",
        ),
        (
            NodeHealthEvent::Deleting,
            "DeletingNode",
            "Deleting node a because it does not exist in the cloud provider",
        ),
        (NodeHealthEvent::Synced, "Synced", "Node synced successfully"),
    ];
    for (event, reason, message) in rows {
        assert_eq!((event.reason(), event.message("a").as_str()), (reason, message));
    }
    assert_eq!(UnknownReason::Stopped.reason(), "NodeStatusUnknown");
    assert_eq!(UnknownReason::Stopped.message(), "Kubelet stopped posting node status.");
    assert_eq!(UnknownReason::Never.reason(), "NodeStatusNeverUpdated");
    assert_eq!(UnknownReason::Never.message(), "Kubelet never posted node status.");
}
