//! The parts together: a node from silence to its taint and back, blackouts, stale views, refused
//! writes, absence of the controller.

use pod_model::TaintEffect;

use super::*;
use crate::facts::{Condition, Conditions, Taint, TaintKey};
use crate::zones::{ZoneKey, ZoneState};

mod falls;
mod room;

fn at(seconds: i64) -> Moment {
    Moment::from_secs(seconds)
}

fn facts(version: u64, ready: Truth, beat: i64) -> NodeFacts {
    let mut conditions = Conditions::default();
    let stamp = Stamp::from_nanos(beat);
    let condition = Condition { status: ready, heartbeat: stamp, transition: stamp };
    conditions.set(ConditionKind::Ready, Some(condition));
    NodeFacts {
        created: Stamp::from_nanos(0),
        version,
        conditions,
        taints: Vec::new(),
        unschedulable: false,
        zone: ZoneKey::default(),
        excluded: false,
        label_fixes: Vec::new(),
    }
}

fn in_zone(mut facts: NodeFacts, zone: &str) -> NodeFacts {
    let labels = [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())].into();
    facts.zone = ZoneKey::from_labels(&labels);
    facts
}

/// A controller, and the cluster that its writes change.
struct Bench {
    controller: NodeLifecycle,
    now: i64,
    version: u64,
    log: Vec<Action>,
    refuse: bool,
    /// The node that refuses taint writes.
    stubborn: Option<u32>,
}

impl Bench {
    fn new() -> Self {
        // Settling has a test of its own.
        let settings = Settings { settling: Duration::ZERO, ..Settings::default() };
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

    fn see(&mut self, node: u32, facts: NodeFacts) {
        self.version = self.version.max(facts.version);
        let actions = self.controller.observe(at(self.now), NodeId(node), facts, Sight::Event);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        let mut todo = std::collections::VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            self.log.push(action.clone());
            let (node, kind) = match &action {
                Action::WriteConditions { node, .. } => (*node, WriteKind::Conditions),
                Action::PatchTaints { node, .. } => (*node, WriteKind::Taints),
                Action::SetLabels { node, .. } => (*node, WriteKind::Labels),
                Action::MarkPodsNotReady { node } => {
                    self.controller.pods_marked(at(self.now), *node, !self.refuse);
                    continue;
                }
                Action::Tell { .. } => continue,
            };
            self.version += 1;
            let stubborn =
                kind == WriteKind::Taints && self.stubborn.is_some_and(|it| NodeId(it) == node);
            let outcome = match self.refuse || stubborn {
                true => Outcome::Failed,
                false => Outcome::Written { version: self.version },
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
                let renewed = Stamp::from_nanos(self.now);
                self.controller.lease_seen(at(self.now), NodeId(*node), renewed);
            }
            self.tick();
        }
    }

    fn ready(&self, node: u32) -> Option<Truth> {
        self.controller.node_ready(NodeId(node))
    }

    fn taints(&self, node: u32) -> Vec<(TaintKey, TaintEffect)> {
        let facts = self.controller.facts(NodeId(node)).expect("known");
        facts.taints.iter().map(|taint| (taint.key.clone(), taint.effect)).collect()
    }

    fn given_up(&self, node: u32) -> bool {
        self.taints(node).iter().any(|(_, effect)| *effect == TaintEffect::NoExecute)
    }

    fn told(&self, node: u32, event: NodeEvent) -> usize {
        let told = Action::Tell { node: NodeId(node), event };
        self.log.iter().filter(|action| **action == told).count()
    }
}

/// Three live nodes and number 9.
fn four() -> Bench {
    let mut bench = Bench::new();
    for node in [1, 2, 3, 9] {
        bench.see(node, facts(1, Truth::True, 1));
    }
    bench.tick();
    bench
}

const OTHERS: [u32; 3] = [1, 2, 3];

