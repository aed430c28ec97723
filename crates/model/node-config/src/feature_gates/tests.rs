//! The gate table against the pinned kubelet's own list, and the rules for requests, case by case.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{FeatureGates, Gate, Stage, table};
use crate::problem::Problem;

const GOLDEN: &str = include_str!("tests/kubelet-gates.golden");

fn wishes(pairs: &[(&str, bool)]) -> BTreeMap<String, bool> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn errors(problems: &[Problem]) -> Vec<String> {
    problems.iter().filter(|problem| problem.is_error()).map(ToString::to_string).collect()
}

#[test]
fn the_table_is_what_the_pinned_kubelet_says() {
    let ours: Vec<String> = table::GATES
        .iter()
        .map(|spec| {
            let mut needs: Vec<&str> = spec.needs.iter().map(|need| need.name()).collect();
            needs.sort_unstable();
            let needs = needs.join(",");
            format!("{}|{}|{}|{}|{needs}", spec.name, spec.stage, spec.default, spec.locked)
        })
        .collect();
    let theirs: Vec<&str> = GOLDEN.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(GOLDEN.starts_with("# gates of k8s.io/kubernetes v1.36.3\n"));
    assert_eq!(ours, theirs);
}

#[test]
fn the_table_is_in_the_order_of_words_and_fits_the_bits() {
    assert!(table::GATES.len() <= super::WORDS * 64);
    for (place, spec) in table::GATES.iter().enumerate() {
        assert_eq!(spec.gate as usize, place, "{}", spec.name);
        assert_eq!(Gate::find(spec.name), Some(spec.gate));
    }
    assert!(table::GATES.is_sorted_by_key(|spec| spec.name));
    assert_eq!(Gate::find("kubeletpsi"), None, "case matters");
}

#[test]
fn defaults_are_the_defaults_and_meet_their_needs() {
    let (gates, problems) = FeatureGates::from_map(&BTreeMap::new());
    assert_eq!(problems, []);
    assert_eq!(gates, FeatureGates::default());
    assert!(gates.enabled(Gate::KubeletPSI));
    assert!(gates.enabled(Gate::GracefulNodeShutdown));
    assert!(!gates.enabled(Gate::MemoryQoS));
    assert!(gates.iter().all(|state| state.enabled == state.gate.spec().default && !state.named));
}

#[test]
fn a_wish_changes_its_gate_alone() {
    let (gates, problems) = FeatureGates::from_map(&wishes(&[("MemoryQoS", true)]));
    assert_eq!(problems, []);
    for state in gates.iter() {
        let ours = state.gate == Gate::MemoryQoS;
        assert_eq!(state.named, ours, "{}", state.gate);
        assert_eq!(state.enabled, ours || state.gate.spec().default, "{}", state.gate);
    }
    assert_eq!(format!("{gates:?}"), "{MemoryQoS: true}");
}

#[test]
fn unknown_and_locked_gates_are_all_reported() {
    let asked = wishes(&[("NoSuchGate", true), ("KubeletPSI", false), ("nodeswap", true)]);
    let (_, problems) = FeatureGates::from_map(&asked);
    let found = errors(&problems);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("featureGates.KubeletPSI: false: this gate is locked"));
    assert!(found[1].starts_with("featureGates.NoSuchGate: true: unknown feature gate"));
    assert!(found[2].starts_with("featureGates.nodeswap: true: unknown feature gate"));
}

#[test]
fn locked_stable_and_deprecated_gates_warn_when_set_to_what_they_may_be() {
    for (name, value, word) in [
        ("KubeletPSI", true, "stable"),
        ("CustomCPUCFSQuotaPeriod", false, "stable"),
        ("GitRepoVolumeDriver", false, "deprecated"),
        ("AllowDNSOnlyNodeCSR", true, "deprecated"),
    ] {
        let (gates, problems) = FeatureGates::from_map(&wishes(&[(name, value)]));
        assert_eq!(problems.len(), 1, "{name}");
        assert!(!problems[0].is_error(), "{name}");
        assert!(problems[0].message.contains(word), "{name}: {}", problems[0].message);
        assert_eq!(Gate::find(name).map(|gate| gates.enabled(gate)), Some(value), "{name}");
    }
}

#[test]
fn groups_reach_their_stage_and_yield_to_names() {
    let asked = wishes(&[("AllAlpha", true), ("MemoryQoS", false)]);
    let (gates, problems) = FeatureGates::from_map(&asked);
    assert_eq!(errors(&problems), Vec::<String>::new());
    for state in gates.iter() {
        let spec = state.gate.spec();
        let expected = match state.gate {
            Gate::AllAlpha => true,
            Gate::MemoryQoS | Gate::AllBeta => false,
            _ if spec.stage == Stage::Alpha => true,
            _ => spec.default,
        };
        assert_eq!(state.enabled, expected, "{}", state.gate);
    }

    let (gates, problems) =
        FeatureGates::from_map(&wishes(&[("AllBeta", false), ("EnvFiles", true)]));
    assert_eq!(errors(&problems), Vec::<String>::new());
    assert!(gates.enabled(Gate::EnvFiles));
    assert!(!gates.enabled(Gate::ContainerCheckpoint));
    assert!(gates.enabled(Gate::KubeletPSI), "stable gates are no beta gates");

    let (gates, _) = FeatureGates::from_map(&wishes(&[("AllBeta", true)]));
    assert!(gates.enabled(Gate::SELinuxMount) && !gates.enabled(Gate::MemoryQoS));
}

#[test]
fn a_gate_without_what_it_needs_is_an_error() {
    let (_, problems) = FeatureGates::from_map(&wishes(&[("GracefulNodeShutdown", false)]));
    let found = errors(&problems);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("featureGates.GracefulNodeShutdownBasedOnPodPriority: true: is on")
    );
    assert!(found[0].contains("off: GracefulNodeShutdown;"), "{}", found[0]);
    assert!(found[1].starts_with("featureGates.WindowsGracefulNodeShutdown"));

    let all_off = wishes(&[
        ("GracefulNodeShutdown", false),
        ("GracefulNodeShutdownBasedOnPodPriority", false),
        ("WindowsGracefulNodeShutdown", false),
    ]);
    assert_eq!(FeatureGates::from_map(&all_off).1, []);
    let lonely = wishes(&[("ClusterTrustBundleProjection", true)]);
    assert_eq!(errors(&FeatureGates::from_map(&lonely).1).len(), 1);
    // Dependencies are not checked when a request was rejected already.
    let refused = wishes(&[("ClusterTrustBundleProjection", true), ("KubeletPSI", false)]);
    assert_eq!(errors(&FeatureGates::from_map(&refused).1).len(), 1);
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_what_was_asked_for(
        asked in proptest::collection::btree_map(
            proptest::sample::select(Gate::all().map(Gate::name).collect::<Vec<_>>()),
            any::<bool>(),
            0..8,
        )
    ) {
        let asked: BTreeMap<String, bool> =
            asked.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let (gates, problems) = FeatureGates::from_map(&asked);
        if !problems.iter().any(Problem::is_error) {
            for (name, value) in &asked {
                prop_assert_eq!(Gate::find(name).map(|gate| gates.enabled(gate)), Some(*value));
            }
            for state in gates.iter().filter(|state| state.enabled) {
                prop_assert!(state.gate.spec().needs.iter().all(|need| gates.enabled(*need)));
            }
        }
    }
}
