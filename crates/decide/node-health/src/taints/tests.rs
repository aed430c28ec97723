//! One row per condition, and per way a NoExecute taint comes and goes; others' taints stay.

use proptest::prelude::*;

use super::*;
use crate::facts::NodeConditionFacts;
use crate::time::RemoteTime;
use crate::zones::ZoneKey;

const NOW: ControllerTime = ControllerTime::from_secs(1_000);

fn facts(conditions: &[(ConditionKind, ConditionState)], taints: Vec<Taint>) -> NodeHealthFacts {
    let mut known = Conditions::default();
    let old = RemoteTime::from_nanos(1);
    for (kind, status) in conditions {
        known.set(
            *kind,
            Some(NodeConditionFacts { status: *status, heartbeat: old, transition: old }),
        );
    }
    NodeHealthFacts {
        created: old,
        version: 1,
        conditions: known,
        taints,
        unschedulable: false,
        zone: ZoneKey::default(),
        excluded: false,
        label_fixes: Vec::new(),
    }
}

fn old(key: TaintKey, effect: TaintEffect) -> Taint {
    Taint::new(key, effect, Some(RemoteTime::from_nanos(5)))
}

#[test]
fn each_condition_has_its_no_schedule_taint() {
    use ConditionKind as Kind;
    let rows: [(Kind, ConditionState, Option<TaintKey>); 15] = [
        (Kind::Ready, ConditionState::True, None),
        (Kind::Ready, ConditionState::False, Some(TaintKey::NotReady)),
        (Kind::Ready, ConditionState::Unknown, Some(TaintKey::Unreachable)),
        (Kind::MemoryPressure, ConditionState::True, Some(TaintKey::MemoryPressure)),
        (Kind::MemoryPressure, ConditionState::False, None),
        (Kind::MemoryPressure, ConditionState::Unknown, None),
        (Kind::DiskPressure, ConditionState::True, Some(TaintKey::DiskPressure)),
        (Kind::DiskPressure, ConditionState::False, None),
        (Kind::DiskPressure, ConditionState::Unknown, None),
        (Kind::PidPressure, ConditionState::True, Some(TaintKey::PidPressure)),
        (Kind::PidPressure, ConditionState::False, None),
        (Kind::PidPressure, ConditionState::Unknown, None),
        (Kind::NetworkUnavailable, ConditionState::True, Some(TaintKey::NetworkUnavailable)),
        (Kind::NetworkUnavailable, ConditionState::False, None),
        (Kind::NetworkUnavailable, ConditionState::Unknown, None),
    ];
    for (kind, status, expected) in rows {
        let bare = facts(&[(kind, status)], Vec::new());
        let added: Vec<_> =
            no_schedule(&bare, NOW).add.into_iter().map(|taint| taint.key).collect();
        assert_eq!(added, expected.clone().into_iter().collect::<Vec<_>>(), "{kind:?} {status:?}");
        for key in TaintKey::parse_all_ours() {
            let carrying =
                facts(&[(kind, status)], vec![old(key.clone(), TaintEffect::NoSchedule)]);
            let goes = !no_schedule(&carrying, NOW).remove.is_empty();
            assert_eq!(goes, expected.as_ref() != Some(&key), "{kind:?} {status:?} {key:?}");
        }
    }
}

impl TaintKey {
    fn parse_all_ours() -> Vec<Self> {
        [
            "not-ready",
            "unreachable",
            "memory-pressure",
            "disk-pressure",
            "pid-pressure",
            "network-unavailable",
            "unschedulable",
        ]
        .map(|name| Self::parse(&format!("node.kubernetes.io/{name}")))
        .into()
    }
}

#[test]
fn cordoning_has_its_taint_and_times_are_ours() {
    let mut node = facts(&[], Vec::new());
    node.unschedulable = true;
    let patch = no_schedule(&node, NOW);
    assert_eq!(
        patch.add,
        [Taint::new(TaintKey::Unschedulable, TaintEffect::NoSchedule, Some(NOW.stamp()))]
    );
    node.taints = patch.apply(&node.taints);
    assert!(no_schedule(&node, NOW).is_empty(), "quiet once done");
    node.unschedulable = false;
    assert_eq!(
        no_schedule(&node, NOW).remove,
        [(TaintKey::Unschedulable, TaintEffect::NoSchedule)]
    );
}

#[test]
fn foreign_taints_and_other_effects_stay() {
    let kept = vec![
        old(TaintKey::Other("example.com/gpu".into()), TaintEffect::NoSchedule),
        old(TaintKey::NotReady, TaintEffect::PreferNoSchedule),
        old(TaintKey::MemoryPressure, TaintEffect::NoExecute),
        old(TaintKey::OutOfService, TaintEffect::NoExecute),
        old(TaintKey::CloudShutdown, TaintEffect::NoSchedule),
    ];
    let node = facts(&[(ConditionKind::Ready, ConditionState::True)], kept);
    assert!(no_schedule(&node, NOW).is_empty());
    assert_eq!(no_execute(&node, false, NOW), NoExecuteChange::Settled);
    assert_eq!(no_execute(&node, true, NOW), NoExecuteChange::Settled);
}

