//! The parts together: a node from silence to its taint and back, blackouts, stale views, refused
//! writes, absence of the controller.

use pod_model::TaintEffect;

use super::*;
use crate::facts::{Conditions, NodeConditionFacts, Taint, TaintKey};
use crate::zones::{ZoneKey, ZoneState};

mod absence;
mod limits;
mod not_ready;

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn facts(version: u64, ready: ConditionState, beat: i64) -> NodeHealthFacts {
    let mut conditions = Conditions::default();
    let stamp = RemoteTime::from_nanos(beat);
    let condition = NodeConditionFacts { status: ready, heartbeat: stamp, transition: stamp };
    conditions.set(ConditionKind::Ready, Some(condition));
    NodeHealthFacts {
        created: RemoteTime::from_nanos(0),
        version,
        conditions,
        taints: Vec::new(),
        unschedulable: false,
        zone: ZoneKey::default(),
        excluded: false,
        label_fixes: Vec::new(),
    }
}

fn in_zone(mut facts: NodeHealthFacts, zone: &str) -> NodeHealthFacts {
    let labels = [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())].into();
    facts.zone = ZoneKey::from_labels(&labels);
    facts
}

/// A controller, and the cluster that its writes change.
struct LifecycleFixture {
    controller: NodeLifecycle,
    now: i64,
    version: u64,
    log: Vec<LifecycleAction>,
    refuse: bool,
    /// The node that refuses taint writes.
    stubborn: Option<u32>,
}

impl LifecycleFixture {
    fn new() -> Self {
        // Settling has a test of its own.
        let settings =
            NodeLifecycleSettings { settling: Duration::ZERO, ..NodeLifecycleSettings::default() };
        let controller = NodeLifecycle::new(settings);
        Self {
            controller,
            now: 1_000,
            version: 100,
            log: Vec::new(),
            refuse: false,
            stubborn: None,
        }
    }

    fn see(&mut self, node: u32, facts: NodeHealthFacts) {
        self.version = self.version.max(facts.version);
        let actions =
            self.controller.observe(at(self.now), NodeId(node), facts, ObservationSource::Event);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<LifecycleAction>) {
        let mut todo = std::collections::VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            self.log.push(action.clone());
            let (node, kind) = match &action {
                LifecycleAction::WriteConditions { node, .. } => (*node, WriteKind::Conditions),
                LifecycleAction::PatchTaints { node, .. } => (*node, WriteKind::Taints),
                LifecycleAction::SetLabels { node, .. } => (*node, WriteKind::Labels),
                LifecycleAction::MarkPodsNotReady { node } => {
                    self.controller.pods_marked(at(self.now), *node, !self.refuse);
                    continue;
                }
                LifecycleAction::EmitEvent { .. } => continue,
            };
            self.version += 1;
            let stubborn =
                kind == WriteKind::Taints && self.stubborn.is_some_and(|it| NodeId(it) == node);
            let outcome = match self.refuse || stubborn {
                true => WriteOutcome::Failed,
                false => WriteOutcome::Written { version: self.version },
            };
            todo.extend(self.controller.written(at(self.now), node, kind, outcome));
        }
    }

    /// Ticks as the shell does: once, and again while something is due.
    fn tick(&mut self) {
        for _ in 0..3 {
            let actions = self.controller.tick(at(self.now), at(self.now));
            self.carry_out(actions);
            if self.controller.next_wake().is_none_or(|wake| wake > at(self.now)) {
                break;
            }
        }
    }

    /// Advances time in steps of one second; these nodes renew their leases.
    fn pass(&mut self, seconds: i64, alive: &[u32]) {
        for _ in 0..seconds {
            self.now += 1;
            for node in alive {
                let renewed = RemoteTime::from_nanos(self.now);
                self.controller.observe_lease(at(self.now), NodeId(*node), renewed);
            }
            self.tick();
        }
    }

    fn ready(&self, node: u32) -> Option<ConditionState> {
        self.controller.node_ready(NodeId(node))
    }

    fn taints(&self, node: u32) -> Vec<(TaintKey, TaintEffect)> {
        let facts = self.controller.facts(NodeId(node)).expect("known");
        facts.taints.iter().map(|taint| (taint.key.clone(), taint.effect)).collect()
    }

    fn no_execute_tainted(&self, node: u32) -> bool {
        self.taints(node).iter().any(|(_, effect)| *effect == TaintEffect::NoExecute)
    }

    fn events_of(&self, node: u32, event: NodeHealthEvent) -> usize {
        let expected = LifecycleAction::EmitEvent { node: NodeId(node), event };
        self.log.iter().filter(|action| **action == expected).count()
    }
}

