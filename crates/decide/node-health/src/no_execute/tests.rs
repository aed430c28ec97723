//! Every operator, every bound of a deadline, and the deadlines after a restart.

use proptest::prelude::*;

use super::*;
use crate::facts::TaintKey;

const NODE: NodeId = NodeId(1);
const POD: PodId = PodId(1);

/// A node that is not ready, with these taints.
fn node(taints: &[Taint]) -> NodeFacts {
    NodeFacts {
        created: Stamp::from_nanos(0),
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
fn proven(seconds: i64) -> Attention {
    let mut attention = Attention::new(Duration::from_secs(10), Duration::ZERO);
    attention.look(at(seconds));
    attention
}

fn at(seconds: i64) -> Moment {
    Moment::from_secs(seconds)
}

fn taint(key: TaintKey, added: Option<i64>) -> Taint {
    Taint::new(key, TaintEffect::NoExecute, added.map(|seconds| at(seconds).stamp()))
}

fn lost(added: i64) -> Taint {
    taint(TaintKey::Unreachable, Some(added))
}

fn bears(key: Option<TaintKey>, seconds: Option<i64>) -> Toleration {
    Toleration { key, operator: Operator::Exists, value: "".into(), effect: None, seconds }
}

fn pod(tolerations: &[Toleration], bound: Option<i64>) -> PodFacts<'_> {
    PodFacts { pod: POD, tolerations, bound: bound.map(at), terminating: false }
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
    let any = bears(None, None);
    assert!(any.tolerates(&lost(0), false));
    let other_key = bears(Some(TaintKey::NotReady), None);
    assert!(!other_key.tolerates(&lost(0), false));
    let mut other_effect = bears(Some(TaintKey::Unreachable), None);
    assert!(other_effect.tolerates(&lost(0), false));
    other_effect.effect = Some(TaintEffect::NoSchedule);
    assert!(!other_effect.tolerates(&lost(0), false));
}

/// Name, taints, tolerations, binding time, decision.
type VerdictRow<'a> = (&'a str, &'a [Threat], Vec<Toleration>, Option<i64>, Verdict);
/// Name, observations with their times, the deadline.
type StartRow = (&'static str, Vec<(i64, Option<Taint>)>, Option<i64>);

#[test]
fn when_a_pod_goes() {
    use Verdict::{Goes, GoesNow, Stays};
    let threat =
        |key: &TaintKey, since| Threat { taint: taint(key.clone(), None), since: at(since) };
    let (a, b) = (TaintKey::parse("a"), TaintKey::parse("b"));
    let one = [threat(&a, 100)];
    let two = [threat(&a, 100), threat(&b, 200)];
    let rows: Vec<VerdictRow<'_>> = vec![
        ("no taints", &[], vec![], None, Stays),
        ("nothing borne", &one, vec![], None, GoesNow),
        ("borne for ever", &one, vec![bears(None, None)], None, Stays),
        ("borne for a time", &one, vec![bears(None, Some(300))], None, Goes(at(400))),
        ("no time at all", &one, vec![bears(None, Some(0))], None, Goes(at(100))),
        ("less than none", &one, vec![bears(None, Some(-5))], None, Goes(at(100))),
        (
            "first match counts",
            &one,
            vec![bears(None, Some(5)), bears(None, None)],
            None,
            Goes(at(105)),
        ),
        ("one of two not borne", &two, vec![bears(Some(a.clone()), None)], None, GoesNow),
        (
            "the earlier of two",
            &two,
            vec![bears(Some(a.clone()), Some(300)), bears(Some(b.clone()), Some(50))],
            None,
            Goes(at(250)),
        ),
        (
            "one for ever",
            &two,
            vec![bears(Some(a.clone()), None), bears(Some(b), Some(50))],
            None,
            Goes(at(250)),
        ),
        ("bound later", &one, vec![bears(None, Some(300))], Some(150), Goes(at(450))),
        ("bound before", &one, vec![bears(None, Some(300))], Some(50), Goes(at(400))),
        (
            "absurdly long",
            &one,
            vec![bears(None, Some(i64::MAX))],
            None,
            Goes(Moment::from_nanos(i64::MAX)),
        ),
    ];
    for (name, threats, tolerations, bound, expected) in rows {
        assert_eq!(judge(threats, &pod(&tolerations, bound), false), expected, "{name}");
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
    let bearing = [bears(None, Some(300))];
    let claimed = Some(at(300_000).stamp());
    let mut evictions = Evictions::new(false);
    let mut bound = None;
    for second in [100, 150, 250, 399] {
        bound = bound_at(claimed, bound, at(second));
        let facts = PodFacts { bound, ..pod(&bearing, None) };
        evictions.node_seen(at(second), NODE, &node(&[lost(100)]), [facts]);
        assert_eq!(evictions.deadline(POD), Some(at(400)), "seen at {second}");
    }
    assert_eq!(evictions.due(at(400), &proven(400)), [PodAction::Delete(POD)]);
}

/// Deadline of a pod that tolerates everything for 300 s, after these observations of the node.
fn deadline(sights: &[(i64, Option<Taint>)]) -> Option<Moment> {
    let bearing = [bears(None, Some(300))];
    let mut evictions = Evictions::new(false);
    for (moment, taint) in sights {
        evictions.node_seen(at(*moment), NODE, &node(taint.as_slice()), [pod(&bearing, None)]);
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
    let bearing = [bears(None, Some(300))];
    let mut evictions = Evictions::new(false);
    let mut own = lost(100);
    own.added = Some(at(100).after(Duration::from_millis(999)).stamp());
    evictions.node_seen(at(101), NODE, &node(&[own]), [pod(&bearing, None)]);
    let due = evictions.deadline(POD);
    evictions.node_seen(at(102), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    assert_eq!(evictions.deadline(POD), due);
    evictions.node_seen(at(103), NODE, &node(&[lost(99)]), [pod(&bearing, None)]);
    assert_ne!(evictions.deadline(POD), due, "a second is more than a fraction");
}

#[test]
fn deleting_waits_for_the_deadline_and_for_the_proof() {
    let bearing = [bears(None, Some(300))];
    let mut evictions = Evictions::new(false);
    evictions.node_seen(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    assert_eq!(evictions.next_wake(), Some(at(400)));
    assert_eq!(evictions.due(at(399), &proven(399)), []);
    assert_eq!(
        evictions.due(at(405), &proven(399)),
        [],
        "we do not know that the taint is still there"
    );
    assert_eq!(evictions.due(at(411), &proven(400)), [], "too long ago to act on");
    let mut unsettled = Attention::new(Duration::from_secs(10), Duration::from_secs(15));
    unsettled.look(at(400));
    assert_eq!(evictions.due(at(405), &unsettled), [], "we have only just come");
    assert_eq!(evictions.due(at(405), &proven(400)), [PodAction::Delete(POD)]);
    assert_eq!(evictions.due(at(900), &proven(900)), [], "once");
    evictions.delete_failed(NODE, POD, at(510));
    assert_eq!(evictions.due(at(510), &proven(510)), [PodAction::Delete(POD)]);
}

#[test]
fn a_quiet_node_was_clean_for_as_long_as_we_looked() {
    let bearing = [bears(None, Some(300))];
    let mut evictions = Evictions::new(false);
    evictions.still_clean(NODE, at(50));
    evictions.node_seen(at(100), NODE, &node(&[]), [pod(&bearing, None)]);
    evictions.still_clean(NODE, at(90));
    evictions.still_clean(NODE, at(5_000));
    // The clock that dated this taint is more than an hour behind.
    evictions.node_seen(at(5_001), NODE, &node(&[lost(400)]), [pod(&bearing, None)]);
    assert_eq!(evictions.deadline(POD), Some(at(5_300)));
    evictions.still_clean(NODE, at(5_200));
    evictions.node_seen(at(5_201), NODE, &node(&[lost(400)]), [pod(&bearing, None)]);
    assert_eq!(evictions.deadline(POD), Some(at(5_300)), "one that has them is not clean");
}

#[test]
fn a_failed_deletion_has_one_new_deadline_at_most() {
    let bearing = [bears(None, Some(300))];
    let mut evictions = Evictions::new(false);
    let tainted = node(&[lost(100)]);
    evictions.node_seen(at(100), NODE, &tainted, [pod(&bearing, None)]);
    assert_eq!(evictions.due(at(405), &proven(405)), [PodAction::Delete(POD)]);
    // While the deletion was in flight the pod was observed again, and has a deadline again.
    evictions.pod_seen(at(406), NODE, &pod(&bearing, None));
    evictions.delete_failed(NODE, POD, at(407));
    assert_eq!(evictions.deadline(POD), Some(at(407)));
    assert_eq!(evictions.due(at(410), &proven(410)), [PodAction::Delete(POD)]);
    assert_eq!(evictions.next_wake(), None, "nothing is left behind");
    // Once no taint evicts it any more it has none.
    evictions.node_seen(at(411), NODE, &node(&[]), [pod(&bearing, None)]);
    evictions.delete_failed(NODE, POD, at(412));
    assert_eq!(evictions.next_wake(), None);
}

#[test]
fn who_bears_nothing_goes_at_once_and_is_told_of_once() {
    let mut evictions = Evictions::new(false);
    assert_eq!(evictions.node_seen(at(100), NODE, &node(&[lost(100)]), [pod(&[], None)]), []);
    assert_eq!(evictions.due(at(100), &proven(100)), [PodAction::Delete(POD)]);
}

#[test]
fn cancelling_is_told_where_something_was_due() {
    let bearing = [bears(None, Some(300))];
    let mut evictions = Evictions::new(false);
    assert_eq!(
        evictions.node_seen(at(1), NODE, &node(&[]), [pod(&bearing, None)]),
        [],
        "nothing was due"
    );
    evictions.node_seen(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    let mut leaving = pod(&bearing, None);
    leaving.terminating = true;
    assert_eq!(evictions.pod_seen(at(100), NODE, &leaving), [], "being deleted is no cancelling");
    assert_eq!(evictions.next_wake(), None);
    evictions.pod_seen(at(100), NODE, &pod(&bearing, None));
    assert!(evictions.deadline(POD).is_some());
    let clean = evictions.node_seen(at(120), NODE, &node(&[]), [pod(&bearing, None)]);
    assert_eq!(clean, [PodAction::TellCancelled(POD)]);
    evictions.node_seen(at(130), NODE, &node(&[lost(130)]), [pod(&bearing, None)]);
    let for_ever = [bears(None, None)];
    assert_eq!(
        evictions.pod_seen(at(100), NODE, &pod(&for_ever, None)),
        [PodAction::TellCancelled(POD)]
    );
}

#[test]
fn the_gone_are_forgotten() {
    let bearing = [bears(None, Some(300))];
    let mut evictions = Evictions::new(false);
    evictions.node_seen(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
    evictions.pod_gone(POD);
    assert_eq!(evictions.next_wake(), None);
    evictions.pod_seen(at(100), NODE, &pod(&bearing, None));
    evictions.node_gone(NodeId(2), [POD]);
    assert_eq!(evictions.next_wake(), Some(at(400)), "it is due on another node");
    evictions.node_gone(NODE, [POD]);
    assert_eq!((evictions.next_wake(), evictions.threats(NODE).len()), (None, 0));
    assert_eq!(
        evictions.pod_seen(at(100), NODE, &pod(&bearing, None)),
        [],
        "no taints known, nothing due"
    );
    assert_eq!(evictions.next_wake(), None);
}

#[test]
fn on_a_ready_node_only_foreign_taints_count() {
    let mut ready = node(&[lost(100), taint(TaintKey::parse("a"), Some(100))]);
    let stamp = Stamp::from_nanos(1);
    let condition = crate::facts::Condition {
        status: crate::facts::Truth::True,
        heartbeat: stamp,
        transition: stamp,
    };
    ready.conditions.set(crate::facts::ConditionKind::Ready, Some(condition));
    let mut evictions = Evictions::new(false);
    evictions.node_seen(at(100), NODE, &ready, []);
    let keys: Vec<_> =
        evictions.threats(NODE).iter().map(|threat| threat.taint.key.as_str()).collect();
    assert_eq!(keys, ["a"]);
}

#[test]
fn only_no_execute_counts() {
    let mut taint = lost(100);
    taint.effect = TaintEffect::NoSchedule;
    let mut evictions = Evictions::new(false);
    evictions.node_seen(at(100), NODE, &node(&[taint]), [pod(&[], None)]);
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
            .map(|(key, (_, seconds))| bears(Some(key.clone()), *seconds)).collect();
        let threats: Vec<_> = keys.iter().zip(&times)
            .map(|(key, (since, _))| Threat { taint: taint(key.clone(), None), since: at(*since) }).collect();
        let ends = |count: usize| match judge(&threats[..count], &pod(&bearing, None), false) {
            Verdict::Goes(moment) => moment,
            Verdict::Stays => Moment::from_nanos(i64::MAX),
            Verdict::GoesNow => Moment::from_nanos(i64::MIN),
        };
        for count in 1..=times.len() {
            prop_assert!(ends(count) <= ends(count - 1));
        }
    }
}

#[test]
fn only_taints_of_lost_nodes_are_each_others_twins() {
    let bearing = [bears(None, Some(300))];
    let foreign = taint(TaintKey::parse("a"), Some(100));
    for (first, second) in
        [(foreign.clone(), lost(500)), (lost(100), taint(TaintKey::parse("a"), Some(500)))]
    {
        let mut evictions = Evictions::new(false);
        evictions.node_seen(at(100), NODE, &node(&[first]), [pod(&bearing, None)]);
        // The one is gone and the other has come: its own time counts.
        evictions.node_seen(at(500), NODE, &node(&[second]), [pod(&bearing, None)]);
        assert_eq!(evictions.threats(NODE)[0].since, at(500));
    }
}

/// Name, tolerations, the taints that are read, whether the node is ready, whether the pod goes.
type ReadRow<'a> = (&'a str, &'a [Toleration], &'a [Taint], bool, bool);

/// A live read is decided with the known start times: a removed taint evicts no pod, whatever else
/// the node has, and an unknown one starts only now.
#[test]
fn a_live_read_is_judged_as_a_sight_is() {
    let (wide, narrow) = (TaintKey::parse("a"), TaintKey::parse("b"));
    let both = [taint(wide.clone(), Some(100)), taint(narrow.clone(), Some(100))];
    let mut evictions = Evictions::new(false);
    evictions.node_seen(at(100), NODE, &node(&both), []);
    let known = evictions.known(NODE);
    let bearing = [bears(Some(wide.clone()), Some(300)), bears(Some(narrow.clone()), Some(10))];
    let new = [taint(wide.clone(), Some(100)), taint(TaintKey::NotReady, Some(100))];
    let patient = [bears(Some(wide), Some(300)), bears(Some(TaintKey::NotReady), Some(150))];
    let rows: [ReadRow<'_>; 6] = [
        ("as it was seen", &bearing, &both, false, true),
        ("the one that it bears for long is left", &bearing, &both[..1], false, false),
        ("the one whose time is over is left", &bearing, &both[1..], false, true),
        ("none is left", &bearing, &[], false, false),
        ("the time of a new one begins when it could have come", &patient, &new, false, false),
        ("a leftover on a ready node", &[], &new[1..], true, false),
    ];
    for (name, tolerations, taints, ready, goes) in rows {
        let threats = known.seen(at(200), ready, taints);
        let verdict = judge(&threats, &pod(tolerations, None), false);
        assert_eq!(verdict.has_to_go(at(200)), goes, "{name}: {verdict:?}");
    }
}

/// upstream: tainteviction/taint_eviction.go, processPodOnNode and handlePodUpdate
#[test]
fn what_is_told_as_cancelled() {
    let bearing = [bears(Some(TaintKey::Unreachable), Some(300))];
    let due_at_400 = || {
        let mut evictions = Evictions::new(false);
        evictions.node_seen(at(100), NODE, &node(&[lost(100)]), [pod(&bearing, None)]);
        evictions
    };
    let unborne = [lost(100), taint(TaintKey::parse("a"), Some(150))];
    let worse = |evictions: &mut Evictions, now| {
        evictions.node_seen(at(now), NODE, &node(&unborne), [pod(&bearing, None)])
    };
    let told = [PodAction::TellCancelled(POD)];
    let mut evictions = due_at_400();
    assert_eq!(worse(&mut evictions, 150), told, "due later, and now at once");
    assert_eq!(worse(&mut evictions, 151), [], "at once is not cancelled again");
    assert_eq!(evictions.due(at(151), &proven(151)), [PodAction::Delete(POD)]);
    // A deletion to be retried waits for its retry time, whatever is observed of the pod.
    evictions.delete_failed(NODE, POD, at(181));
    assert_eq!(worse(&mut evictions, 160), []);
    assert_eq!(evictions.deadline(POD), Some(at(181)));
    // Another client deletes it: the event comes when it is gone, unless its own deadline had
    // passed.
    let mut evictions = due_at_400();
    let leaving = PodFacts { terminating: true, ..pod(&bearing, None) };
    assert_eq!(evictions.pod_seen(at(200), NODE, &leaving), []);
    assert_eq!(evictions.next_wake(), None, "nothing is left to do");
    assert_eq!(evictions.pod_gone(POD), Some(at(400)));
    assert_eq!(evictions.pod_gone(POD), None);
    assert_eq!(due_at_400().pod_gone(POD), Some(at(400)));
    // Or earlier, when the taint is removed.
    let mut evictions = due_at_400();
    evictions.pod_seen(at(200), NODE, &leaving);
    assert_eq!(evictions.node_seen(at(210), NODE, &node(&[]), [leaving]), told);
}