#[test]
fn the_lost_pair() {
    use NoExecuteChange::{Now, Settled, Wait};
    let effect = TaintEffect::NoExecute;
    let one = |key: TaintKey| vec![old(key, effect)];
    let both = || vec![old(TaintKey::NotReady, effect), old(TaintKey::Unreachable, effect)];
    let patch = |add: Option<TaintKey>, remove: &[TaintKey]| {
        let add = add.map(|key| Taint::new(key, effect, Some(NOW.stamp()))).into_iter().collect();
        Now(TaintPatch { add, remove: remove.iter().map(|key| (key.clone(), effect)).collect() })
    };
    let (gone, out) = (TaintKey::Unreachable, TaintKey::NotReady);
    let rows = [
        ("nothing known", None, vec![], false, Settled),
        ("nothing known, tainted", None, one(gone.clone()), false, Settled),
        ("ready", Some(ConditionState::True), vec![], false, Settled),
        (
            "ready again",
            Some(ConditionState::True),
            one(gone.clone()),
            false,
            patch(None, std::slice::from_ref(&gone)),
        ),
        (
            "ready, both",
            Some(ConditionState::True),
            both(),
            false,
            patch(None, &[out.clone(), gone.clone()]),
        ),
        ("falls", Some(ConditionState::Unknown), vec![], false, Wait),
        ("says so itself", Some(ConditionState::False), vec![], false, Wait),
        ("stays", Some(ConditionState::Unknown), one(gone.clone()), false, Settled),
        ("stays too", Some(ConditionState::False), one(out.clone()), false, Settled),
        (
            "falls silent",
            Some(ConditionState::Unknown),
            one(out.clone()),
            false,
            patch(Some(gone.clone()), std::slice::from_ref(&out)),
        ),
        (
            "speaks again",
            Some(ConditionState::False),
            one(gone.clone()),
            false,
            patch(Some(out.clone()), std::slice::from_ref(&gone)),
        ),
        ("both of the pair", Some(ConditionState::Unknown), both(), false, patch(None, &[out])),
        ("blackout", Some(ConditionState::Unknown), vec![], true, Settled),
        (
            "blackout clears",
            Some(ConditionState::Unknown),
            one(gone.clone()),
            true,
            patch(None, &[gone]),
        ),
    ];
    for (name, ready, taints, blackout, expected) in rows {
        let conditions: Vec<_> =
            ready.map(|status| (ConditionKind::Ready, status)).into_iter().collect();
        assert_eq!(no_execute(&facts(&conditions, taints), blackout, NOW), expected, "{name}");
    }
}

#[test]
fn a_token_is_spent_only_on_a_node_that_still_needs_it() {
    let key = |ready| {
        let node = facts(&[(ConditionKind::Ready, ready)], Vec::new());
        eviction_patch(&node, NOW).map(|patch| (patch.evicts(), patch.add[0].key.clone()))
    };
    assert_eq!(key(ConditionState::Unknown), Some((true, TaintKey::Unreachable)));
    assert_eq!(key(ConditionState::False), Some((true, TaintKey::NotReady)));
    assert_eq!(key(ConditionState::True), None);
    assert_eq!(eviction_patch(&facts(&[], Vec::new()), NOW), None);
}

#[test]
fn platform_labels_follow() {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    type LabelCase = &'static [(&'static str, &'static str)];
    let rows: [(LabelCase, LabelCase); 5] = [
        (&[], &[]),
        (&[("beta.kubernetes.io/os", "linux")], &[]),
        (&[("kubernetes.io/os", "linux")], &[("beta.kubernetes.io/os", "linux")]),
        (
            &[("kubernetes.io/arch", "arm64"), ("beta.kubernetes.io/arch", "amd64")],
            &[("beta.kubernetes.io/arch", "arm64")],
        ),
        (&[("kubernetes.io/os", "linux"), ("beta.kubernetes.io/os", "linux")], &[]),
    ];
    for (have, expected) in rows {
        let expected: Vec<(Box<str>, Box<str>)> =
            expected.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        assert_eq!(mirrored_labels(&labels(have)), expected, "{have:?}");
    }
}

fn any_taint() -> impl Strategy<Value = Taint> {
    let keys = prop_oneof![
        Just(TaintKey::NotReady),
        Just(TaintKey::Unreachable),
        Just(TaintKey::MemoryPressure),
        Just(TaintKey::Unschedulable),
        Just(TaintKey::OutOfService),
        Just(TaintKey::Other("example.com/a".into())),
    ];
    let effects = prop_oneof![
        Just(TaintEffect::NoSchedule),
        Just(TaintEffect::PreferNoSchedule),
        Just(TaintEffect::NoExecute),
    ];
    (keys, effects).prop_map(|(key, effect)| old(key, effect))
}

proptest! {
    #[test]
    fn patches_converge_and_keep_what_is_not_ours(
        taints in proptest::collection::vec(any_taint(), 0..8),
        status in prop_oneof![Just(ConditionState::True), Just(ConditionState::False), Just(ConditionState::Unknown)],
        blackout: bool,
    ) {
        let mut node = facts(&[(ConditionKind::Ready, status)], taints.clone());
        let mut patch = no_schedule(&node, NOW);
        if let NoExecuteChange::Now(more) = no_execute(&node, blackout, NOW) {
            patch = patch.and(more);
        }
        node.taints = patch.apply(&node.taints);
        prop_assert!(no_schedule(&node, NOW).is_empty());
        prop_assert!(!matches!(no_execute(&node, blackout, NOW), NoExecuteChange::Now(_)));
        let ours = |taint: &Taint| match taint.effect {
            TaintEffect::NoSchedule => is_condition_taint(&taint.key),
            TaintEffect::NoExecute => taint.key.means_lost(),
            TaintEffect::PreferNoSchedule => false,
        };
        let foreign = |taint: &&Taint| !ours(taint);
        let before: Vec<_> = taints.iter().filter(foreign).collect();
        let after: Vec<_> = node.taints.iter().filter(foreign).collect();
        prop_assert_eq!(before, after);
        let lost = node.taints.iter().filter(|taint| taint.key.means_lost()
            && taint.effect == TaintEffect::NoExecute);
        let kinds: std::collections::BTreeSet<_> = lost.map(|taint| &taint.key).collect();
        prop_assert!(kinds.len() <= 1);
    }
}