#[test]
fn from_silence_to_taint_and_back() {
    let mut bench = four();
    assert_eq!(bench.told(9, NodeEvent::Registered), 1);
    bench.pass(50, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::True), "50 s are within the grace");
    bench.pass(1, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::Unknown));
    assert_eq!(bench.told(9, NodeEvent::NotReady), 1);
    assert!(bench.log.contains(&Action::MarkPodsNotReady { node: NodeId(9) }));
    assert_eq!(
        bench.taints(9),
        [
            (TaintKey::Unreachable, TaintEffect::NoSchedule),
            (TaintKey::Unreachable, TaintEffect::NoExecute)
        ]
    );
    bench.pass(100, &OTHERS);
    let before = bench.log.len();
    let mut back = facts(bench.version + 1, Truth::True, 2);
    back.taints = bench.controller.facts(NodeId(9)).expect("known").taints.clone();
    bench.see(9, back);
    assert_eq!(bench.taints(9), []);
    assert_eq!(bench.log.len(), before + 1, "one patch");
    assert_eq!(bench.told(9, NodeEvent::NotReady), 1);
    bench.pass(51, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::Unknown), "and again");
}

#[test]
fn the_wake_is_exact() {
    let mut bench = four();
    bench.pass(1, &[1, 2, 3, 9]);
    for second in 1..=50 {
        bench.now += 1;
        for node in OTHERS {
            bench.controller.lease_seen(at(bench.now), NodeId(node), Stamp::from_nanos(second));
        }
        bench.tick();
    }
    assert_eq!(bench.ready(9), Some(Truth::True));
    let wake = bench.controller.next_wake().expect("something is due");
    assert_eq!(wake, at(bench.now).after(Duration::from_nanos(1)));
    let actions = bench.controller.tick(wake, wake);
    assert!(matches!(actions[..], [Action::WriteConditions { node: NodeId(9), .. }]));
}

#[test]
fn a_lease_or_a_status_keeps_it_alive() {
    let mut bench = four();
    bench.pass(200, &[1, 2, 3, 9]);
    assert_eq!(bench.ready(9), Some(Truth::True));
    for beat in 2..20 {
        bench.see(9, facts(1, Truth::True, beat));
        bench.pass(40, &OTHERS);
    }
    assert_eq!(bench.ready(9), Some(Truth::True), "by status alone");
    for _ in 0..5 {
        let renewed = Stamp::from_nanos(bench.now);
        bench.controller.lease_read(at(bench.now), NodeId(9), renewed);
        bench.pass(40, &OTHERS);
    }
    assert_eq!(bench.ready(9), Some(Truth::True), "by leases that were read");
    bench.pass(20, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::Unknown), "and by nothing else");
}

#[test]
fn only_one_that_was_given_up_spent_its_zones_turn() {
    let rows = [
        (TaintKey::Unreachable, TaintEffect::NoExecute, true),
        (TaintKey::NotReady, TaintEffect::NoExecute, true),
        (TaintKey::Unreachable, TaintEffect::NoSchedule, false),
        (TaintKey::Other("example.com/busy".into()), TaintEffect::NoExecute, false),
    ];
    for (key, effect, waits) in rows {
        let mut bench = Bench::new();
        for node in OTHERS {
            bench.see(node, facts(1, Truth::True, 1));
        }
        let just_now = Stamp::from_nanos(bench.now * 1_000_000_000);
        let mut tainted = facts(1, Truth::True, 1);
        tainted.taints = vec![Taint::new(key.clone(), effect, Some(just_now))];
        bench.see(8, tainted);
        bench.see(9, facts(1, Truth::False, 1));
        bench.tick();
        assert_eq!(bench.given_up(9), !waits, "{key:?} {effect:?}");
    }
}

#[test]
fn who_says_itself_that_it_is_not_ready_waits_for_a_turn_without_events() {
    let mut bench = four();
    bench.see(9, facts(2, Truth::False, 2));
    assert_eq!(bench.taints(9), [(TaintKey::NotReady, TaintEffect::NoSchedule)]);
    bench.tick();
    assert!(bench.given_up(9));
    assert_eq!(bench.told(9, NodeEvent::NotReady), 0);
    bench.pass(51, &OTHERS);
    assert_eq!(
        bench.taints(9),
        [
            (TaintKey::Unreachable, TaintEffect::NoSchedule),
            (TaintKey::Unreachable, TaintEffect::NoExecute)
        ],
        "swapped at once"
    );
    assert_eq!(bench.told(9, NodeEvent::NotReady), 0, "it was not Ready before");
}

