//! Every operator, every bound of a deadline, and the deadlines after a restart.

use proptest::prelude::*;

use super::*;
use crate::facts::TaintKey;

const NODE: NodeId = NodeId(1);
const POD: PodId = PodId(1);

/// A node that is not ready, with these taints.
fn node(taints: &[Taint]) -> NodeHealthFacts {
    NodeHealthFacts {
        created: RemoteTime::from_nanos(0),
        version: 1,
        conditions: crate::facts::Conditions::default(),
        taints: taints.to_vec(),
        unschedulable: false,
        zone: crate::zones::ZoneKey::default(),
        excluded: false,
        label_fixes: Vec::new(),
    }
}

/// A view that is settled and proven up to this time.
fn proven(seconds: i64) -> ObservationClock {
    let mut observation_clock = ObservationClock::new(Duration::from_secs(10), Duration::ZERO);
    observation_clock.observed_through(at(seconds));
    observation_clock
}

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn taint(key: TaintKey, added: Option<i64>) -> Taint {
    Taint::new(key, TaintEffect::NoExecute, added.map(|seconds| at(seconds).stamp()))
}

fn lost(added: i64) -> Taint {
    taint(TaintKey::Unreachable, Some(added))
}

fn with_tolerations(key: Option<TaintKey>, seconds: Option<i64>) -> Toleration {
    Toleration { key, operator: Operator::Exists, value: "".into(), effect: None, seconds }
}

fn pod(tolerations: &[Toleration], bound: Option<i64>) -> BoundPod<'_> {
    BoundPod { pod: POD, tolerations, bound: bound.map(at), terminating: false }
}

#[test]
fn operators() {
    let valued = |value: &str| {
        let mut taint = taint(TaintKey::parse("a"), None);
        taint.value = value.into();
        taint
    };
    let own = |operator: &str, value: &str| Toleration {
        key: Some(TaintKey::parse("a")),
        operator: Operator::parse(operator),
        value: value.into(),
        effect: Some(TaintEffect::NoExecute),
        seconds: None,
    };
    let rows = [
        ("", "x", "x", true),
        ("Equal", "x", "x", true),
        ("Equal", "x", "y", false),
        ("Exists", "x", "y", true),
        ("exists", "x", "x", false),
        ("Lt", "10", "9", true),
        ("Lt", "10", "10", false),
        ("Lt", "10", "11", false),
        ("Gt", "10", "11", true),
        ("Gt", "10", "10", false),
        ("Gt", "-3", "-2", true),
        ("Gt", "1", "007", false),
        ("Gt", "-0", "1", false),
        ("Gt", "+1", "2", false),
        ("Lt", "", "1", false),
        ("Lt", "99999999999999999999", "1", false),
    ];
    for (operator, value, taint_value, expected) in rows {
        let toleration = own(operator, value);
        let taint = valued(taint_value);
        assert_eq!(
            toleration.tolerates(&taint, true),
            expected,
            "{operator} {value} {taint_value}"
        );
        let needs_gate = matches!(operator, "Lt" | "Gt");
        assert_eq!(
            toleration.tolerates(&taint, false),
            expected && !needs_gate,
            "gate off: {operator}"
        );
    }
}

#[test]
fn keys_and_effects() {
    let any = with_tolerations(None, None);
    assert!(any.tolerates(&lost(0), false));
    let other_key = with_tolerations(Some(TaintKey::NotReady), None);
    assert!(!other_key.tolerates(&lost(0), false));
    let mut other_effect = with_tolerations(Some(TaintKey::Unreachable), None);
    assert!(other_effect.tolerates(&lost(0), false));
    other_effect.effect = Some(TaintEffect::NoSchedule);
    assert!(!other_effect.tolerates(&lost(0), false));
}

/// Name, taints, tolerations, binding time, decision.
type VerdictRow<'a> =
    (&'a str, &'a [NoExecuteTaint], Vec<Toleration>, Option<i64>, EvictionDecision);