/// Three live nodes and number 9.
fn four() -> LifecycleFixture {
    let mut fixture = LifecycleFixture::new();
    for node in [1, 2, 3, 9] {
        fixture.see(node, facts(1, ConditionState::True, 1));
    }
    fixture.tick();
    fixture
}

const OTHERS: [u32; 3] = [1, 2, 3];

#[test]
fn from_silence_to_taint_and_back() {
    let mut fixture = four();
    assert_eq!(fixture.events_of(9, NodeHealthEvent::Registered), 1);
    fixture.pass(50, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::True), "50 s are within the grace");
    fixture.pass(1, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::Unknown));
    assert_eq!(fixture.events_of(9, NodeHealthEvent::NotReady), 1);
    assert!(fixture.log.contains(&LifecycleAction::MarkPodsNotReady { node: NodeId(9) }));
    assert_eq!(
        fixture.taints(9),
        [
            (TaintKey::Unreachable, TaintEffect::NoSchedule),
            (TaintKey::Unreachable, TaintEffect::NoExecute)
        ]
    );
    fixture.pass(100, &OTHERS);
    let before = fixture.log.len();
    let mut back = facts(fixture.version + 1, ConditionState::True, 2);
    back.taints = fixture.controller.facts(NodeId(9)).expect("known").taints.clone();
    fixture.see(9, back);
    assert_eq!(fixture.taints(9), []);
    assert_eq!(fixture.log.len(), before + 1, "one patch");
    assert_eq!(fixture.events_of(9, NodeHealthEvent::NotReady), 1);
    fixture.pass(51, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::Unknown), "and again");
}

#[test]
fn the_wake_is_exact() {
    let mut fixture = four();
    fixture.pass(1, &[1, 2, 3, 9]);
    for second in 1..=50 {
        fixture.now += 1;
        for node in OTHERS {
            fixture.controller.observe_lease(
                at(fixture.now),
                NodeId(node),
                RemoteTime::from_nanos(second),
            );
        }
        fixture.tick();
    }
    assert_eq!(fixture.ready(9), Some(ConditionState::True));
    let wake = fixture.controller.next_wake().expect("something is due");
    assert_eq!(wake, at(fixture.now).after(Duration::from_nanos(1)));
    let actions = fixture.controller.tick(wake, wake);
    assert!(matches!(actions[..], [LifecycleAction::WriteConditions { node: NodeId(9), .. }]));
}

#[test]
fn a_lease_or_a_status_keeps_it_alive() {
    let mut fixture = four();
    fixture.pass(200, &[1, 2, 3, 9]);
    assert_eq!(fixture.ready(9), Some(ConditionState::True));
    for beat in 2..20 {
        fixture.see(9, facts(1, ConditionState::True, beat));
        fixture.pass(40, &OTHERS);
    }
    assert_eq!(fixture.ready(9), Some(ConditionState::True), "by status alone");
    for _ in 0..5 {
        let renewed = RemoteTime::from_nanos(fixture.now);
        fixture.controller.observe_listed_lease(at(fixture.now), NodeId(9), renewed);
        fixture.pass(40, &OTHERS);
    }
    assert_eq!(fixture.ready(9), Some(ConditionState::True), "by leases that were read");
    fixture.pass(20, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::Unknown), "and by nothing else");
}