#[test]
fn turns_are_ten_seconds_apart_and_a_partial_zone_gives_none() {
    let mut bench = Bench::new();
    let alive: Vec<u32> = (0..8).collect();
    for node in 0..10 {
        bench.see(node, facts(1, Truth::True, 1));
    }
    bench.tick();
    bench.pass(51, &alive);
    assert_eq!([bench.given_up(8), bench.given_up(9)], [true, false]);
    bench.pass(9, &alive);
    assert!(!bench.given_up(9));
    bench.pass(1, &alive);
    assert!(bench.given_up(9));
    // Four of ten stay alive: six are too many for a zone this small.
    bench.pass(51, &alive[..4]);
    let zone = bench.controller.zone_of(NodeId(0)).expect("known");
    let state = bench.controller.zones().get(zone).map(crate::zones::Zone::state);
    assert_eq!(state, Some(ZoneState::Partial));
    bench.pass(500, &alive[..4]);
    assert_eq!((4..8).filter(|node| bench.given_up(*node)).count(), 0, "all fell within one tick");
    assert_eq!(bench.controller.queue().len(), 4);
    bench.pass(1, &alive);
    for node in 4..8 {
        bench.see(node, facts(bench.version + 1, Truth::True, 7));
    }
    assert_eq!(bench.controller.queue().len(), 0, "who recovers does not wait");
}

#[test]
fn a_blackout_gives_nobody_up_and_forgives() {
    let mut bench = Bench::new();
    for node in 0..6 {
        bench.see(node, in_zone(facts(1, Truth::True, 1), if node < 3 { "a" } else { "b" }));
    }
    bench.tick();
    bench.pass(60, &[3, 4, 5]);
    assert_eq!(
        (0..3).filter(|node| bench.given_up(*node)).count(),
        1,
        "a dark zone beside a bright one"
    );
    bench.pass(60, &[]);
    assert!(bench.controller.zones().in_blackout());
    assert_eq!((0..6).filter(|node| bench.given_up(*node)).count(), 0, "taken back from all");
    bench.pass(500, &[]);
    assert_eq!((0..6).filter(|node| bench.given_up(*node)).count(), 0);
    let back = in_zone(facts(bench.version + 1, Truth::True, 5), "b");
    bench.see(5, back);
    bench.pass(5, &[5]);
    assert!(!bench.controller.zones().in_blackout());
    assert_eq!(
        (0..6).filter(|node| bench.given_up(*node)).count(),
        0,
        "a turn has to be earned first"
    );
    bench.pass(10, &[5]);
    assert_eq!((0..6).filter(|node| bench.given_up(*node)).count(), 2, "one per zone");
}

#[test]
fn the_end_of_a_blackout_starts_all_patience_anew() {
    let mut bench = four();
    bench.refuse = true;
    bench.pass(60, &[]);
    assert!(bench.controller.zones().in_blackout(), "silent, though nothing could be written");
    bench.pass(1, &[1]);
    assert!(!bench.controller.zones().in_blackout());
    assert_eq!(bench.controller.silence(NodeId(9)), Some(Duration::ZERO));
    bench.refuse = false;
    bench.pass(49, &[1]);
    assert_eq!(bench.ready(9), Some(Truth::True));
    bench.pass(2, &[1]);
    assert_eq!(bench.ready(9), Some(Truth::Unknown));
}

#[test]
fn a_controller_that_was_away_or_blind_condemns_nobody_for_it() {
    let mut bench = four();
    bench.pass(5, &[1, 2, 3, 9]);
    bench.now += 3_600;
    bench.tick();
    bench.pass(45, &[]);
    assert_eq!(bench.ready(9), Some(Truth::True), "5 s before, 45 s after");
    bench.pass(10, &[]);
    assert_eq!(bench.ready(9), Some(Truth::Unknown), "silence in sight counts");

    let mut bench = four();
    let proven = at(bench.now);
    for _ in 0..500 {
        bench.now += 1;
        assert_eq!(
            bench.controller.tick(at(bench.now), proven),
            [],
            "stepping, but seeing nothing"
        );
    }
    bench.pass(49, &[]);
    assert_eq!(bench.ready(9), Some(Truth::True));
}

#[test]
fn blind_turns_are_not_given() {
    let mut bench = four();
    bench.see(9, facts(2, Truth::False, 2));
    bench.now += 11;
    let actions = bench.controller.tick(at(bench.now), at(bench.now - 11));
    assert_eq!(actions, [], "a view of 11 s ago gives nobody up");
    bench.tick();
    assert!(bench.given_up(9));
}

