//! Keys round-trip; each condition has its own slot.

use super::*;

#[test]
fn every_key_is_read_back() {
    for (key, name) in TaintKey::NAMED {
        assert_eq!(key.as_str(), name);
        assert_eq!(TaintKey::parse(name), key);
    }
    assert_eq!(TaintKey::parse("example.com/a"), TaintKey::Other("example.com/a".into()));
    assert_eq!(TaintKey::parse("example.com/a").as_str(), "example.com/a");
    let lost: Vec<_> = TaintKey::NAMED.iter().filter(|(key, _)| key.means_lost()).collect();
    assert_eq!(lost.len(), 2);
}

#[test]
fn conditions_do_not_share_a_slot() {
    let mut conditions = Conditions::default();
    let mut names = std::collections::BTreeSet::new();
    for (number, kind) in (1..).zip(ConditionKind::ALL) {
        let stamp = RemoteTime::from_nanos(number);
        conditions.set(
            kind,
            Some(NodeConditionFacts {
                status: ConditionState::True,
                heartbeat: stamp,
                transition: stamp,
            }),
        );
        names.insert(kind.name());
    }
    assert_eq!(names.len(), 5);
    for (number, kind) in (1..).zip(ConditionKind::ALL) {
        assert_eq!(
            conditions.get(kind).map(|it| it.heartbeat),
            Some(RemoteTime::from_nanos(number))
        );
    }
    assert!(conditions.is_ready());
    conditions.set(ConditionKind::Ready, None);
    assert!(!conditions.is_ready());
}