#[test]
fn only_a_tainted_node_spends_the_zones_token() {
    let rows = [
        (TaintKey::Unreachable, TaintEffect::NoExecute, true),
        (TaintKey::NotReady, TaintEffect::NoExecute, true),
        (TaintKey::Unreachable, TaintEffect::NoSchedule, false),
        (TaintKey::Other("example.com/busy".into()), TaintEffect::NoExecute, false),
    ];
    for (key, effect, waits) in rows {
        let mut fixture = LifecycleFixture::new();
        for node in OTHERS {
            fixture.see(node, facts(1, ConditionState::True, 1));
        }
        let just_now = RemoteTime::from_nanos(fixture.now * 1_000_000_000);
        let mut tainted = facts(1, ConditionState::True, 1);
        tainted.taints = vec![Taint::new(key.clone(), effect, Some(just_now))];
        fixture.see(8, tainted);
        fixture.see(9, facts(1, ConditionState::False, 1));
        fixture.tick();
        assert_eq!(fixture.no_execute_tainted(9), !waits, "{key:?} {effect:?}");
    }
}

#[test]
fn a_node_that_reports_not_ready_waits_for_a_token_without_events() {
    let mut fixture = four();
    fixture.see(9, facts(2, ConditionState::False, 2));
    assert_eq!(fixture.taints(9), [(TaintKey::NotReady, TaintEffect::NoSchedule)]);
    fixture.tick();
    assert!(fixture.no_execute_tainted(9));
    assert_eq!(fixture.events_of(9, NodeHealthEvent::NotReady), 0);
    fixture.pass(51, &OTHERS);
    assert_eq!(
        fixture.taints(9),
        [
            (TaintKey::Unreachable, TaintEffect::NoSchedule),
            (TaintKey::Unreachable, TaintEffect::NoExecute)
        ],
        "swapped at once"
    );
    assert_eq!(fixture.events_of(9, NodeHealthEvent::NotReady), 0, "it was not Ready before");
}

#[test]
fn evictions_are_ten_seconds_apart_and_stop_in_a_partial_zone() {
    let mut fixture = LifecycleFixture::new();
    let alive: Vec<u32> = (0..8).collect();
    for node in 0..10 {
        fixture.see(node, facts(1, ConditionState::True, 1));
    }
    fixture.tick();
    fixture.pass(51, &alive);
    assert_eq!([fixture.no_execute_tainted(8), fixture.no_execute_tainted(9)], [true, false]);
    fixture.pass(9, &alive);
    assert!(!fixture.no_execute_tainted(9));
    fixture.pass(1, &alive);
    assert!(fixture.no_execute_tainted(9));
    // Four of ten stay alive: six are too many for a zone this small.
    fixture.pass(51, &alive[..4]);
    let zone = fixture.controller.zone_of(NodeId(0)).expect("known");
    let state = fixture.controller.zones().get(zone).map(crate::zones::Zone::state);
    assert_eq!(state, Some(ZoneState::Partial));
    fixture.pass(500, &alive[..4]);
    assert_eq!(
        (4..8).filter(|node| fixture.no_execute_tainted(*node)).count(),
        0,
        "all fell within one tick"
    );
    assert_eq!(fixture.controller.queue().len(), 4);
    fixture.pass(1, &alive);
    for node in 4..8 {
        fixture.see(node, facts(fixture.version + 1, ConditionState::True, 7));
    }
    assert_eq!(fixture.controller.queue().len(), 0, "who recovers does not wait");
}

#[test]
fn a_blackout_taints_no_node_and_resets_silence() {
    let mut fixture = LifecycleFixture::new();
    for node in 0..6 {
        fixture.see(
            node,
            in_zone(facts(1, ConditionState::True, 1), if node < 3 { "a" } else { "b" }),
        );
    }
    fixture.tick();
    fixture.pass(60, &[3, 4, 5]);
    assert_eq!(
        (0..3).filter(|node| fixture.no_execute_tainted(*node)).count(),
        1,
        "a dark zone beside a bright one"
    );
    fixture.pass(60, &[]);
    assert!(fixture.controller.zones().in_blackout());
    assert_eq!(
        (0..6).filter(|node| fixture.no_execute_tainted(*node)).count(),
        0,
        "taken back from all"
    );
    fixture.pass(500, &[]);
    assert_eq!((0..6).filter(|node| fixture.no_execute_tainted(*node)).count(), 0);
    let back = in_zone(facts(fixture.version + 1, ConditionState::True, 5), "b");
    fixture.see(5, back);
    fixture.pass(5, &[5]);
    assert!(!fixture.controller.zones().in_blackout());
    assert_eq!(
        (0..6).filter(|node| fixture.no_execute_tainted(*node)).count(),
        0,
        "a turn has to be earned first"
    );
    fixture.pass(10, &[5]);
    assert_eq!((0..6).filter(|node| fixture.no_execute_tainted(*node)).count(), 2, "one per zone");
}