/// Name, observations with their times, the deadline.
type StartRow = (&'static str, Vec<(i64, Option<Taint>)>, Option<i64>);

#[test]
fn a_pod_is_evicted_by_its_shortest_toleration() {
    use EvictionDecision::{EvictAt, EvictNow, Keep};
    let no_execute_taint = |key: &TaintKey, since| NoExecuteTaint {
        taint: taint(key.clone(), None),
        since: at(since),
    };
    let (a, b) = (TaintKey::parse("a"), TaintKey::parse("b"));
    let one = [no_execute_taint(&a, 100)];
    let two = [no_execute_taint(&a, 100), no_execute_taint(&b, 200)];
    let rows: Vec<VerdictRow<'_>> = vec![
        ("no taints", &[], vec![], None, Keep),
        ("nothing borne", &one, vec![], None, EvictNow),
        ("borne for ever", &one, vec![with_tolerations(None, None)], None, Keep),
        ("borne for a time", &one, vec![with_tolerations(None, Some(300))], None, EvictAt(at(400))),
        ("no time at all", &one, vec![with_tolerations(None, Some(0))], None, EvictAt(at(100))),
        ("less than none", &one, vec![with_tolerations(None, Some(-5))], None, EvictAt(at(100))),
        (
            "first match counts",
            &one,
            vec![with_tolerations(None, Some(5)), with_tolerations(None, None)],
            None,
            EvictAt(at(105)),
        ),
        (
            "one of two not borne",
            &two,
            vec![with_tolerations(Some(a.clone()), None)],
            None,
            EvictNow,
        ),
        (
            "the earlier of two",
            &two,
            vec![
                with_tolerations(Some(a.clone()), Some(300)),
                with_tolerations(Some(b.clone()), Some(50)),
            ],
            None,
            EvictAt(at(250)),
        ),
        (
            "one for ever",
            &two,
            vec![with_tolerations(Some(a.clone()), None), with_tolerations(Some(b), Some(50))],
            None,
            EvictAt(at(250)),
        ),
        ("bound later", &one, vec![with_tolerations(None, Some(300))], Some(150), EvictAt(at(450))),
        ("bound before", &one, vec![with_tolerations(None, Some(300))], Some(50), EvictAt(at(400))),
        (
            "absurdly long",
            &one,
            vec![with_tolerations(None, Some(i64::MAX))],
            None,
            EvictAt(ControllerTime::from_nanos(i64::MAX)),
        ),
    ];
    for (name, no_execute_taints, tolerations, bound, expected) in rows {
        assert_eq!(
            decide_eviction(no_execute_taints, &pod(&tolerations, bound), false),
            expected,
            "{name}"
        );
    }
}

#[test]
fn when_a_pod_was_bound() {
    let rows = [
        ("as it says", Some(50), None, Some(50)),
        ("not before it says so", Some(50), Some(60), Some(50)),
        ("ahead of us: when we first saw it", Some(9_999), None, Some(200)),
        ("and still then at the next sight", Some(9_999), Some(120), Some(120)),
        ("said later than it was seen", Some(150), Some(120), Some(120)),
        ("says nothing", None, None, None),
        ("says nothing any more", None, Some(120), Some(120)),
    ];
    for (name, claimed, known, expected) in rows {
        let claimed = claimed.map(|seconds| at(seconds).stamp());
        assert_eq!(bound_at(claimed, known.map(at), at(200)), expected.map(at), "{name}");
    }
}

/// The binding is on a clock that is days ahead of ours, for as long as we run.
#[test]
fn a_binding_ahead_of_us_does_not_move_the_deadline() {
    let bearing = [with_tolerations(None, Some(300))];
    let claimed = Some(at(300_000).stamp());
    let mut evictions = Evictions::new(false);
    let mut bound = None;
    for second in [100, 150, 250, 399] {
        bound = bound_at(claimed, bound, at(second));
        let facts = BoundPod { bound, ..pod(&bearing, None) };
        evictions.observe_node(at(second), NODE, &node(&[lost(100)]), [facts]);
        assert_eq!(evictions.deadline(POD), Some(at(400)), "seen at {second}");
    }
    assert_eq!(evictions.due(at(400), &proven(400)), [PodAction::Delete(POD)]);
}

/// Deadline of a pod that tolerates everything for 300 s, after these observations of the node.
fn deadline(sights: &[(i64, Option<Taint>)]) -> Option<ControllerTime> {
    let bearing = [with_tolerations(None, Some(300))];
    let mut evictions = Evictions::new(false);
    for (instant, taint) in sights {
        evictions.observe_node(at(*instant), NODE, &node(taint.as_slice()), [pod(&bearing, None)]);
    }
    evictions.deadline(POD)
}