#[test]
fn a_refused_write_is_tried_again_and_nothing_follows_before() {
    let mut bench = four();
    bench.refuse = true;
    bench.pass(60, &OTHERS);
    assert_eq!((bench.ready(9), bench.taints(9)), (Some(Truth::True), vec![]));
    let writes = bench.log.iter().filter(|it| matches!(it, Action::WriteConditions { .. })).count();
    assert!(writes > 5, "{writes} tries");
    assert_eq!(bench.told(9, NodeEvent::NotReady), 0);
    bench.refuse = false;
    bench.pass(2, &OTHERS);
    assert!(bench.given_up(9));
    assert_eq!(bench.told(9, NodeEvent::NotReady), 1);
}

#[test]
fn one_write_at_a_time_and_stale_views_are_ignored() {
    let mut bench = four();
    let mut node = facts(2, Truth::True, 1);
    node.unschedulable = true;
    let first = bench.controller.observe(at(bench.now), NodeId(9), node.clone(), Sight::Event);
    assert!(matches!(first[..], [Action::PatchTaints { version: 2, .. }]));
    node.version = 3;
    let second = bench.controller.observe(at(bench.now), NodeId(9), node.clone(), Sight::Event);
    assert_eq!(second, [], "a patch is on its way");
    let outcome = Outcome::Written { version: 10 };
    assert_eq!(bench.controller.written(at(bench.now), NodeId(9), WriteKind::Taints, outcome), []);
    let mut stale = facts(9, Truth::True, 1);
    assert_eq!(bench.controller.observe(at(bench.now), NodeId(9), stale.clone(), Sight::Event), []);
    assert_eq!(bench.taints(9).len(), 1, "older than our own write");
    stale.version = 3;
    let listed = bench.controller.observe(at(bench.now), NodeId(9), stale, Sight::List);
    assert_eq!(listed, []);
    assert_eq!(bench.taints(9).len(), 0, "a list is true, even from a restored store");
}

#[test]
fn a_taint_removed_by_hand_comes_back_in_turn() {
    let mut bench = four();
    bench.see(9, facts(2, Truth::False, 2));
    bench.tick();
    assert!(bench.given_up(9));
    bench.see(9, facts(bench.version + 1, Truth::False, 2));
    bench.pass(5, &OTHERS);
    assert!(!bench.given_up(9));
    bench.pass(6, &OTHERS);
    assert!(bench.given_up(9));
}

#[test]
fn labels_are_set_once() {
    let mut bench = four();
    let mut node = facts(2, Truth::True, 1);
    node.label_fixes = vec![("beta.kubernetes.io/os".into(), "linux".into())];
    bench.see(9, node);
    let sets = bench.log.iter().filter(|it| matches!(it, Action::SetLabels { .. })).count();
    assert_eq!(sets, 1);
}

#[test]
fn a_node_that_moves_or_goes_leaves_its_zone() {
    let mut bench = four();
    bench.see(9, in_zone(facts(2, Truth::False, 2), "b"));
    let old = bench.controller.zone_of(NodeId(1)).expect("known");
    let new = bench.controller.zone_of(NodeId(9)).expect("known");
    let size =
        |bench: &Bench, zone| bench.controller.zones().get(zone).map(crate::zones::Zone::size);
    assert_eq!((size(&bench, old), size(&bench, new)), (Some(3), Some(1)));
    let mut hidden = in_zone(facts(bench.version + 1, Truth::False, 2), "b");
    hidden.excluded = true;
    bench.see(9, hidden);
    assert_eq!(size(&bench, new), Some(0), "excluded from the count");
    assert_eq!(
        bench.controller.forget(NodeId(9)),
        [Action::Tell { node: NodeId(9), event: NodeEvent::Removing }]
    );
    assert_eq!(bench.controller.forget(NodeId(9)), []);
    assert!(bench.controller.queue().is_empty());
    bench.pass(100, &OTHERS);
}

#[test]
fn a_restarted_controller_spends_no_second_turn() {
    let mut bench = Bench::new();
    let mut given_up = facts(1, Truth::Unknown, 1);
    let added = Some(at(bench.now - 3).stamp());
    given_up.taints = vec![
        Taint::new(TaintKey::Unreachable, TaintEffect::NoSchedule, added),
        Taint::new(TaintKey::Unreachable, TaintEffect::NoExecute, added),
    ];
    bench.see(8, given_up);
    bench.see(9, facts(1, Truth::Unknown, 1));
    bench.see(1, facts(1, Truth::True, 1));
    bench.tick();
    assert!(!bench.given_up(9));
    bench.pass(6, &[1]);
    assert!(!bench.given_up(9));
    bench.pass(1, &[1]);
    assert!(bench.given_up(9), "ten seconds after the predecessor's");
}

