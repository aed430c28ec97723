//! CPU sets against ordinary sets, and against what the pinned Kubernetes made of the same lists.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::*;

#[test]
fn agrees_with_kubernetes_on_every_golden_line() {
    let mut lines = include_str!("golden.txt").lines();
    assert!(lines.next().is_some_and(|first| first.starts_with("# Kubernetes v1.36.3")));
    let mut checked = 0;
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        match (&fields[1..], CpuSet::parse(fields[0])) {
            (["E"], Err(_)) => {}
            ([size, canonical], Ok(set)) => {
                assert_eq!(set.len().to_string(), *size, "{line}");
                assert_eq!(set.to_string(), *canonical, "{line}");
            }
            (_, ours) => panic!("golden line {line:?}, but here {ours:?}"),
        }
        checked += 1;
    }
    assert!(checked > 600, "only {checked} golden lines");
}

#[test]
fn errors_name_the_cause() {
    let list = || "0,3-1".to_owned();
    assert_eq!(
        CpuSet::parse("0,3-1"),
        Err(CpuSetError::Backwards { list: list(), range: "3-1".into() })
    );
    let not_a_number = |list: &str, part: &str| {
        Err(CpuSetError::NotANumber { list: list.into(), part: part.into() })
    };
    assert_eq!(CpuSet::parse("0,a"), not_a_number("0,a", "a"));
    assert_eq!(CpuSet::parse("-1"), not_a_number("-1", ""));
    assert_eq!(
        CpuSet::parse("0-4294967296"),
        Err(CpuSetError::TooLarge { list: "0-4294967296".into(), part: "4294967296".into() })
    );
}

#[test]
fn the_widest_range_costs_nothing() {
    let all = CpuSet::parse("0-4294967295").unwrap_or_default();
    assert_eq!(all.len() as u64, 1 << 32);
    assert!(all.contains(u32::MAX) && all.contains(0));
    assert_eq!(all.difference(&all), CpuSet::empty());
    assert_eq!(CpuSet::empty().difference(&all), CpuSet::empty());
    assert_eq!(all.difference(&CpuSet::empty()), all);
    assert_eq!(all.difference(&CpuSet::from_iter([5])).to_string(), "0-4,6-4294967295");
}

#[test]
fn documents_hold_it_as_text() {
    let source: StrDeserializer<'_, ValueError> = "3,1-2".into_deserializer();
    let set = CpuSet::deserialize(source);
    assert_eq!(set, Ok(CpuSet::from_iter(1..=3)));
    struct CpuSetDocument(CpuSet);
    impl fmt::Display for CpuSetDocument {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(out)
        }
    }
    assert_eq!(CpuSetDocument(set.unwrap_or_default()).to_string(), "1-3");
}

fn members() -> impl Strategy<Value = BTreeSet<u32>> {
    proptest::collection::btree_set(prop_oneof![0_u32..40, (u32::MAX - 4)..=u32::MAX], 0..25)
}

proptest! {
    #[test]
    fn behaves_like_a_set(one in members(), two in members(), probe in 0_u32..45) {
        let set = |members: &BTreeSet<u32>| members.iter().copied().collect::<CpuSet>();
        let (left, right) = (set(&one), set(&two));
        prop_assert_eq!(left.union(&right), set(&(&one | &two)));
        prop_assert_eq!(left.intersection(&right), set(&(&one & &two)));
        prop_assert_eq!(left.difference(&right), set(&(&one - &two)));
        prop_assert_eq!(left.is_subset(&right), one.is_subset(&two));
        prop_assert_eq!(left.contains(probe), one.contains(&probe));
        prop_assert_eq!(left.len(), one.len());
        prop_assert_eq!(left.iter().collect::<BTreeSet<u32>>(), one);
        prop_assert_eq!(CpuSet::parse(&left.to_string()), Ok(left));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), near in "[-,+0-9 ]{0,40}") {
        for text in [text, near] {
            if let Ok(set) = CpuSet::parse(&text) {
                prop_assert_eq!(CpuSet::parse(&set.to_string()), Ok(set));
            }
        }
    }
}