#[test]
fn where_the_time_starts() {
    let unstamped = || Some(taint(TaintKey::Unreachable, None));
    let twin = |added| Some(taint(TaintKey::NotReady, Some(added)));
    let rows: Vec<StartRow> = vec![
        ("from timeAdded", vec![(110, Some(lost(100)))], Some(400)),
        ("a restart finds the same", vec![(250, Some(lost(100)))], Some(400)),
        ("long over after a restart", vec![(9_000, Some(lost(100)))], Some(400)),
        ("else from first sight", vec![(110, unstamped()), (150, unstamped())], Some(410)),
        ("a stamp ahead of us is cut", vec![(110, Some(lost(99_999)))], Some(410)),
        (
            "a stamp from before we saw it clean is cut",
            vec![(90, None), (110, Some(lost(-5_000)))],
            Some(390),
        ),
        ("a swap keeps the time", vec![(110, Some(lost(100))), (200, twin(200))], Some(400)),
        ("seen again, unchanged", vec![(110, Some(lost(100))), (300, Some(lost(100)))], Some(400)),
        (
            "gone and back while nobody looked",
            vec![(110, Some(lost(100))), (300, Some(lost(250)))],
            Some(550),
        ),
        (
            "the same by a clock that is far behind: not before it was last seen",
            vec![(110, Some(lost(100))), (300, Some(lost(-5_000)))],
            Some(410),
        ),
        (
            "back without a date: from its first sight",
            vec![(110, Some(lost(100))), (300, unstamped())],
            Some(600),
        ),
        (
            "a swap, and then the other one anew",
            vec![(110, Some(lost(100))), (200, twin(200)), (300, twin(260))],
            Some(560),
        ),
        ("gone", vec![(110, Some(lost(100))), (120, None)], None),
        (
            "gone and back",
            vec![(110, Some(lost(100))), (120, None), (130, Some(lost(130)))],
            Some(430),
        ),
    ];
    for (name, sights, expected) in rows {
        assert_eq!(deadline(&sights), expected.map(at), "{name}");
    }
}