#[test]
fn after_a_start_and_after_an_absence_nobody_is_given_up_at_once() {
    let mut bench = Bench::new();
    bench.controller = NodeLifecycle::new(Settings::default());
    for node in [1, 2, 3] {
        bench.see(node, facts(1, Truth::True, 1));
    }
    bench.see(9, facts(1, Truth::Unknown, 1));
    bench.tick();
    assert_eq!(bench.controller.next_wake(), Some(at(bench.now + 20)));
    bench.pass(19, &OTHERS);
    assert!(!bench.given_up(9));
    bench.pass(1, &OTHERS);
    assert!(bench.given_up(9));
    bench.see(8, facts(1, Truth::Unknown, 1));
    bench.now += 60;
    bench.tick();
    assert!(!bench.given_up(8), "its turn came while we were away");
    bench.pass(20, &OTHERS);
    assert!(bench.given_up(8));
}

#[test]
fn who_had_used_up_its_patience_may_speak_first_after_an_absence() {
    let mut bench = Bench::new();
    bench.controller = NodeLifecycle::new(Settings::default());
    for node in [1, 2, 3, 9] {
        bench.see(node, facts(1, Truth::True, 1));
    }
    bench.tick();
    bench.pass(50, &OTHERS);
    bench.now += 300;
    bench.tick();
    bench.pass(20, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::True), "not a moment was left to it");
    bench.pass(1, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::Unknown));
}

#[test]
fn a_write_decided_before_an_absence_is_not_the_first_thing_after_it() {
    let mut bench = Bench::new();
    bench.controller = NodeLifecycle::new(Settings::default());
    for node in [1, 2, 3, 9] {
        bench.see(node, facts(1, Truth::True, 1));
    }
    bench.tick();
    bench.refuse = true;
    bench.pass(55, &OTHERS);
    let proven = at(bench.now);
    for _ in 0..100 {
        bench.now += 1;
        let actions = bench.controller.tick(at(bench.now), proven);
        bench.carry_out(actions);
    }
    bench.refuse = false;
    bench.pass(19, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::True), "it may speak first");
    assert!(
        bench.controller.next_wake().is_some_and(|wake| wake > at(bench.now)),
        "and is waited for"
    );
    bench.pass(3, &OTHERS);
    assert_eq!(bench.ready(9), Some(Truth::Unknown));
}

#[test]
fn the_first_status_shortens_the_patience() {
    let mut bench = four();
    let mut mute = facts(1, Truth::True, 1);
    mute.conditions = Conditions::default();
    bench.see(8, mute);
    bench.see(8, facts(2, Truth::True, 1));
    bench.pass(51, &[1, 2, 3, 9]);
    assert_eq!(bench.ready(8), Some(Truth::Unknown), "50 s, not 60");
}

#[test]
fn a_swap_waits_for_things_to_settle_and_a_removal_does_not() {
    let mut bench = Bench::new();
    bench.controller = NodeLifecycle::new(Settings::default());
    let wearing = |ready| {
        let mut node = facts(1, ready, 1);
        node.taints = vec![Taint::new(TaintKey::NotReady, TaintEffect::NoExecute, None)];
        node
    };
    for node in [1, 2, 3] {
        bench.see(node, facts(1, Truth::True, 1));
    }
    bench.see(8, wearing(Truth::True));
    bench.see(9, wearing(Truth::Unknown));
    assert_eq!(bench.taints(8), []);
    bench.pass(19, &OTHERS);
    let lost = |key| (key, TaintEffect::NoExecute);
    assert!(bench.taints(9).contains(&lost(TaintKey::NotReady)));
    bench.pass(2, &OTHERS);
    assert!(bench.taints(9).contains(&lost(TaintKey::Unreachable)));
}

/// The memory of a node for its lifetime, without what its own lists allocate.
#[test]
fn a_node_takes_few_bytes() {
    let size = size_of::<Record>();
    assert!(size <= 416, "{size} bytes");
}