#[test]
fn the_end_of_a_blackout_restarts_all_grace_periods() {
    let mut fixture = four();
    fixture.refuse = true;
    fixture.pass(60, &[]);
    assert!(fixture.controller.zones().in_blackout(), "silent, though nothing could be written");
    fixture.pass(1, &[1]);
    assert!(!fixture.controller.zones().in_blackout());
    assert_eq!(fixture.controller.silence(NodeId(9)), Some(Duration::ZERO));
    fixture.refuse = false;
    fixture.pass(49, &[1]);
    assert_eq!(fixture.ready(9), Some(ConditionState::True));
    fixture.pass(2, &[1]);
    assert_eq!(fixture.ready(9), Some(ConditionState::Unknown));
}

#[test]
fn a_controller_that_was_away_taints_no_node_for_that_time() {
    let mut fixture = four();
    fixture.pass(5, &[1, 2, 3, 9]);
    fixture.now += 3_600;
    fixture.tick();
    fixture.pass(45, &[]);
    assert_eq!(fixture.ready(9), Some(ConditionState::True), "5 s before, 45 s after");
    fixture.pass(10, &[]);
    assert_eq!(fixture.ready(9), Some(ConditionState::Unknown), "silence in sight counts");

    let mut fixture = four();
    let proven = at(fixture.now);
    for _ in 0..500 {
        fixture.now += 1;
        assert_eq!(
            fixture.controller.tick(at(fixture.now), proven),
            [],
            "stepping, but seeing nothing"
        );
    }
    fixture.pass(49, &[]);
    assert_eq!(fixture.ready(9), Some(ConditionState::True));
}

#[test]
fn no_eviction_is_granted_on_a_stale_view() {
    let mut fixture = four();
    fixture.see(9, facts(2, ConditionState::False, 2));
    fixture.now += 11;
    let actions = fixture.controller.tick(at(fixture.now), at(fixture.now - 11));
    assert_eq!(actions, [], "a view of 11 s ago gives nobody up");
    fixture.tick();
    assert!(fixture.no_execute_tainted(9));
}

#[test]
fn a_refused_write_is_tried_again_and_nothing_follows_before() {
    let mut fixture = four();
    fixture.refuse = true;
    fixture.pass(60, &OTHERS);
    assert_eq!((fixture.ready(9), fixture.taints(9)), (Some(ConditionState::True), vec![]));
    let writes = fixture
        .log
        .iter()
        .filter(|it| matches!(it, LifecycleAction::WriteConditions { .. }))
        .count();
    assert!(writes > 5, "{writes} tries");
    assert_eq!(fixture.events_of(9, NodeHealthEvent::NotReady), 0);
    fixture.refuse = false;
    fixture.pass(2, &OTHERS);
    assert!(fixture.no_execute_tainted(9));
    assert_eq!(fixture.events_of(9, NodeHealthEvent::NotReady), 1);
}