/// We know our own taint to the nanosecond before the API server shows it, cut to the second.
#[test]
fn a_date_without_its_fraction_is_the_same() {
    let bearing = [with_tolerations(None, Some(300))];
    let mut evictions = Evictions::new(false);
    let mut own = lost(100);
    own.added = Some(at(100).after(Duration::from_millis(999)).stamp());
    evictions.observe_node(at(101), NODE, &node(&[own]), [pod(&bearing, None)]);
    let due = evictions.deadline(POD);
    evictions.observe_node(at(102), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    assert_eq!(evictions.deadline(POD), due);
    evictions.observe_node(at(103), NODE, &node(&[lost(99)]), [pod(&bearing, None)]);
    assert_ne!(evictions.deadline(POD), due, "a second is more than a fraction");
}

#[test]
fn deleting_waits_for_the_deadline_and_for_the_proof() {
    let bearing = [with_tolerations(None, Some(300))];
    let mut evictions = Evictions::new(false);
    evictions.observe_node(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    assert_eq!(evictions.next_wake(), Some(at(400)));
    assert_eq!(evictions.due(at(399), &proven(399)), []);
    assert_eq!(
        evictions.due(at(405), &proven(399)),
        [],
        "we do not know that the taint is still there"
    );
    assert_eq!(evictions.due(at(411), &proven(400)), [], "too long ago to act on");
    let mut unsettled = ObservationClock::new(Duration::from_secs(10), Duration::from_secs(15));
    unsettled.observed_through(at(400));
    assert_eq!(evictions.due(at(405), &unsettled), [], "we have only just come");
    assert_eq!(evictions.due(at(405), &proven(400)), [PodAction::Delete(POD)]);
    assert_eq!(evictions.due(at(900), &proven(900)), [], "once");
    evictions.delete_failed(NODE, POD, at(510));
    assert_eq!(evictions.due(at(510), &proven(510)), [PodAction::Delete(POD)]);
}

#[test]
fn a_quiet_node_was_clean_for_as_long_as_we_looked() {
    let bearing = [with_tolerations(None, Some(300))];
    let mut evictions = Evictions::new(false);
    evictions.confirm_untainted(NODE, at(50));
    evictions.observe_node(at(100), NODE, &node(&[]), [pod(&bearing, None)]);
    evictions.confirm_untainted(NODE, at(90));
    evictions.confirm_untainted(NODE, at(5_000));
    // The clock that dated this taint is more than an hour behind.
    evictions.observe_node(at(5_001), NODE, &node(&[lost(400)]), [pod(&bearing, None)]);
    assert_eq!(evictions.deadline(POD), Some(at(5_300)));
    evictions.confirm_untainted(NODE, at(5_200));
    evictions.observe_node(at(5_201), NODE, &node(&[lost(400)]), [pod(&bearing, None)]);
    assert_eq!(evictions.deadline(POD), Some(at(5_300)), "one that has them is not clean");
}

#[test]
fn a_failed_deletion_has_one_new_deadline_at_most() {
    let bearing = [with_tolerations(None, Some(300))];
    let mut evictions = Evictions::new(false);
    let tainted = node(&[lost(100)]);
    evictions.observe_node(at(100), NODE, &tainted, [pod(&bearing, None)]);
    assert_eq!(evictions.due(at(405), &proven(405)), [PodAction::Delete(POD)]);
    // While the deletion was in flight the pod was observed again, and has a deadline again.
    evictions.observe_pod(at(406), NODE, &pod(&bearing, None));
    evictions.delete_failed(NODE, POD, at(407));
    assert_eq!(evictions.deadline(POD), Some(at(407)));
    assert_eq!(evictions.due(at(410), &proven(410)), [PodAction::Delete(POD)]);
    assert_eq!(evictions.next_wake(), None, "nothing is left behind");
    // Once no taint evicts it any more it has none.
    evictions.observe_node(at(411), NODE, &node(&[]), [pod(&bearing, None)]);
    evictions.delete_failed(NODE, POD, at(412));
    assert_eq!(evictions.next_wake(), None);
}

#[test]
fn a_pod_without_toleration_is_evicted_at_once_with_one_event() {
    let mut evictions = Evictions::new(false);
    assert_eq!(evictions.observe_node(at(100), NODE, &node(&[lost(100)]), [pod(&[], None)]), []);
    assert_eq!(evictions.due(at(100), &proven(100)), [PodAction::Delete(POD)]);
}

#[test]
fn a_cancellation_event_is_emitted_where_an_eviction_was_due() {
    let bearing = [with_tolerations(None, Some(300))];
    let mut evictions = Evictions::new(false);
    assert_eq!(
        evictions.observe_node(at(1), NODE, &node(&[]), [pod(&bearing, None)]),
        [],
        "nothing was due"
    );
    evictions.observe_node(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    let mut leaving = pod(&bearing, None);
    leaving.terminating = true;
    assert_eq!(
        evictions.observe_pod(at(100), NODE, &leaving),
        [],
        "being deleted is no cancelling"
    );
    assert_eq!(evictions.next_wake(), None);
    evictions.observe_pod(at(100), NODE, &pod(&bearing, None));
    assert!(evictions.deadline(POD).is_some());
    let clean = evictions.observe_node(at(120), NODE, &node(&[]), [pod(&bearing, None)]);
    assert_eq!(clean, [PodAction::EmitCancelled(POD)]);
    evictions.observe_node(at(130), NODE, &node(&[lost(130)]), [pod(&bearing, None)]);
    let for_ever = [with_tolerations(None, None)];
    assert_eq!(
        evictions.observe_pod(at(100), NODE, &pod(&for_ever, None)),
        [PodAction::EmitCancelled(POD)]
    );
}

#[test]
fn deleted_nodes_and_pods_are_removed() {
    let bearing = [with_tolerations(None, Some(300))];
    let mut evictions = Evictions::new(false);
    evictions.observe_node(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    evictions.on_pod_deleted(POD);
    assert_eq!(evictions.next_wake(), None);
    evictions.observe_pod(at(100), NODE, &pod(&bearing, None));
    evictions.on_node_deleted(NodeId(2), [POD]);
    assert_eq!(evictions.next_wake(), Some(at(400)), "it is due on another node");
    evictions.on_node_deleted(NODE, [POD]);
    assert_eq!((evictions.next_wake(), evictions.no_execute_taints(NODE).len()), (None, 0));
    assert_eq!(
        evictions.observe_pod(at(100), NODE, &pod(&bearing, None)),
        [],
        "no taints known, nothing due"
    );
    assert_eq!(evictions.next_wake(), None);
}

#[test]
fn on_a_ready_node_only_foreign_taints_count() {
    let mut ready = node(&[lost(100), taint(TaintKey::parse("a"), Some(100))]);
    let stamp = RemoteTime::from_nanos(1);
    let condition = crate::facts::NodeConditionFacts {
        status: crate::facts::ConditionState::True,
        heartbeat: stamp,
        transition: stamp,
    };
    ready.conditions.set(crate::facts::ConditionKind::Ready, Some(condition));
    let mut evictions = Evictions::new(false);
    evictions.observe_node(at(100), NODE, &ready, []);
    let keys: Vec<_> = evictions
        .no_execute_taints(NODE)
        .iter()
        .map(|no_execute_taint| no_execute_taint.taint.key.as_str())
        .collect();
    assert_eq!(keys, ["a"]);
}

#[test]
fn only_no_execute_counts() {
    let mut taint = lost(100);
    taint.effect = TaintEffect::NoSchedule;
    let mut evictions = Evictions::new(false);
    evictions.observe_node(at(100), NODE, &node(&[taint]), [pod(&[], None)]);
    assert_eq!(evictions.next_wake(), None);
}

#[test]
fn texts() {
    assert_eq!(deletion_message("a/b"), "Marking for deletion Pod a/b");
    assert_eq!(cancel_message("a/b"), "Cancelling deletion of Pod a/b");
    assert_eq!(EVENT_REASON, "TaintManagerEviction");
    assert_eq!(DELETION_BY_TAINT.reason, "DeletionByTaintManager");
    assert_eq!(DELETION_BY_TAINT.message, "Taint manager: deleting due to NoExecute taint");
}

proptest! {
    /// A restart at any time computes the deadline of the first controller.
    #[test]
    fn restarts_do_not_move_deadlines(added in 0_i64..1_000, seen_after in 0_i64..50, restart_after in 0_i64..2_000) {
        let before = deadline(&[(added + seen_after, Some(lost(added)))]);
        let after = deadline(&[(added + seen_after + restart_after, Some(lost(added)))]);
        prop_assert_eq!(before, after);
    }

    /// More taints never let a pod stay longer.
    #[test]
    fn more_taints_never_help(times in proptest::collection::vec((0_i64..100, proptest::option::of(0_i64..100)), 1..6)) {
        let keys: Vec<_> = (0..times.len()).map(|number| TaintKey::parse(&format!("k{number}"))).collect();
        let bearing: Vec<_> = keys.iter().zip(&times)
            .map(|(key, (_, seconds))| with_tolerations(Some(key.clone()), *seconds)).collect();
        let no_execute_taints: Vec<_> = keys.iter().zip(&times)
            .map(|(key, (since, _))| NoExecuteTaint { taint: taint(key.clone(), None), since: at(*since) }).collect();
        let ends = |count: usize| match decide_eviction(&no_execute_taints[..count], &pod(&bearing, None), false) {
            EvictionDecision::EvictAt(instant) => instant,
            EvictionDecision::Keep => ControllerTime::from_nanos(i64::MAX),
            EvictionDecision::EvictNow => ControllerTime::from_nanos(i64::MIN),
        };
        for count in 1..=times.len() {
            prop_assert!(ends(count) <= ends(count - 1));
        }
    }
}

#[test]
fn only_taints_of_lost_nodes_are_each_others_twins() {
    let bearing = [with_tolerations(None, Some(300))];
    let foreign = taint(TaintKey::parse("a"), Some(100));
    for (first, second) in
        [(foreign.clone(), lost(500)), (lost(100), taint(TaintKey::parse("a"), Some(500)))]
    {
        let mut evictions = Evictions::new(false);
        evictions.observe_node(at(100), NODE, &node(&[first]), [pod(&bearing, None)]);
        // The one is gone and the other has come: its own time counts.
        evictions.observe_node(at(500), NODE, &node(&[second]), [pod(&bearing, None)]);
        assert_eq!(evictions.no_execute_taints(NODE)[0].since, at(500));
    }
}

/// Name, tolerations, the taints that are read, whether the node is ready, whether the pod goes.
type ReadRow<'a> = (&'a str, &'a [Toleration], &'a [Taint], bool, bool);

/// A live read is decided with the known start times: a removed taint evicts no pod, whatever else
/// the node has, and an unknown one starts only now.
#[test]
fn a_live_read_decides_as_an_observation_does() {
    let (wide, narrow) = (TaintKey::parse("a"), TaintKey::parse("b"));
    let both = [taint(wide.clone(), Some(100)), taint(narrow.clone(), Some(100))];
    let mut evictions = Evictions::new(false);
    evictions.observe_node(at(100), NODE, &node(&both), []);
    let known = evictions.known(NODE);
    let bearing = [
        with_tolerations(Some(wide.clone()), Some(300)),
        with_tolerations(Some(narrow.clone()), Some(10)),
    ];
    let new = [taint(wide.clone(), Some(100)), taint(TaintKey::NotReady, Some(100))];
    let patient = [
        with_tolerations(Some(wide), Some(300)),
        with_tolerations(Some(TaintKey::NotReady), Some(150)),
    ];
    let rows: [ReadRow<'_>; 6] = [
        ("as it was seen", &bearing, &both, false, true),
        ("the one that it bears for long is left", &bearing, &both[..1], false, false),
        ("the one whose time is over is left", &bearing, &both[1..], false, true),
        ("none is left", &bearing, &[], false, false),
        ("the time of a new one begins when it could have come", &patient, &new, false, false),
        ("a leftover on a ready node", &[], &new[1..], true, false),
    ];
    for (name, tolerations, taints, ready, goes) in rows {
        let no_execute_taints = known.seen(at(200), ready, taints);
        let eviction_decision = decide_eviction(&no_execute_taints, &pod(tolerations, None), false);
        assert_eq!(
            eviction_decision.is_eviction_due(at(200)),
            goes,
            "{name}: {eviction_decision:?}"
        );
    }
}

/// upstream: tainteviction/taint_eviction.go, processPodOnNode and handlePodUpdate
#[test]
fn cancellation_events_follow_upstream() {
    let bearing = [with_tolerations(Some(TaintKey::Unreachable), Some(300))];
    let due_at_400 = || {
        let mut evictions = Evictions::new(false);
        evictions.observe_node(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
        evictions
    };
    let unborne = [lost(100), taint(TaintKey::parse("a"), Some(150))];
    let worse = |evictions: &mut Evictions, now| {
        evictions.observe_node(at(now), NODE, &node(&unborne), [pod(&bearing, None)])
    };
    let cancelled = [PodAction::EmitCancelled(POD)];
    let mut evictions = due_at_400();
    assert_eq!(worse(&mut evictions, 150), cancelled, "due later, and now at once");
    assert_eq!(worse(&mut evictions, 151), [], "at once is not cancelled again");
    assert_eq!(evictions.due(at(151), &proven(151)), [PodAction::Delete(POD)]);
    // A deletion to be retried waits for its retry time, whatever is observed of the pod.
    evictions.delete_failed(NODE, POD, at(181));
    assert_eq!(worse(&mut evictions, 160), []);
    assert_eq!(evictions.deadline(POD), Some(at(181)));
    // Another client deletes it: the event comes when it is gone, unless its own deadline had
    // passed.
    let mut evictions = due_at_400();
    let leaving = BoundPod { terminating: true, ..pod(&bearing, None) };
    assert_eq!(evictions.observe_pod(at(200), NODE, &leaving), []);
    assert_eq!(evictions.next_wake(), None, "nothing is left to do");
    assert_eq!(evictions.on_pod_deleted(POD), Some(at(400)));
    assert_eq!(evictions.on_pod_deleted(POD), None);
    assert_eq!(due_at_400().on_pod_deleted(POD), Some(at(400)));
    // Or earlier, when the taint is removed.
    let mut evictions = due_at_400();
    evictions.observe_pod(at(200), NODE, &leaving);
    assert_eq!(evictions.observe_node(at(210), NODE, &node(&[]), [leaving]), cancelled);
}