#[test]
fn one_write_at_a_time_and_stale_views_are_ignored() {
    let mut fixture = four();
    let mut node = facts(2, ConditionState::True, 1);
    node.unschedulable = true;
    let first = fixture.controller.observe(
        at(fixture.now),
        NodeId(9),
        node.clone(),
        ObservationSource::Event,
    );
    assert!(matches!(first[..], [LifecycleAction::PatchTaints { version: 2, .. }]));
    node.version = 3;
    let second = fixture.controller.observe(
        at(fixture.now),
        NodeId(9),
        node.clone(),
        ObservationSource::Event,
    );
    assert_eq!(second, [], "a patch is on its way");
    let outcome = WriteOutcome::Written { version: 10 };
    assert_eq!(
        fixture.controller.written(at(fixture.now), NodeId(9), WriteKind::Taints, outcome),
        []
    );
    let mut stale = facts(9, ConditionState::True, 1);
    assert_eq!(
        fixture.controller.observe(
            at(fixture.now),
            NodeId(9),
            stale.clone(),
            ObservationSource::Event
        ),
        []
    );
    assert_eq!(fixture.taints(9).len(), 1, "older than our own write");
    stale.version = 3;
    let listed =
        fixture.controller.observe(at(fixture.now), NodeId(9), stale, ObservationSource::List);
    assert_eq!(listed, []);
    assert_eq!(fixture.taints(9).len(), 0, "a list is true, even from a restored store");
}

#[test]
fn a_taint_removed_by_hand_comes_back_with_the_next_token() {
    let mut fixture = four();
    fixture.see(9, facts(2, ConditionState::False, 2));
    fixture.tick();
    assert!(fixture.no_execute_tainted(9));
    fixture.see(9, facts(fixture.version + 1, ConditionState::False, 2));
    fixture.pass(5, &OTHERS);
    assert!(!fixture.no_execute_tainted(9));
    fixture.pass(6, &OTHERS);
    assert!(fixture.no_execute_tainted(9));
}

#[test]
fn labels_are_set_once() {
    let mut fixture = four();
    let mut node = facts(2, ConditionState::True, 1);
    node.label_fixes = vec![("beta.kubernetes.io/os".into(), "linux".into())];
    fixture.see(9, node);
    let sets =
        fixture.log.iter().filter(|it| matches!(it, LifecycleAction::SetLabels { .. })).count();
    assert_eq!(sets, 1);
}

#[test]
fn a_node_that_moves_or_goes_leaves_its_zone() {
    let mut fixture = four();
    fixture.see(9, in_zone(facts(2, ConditionState::False, 2), "b"));
    let old = fixture.controller.zone_of(NodeId(1)).expect("known");
    let new = fixture.controller.zone_of(NodeId(9)).expect("known");
    let size = |fixture: &LifecycleFixture, zone| {
        fixture.controller.zones().get(zone).map(crate::zones::Zone::size)
    };
    assert_eq!((size(&fixture, old), size(&fixture, new)), (Some(3), Some(1)));
    let mut hidden = in_zone(facts(fixture.version + 1, ConditionState::False, 2), "b");
    hidden.excluded = true;
    fixture.see(9, hidden);
    assert_eq!(size(&fixture, new), Some(0), "excluded from the count");
    assert_eq!(
        fixture.controller.forget(NodeId(9)),
        [LifecycleAction::EmitEvent { node: NodeId(9), event: NodeHealthEvent::Removing }]
    );
    assert_eq!(fixture.controller.forget(NodeId(9)), []);
    assert!(fixture.controller.queue().is_empty());
    fixture.pass(100, &OTHERS);
}

#[test]
fn a_restarted_controller_spends_no_second_token() {
    let mut fixture = LifecycleFixture::new();
    let mut tainted = facts(1, ConditionState::Unknown, 1);
    let added = Some(at(fixture.now - 3).stamp());
    tainted.taints = vec![
        Taint::new(TaintKey::Unreachable, TaintEffect::NoSchedule, added),
        Taint::new(TaintKey::Unreachable, TaintEffect::NoExecute, added),
    ];
    fixture.see(8, tainted);
    fixture.see(9, facts(1, ConditionState::Unknown, 1));
    fixture.see(1, facts(1, ConditionState::True, 1));
    fixture.tick();
    assert!(!fixture.no_execute_tainted(9));
    fixture.pass(6, &[1]);
    assert!(!fixture.no_execute_tainted(9));
    fixture.pass(1, &[1]);
    assert!(fixture.no_execute_tainted(9), "ten seconds after the predecessor's");
}
