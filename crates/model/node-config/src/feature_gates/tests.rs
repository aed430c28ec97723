//! The gate table against the pinned kubelet's own list, and the rules for requests, case by case.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{FeatureGates, Gate, GateStage, table};
use crate::diagnostic::Diagnostic;

const GOLDEN: &str = include_str!("tests/kubelet-gates.golden");

fn gates_from(pairs: &[(&str, bool)]) -> BTreeMap<String, bool> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn errors(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).map(ToString::to_string).collect()
}

#[test]
fn the_gate_table_matches_the_pinned_kubelet() {
    let ours: Vec<String> = table::GATES
        .iter()
        .map(|spec| {
            let mut dependencies: Vec<&str> =
                spec.dependencies.iter().map(|need| need.name()).collect();
            dependencies.sort_unstable();
            let dependencies = dependencies.join(",");
            format!("{}|{}|{}|{}|{dependencies}", spec.name, spec.stage, spec.default, spec.locked)
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
    let (gates, diagnostics) = FeatureGates::from_map(&BTreeMap::new());
    assert_eq!(diagnostics, []);
    assert_eq!(gates, FeatureGates::default());
    assert!(gates.enabled(Gate::KubeletPSI));
    assert!(gates.enabled(Gate::GracefulNodeShutdown));
    assert!(!gates.enabled(Gate::MemoryQoS));
    assert!(gates.iter().all(|state| state.enabled == state.gate.spec().default && !state.named));
}

#[test]
fn a_request_changes_only_its_gate() {
    let (gates, diagnostics) = FeatureGates::from_map(&gates_from(&[("MemoryQoS", true)]));
    assert_eq!(diagnostics, []);
    for state in gates.iter() {
        let ours = state.gate == Gate::MemoryQoS;
        assert_eq!(state.named, ours, "{}", state.gate);
        assert_eq!(state.enabled, ours || state.gate.spec().default, "{}", state.gate);
    }
    assert_eq!(format!("{gates:?}"), "{MemoryQoS: true}");
}

#[test]
fn unknown_and_locked_gates_are_all_reported() {
    let asked = gates_from(&[("NoSuchGate", true), ("KubeletPSI", false), ("nodeswap", true)]);
    let (_, diagnostics) = FeatureGates::from_map(&asked);
    let found = errors(&diagnostics);
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
        let (gates, diagnostics) = FeatureGates::from_map(&gates_from(&[(name, value)]));
        assert_eq!(diagnostics.len(), 1, "{name}");
        assert!(!diagnostics[0].is_error(), "{name}");
        assert!(diagnostics[0].message.contains(word), "{name}: {}", diagnostics[0].message);
        assert_eq!(Gate::find(name).map(|gate| gates.enabled(gate)), Some(value), "{name}");
    }
}

#[test]
fn groups_reach_their_stage_and_yield_to_names() {
    let asked = gates_from(&[("AllAlpha", true), ("MemoryQoS", false)]);
    let (gates, diagnostics) = FeatureGates::from_map(&asked);
    assert_eq!(errors(&diagnostics), Vec::<String>::new());
    for state in gates.iter() {
        let spec = state.gate.spec();
        let expected = match state.gate {
            Gate::AllAlpha => true,
            Gate::MemoryQoS | Gate::AllBeta => false,
            _ if spec.stage == GateStage::Alpha => true,
            _ => spec.default,
        };
        assert_eq!(state.enabled, expected, "{}", state.gate);
    }

    let (gates, diagnostics) =
        FeatureGates::from_map(&gates_from(&[("AllBeta", false), ("EnvFiles", true)]));
    assert_eq!(errors(&diagnostics), Vec::<String>::new());
    assert!(gates.enabled(Gate::EnvFiles));
    assert!(!gates.enabled(Gate::ContainerCheckpoint));
    assert!(gates.enabled(Gate::KubeletPSI), "stable gates are no beta gates");

    let (gates, _) = FeatureGates::from_map(&gates_from(&[("AllBeta", true)]));
    assert!(gates.enabled(Gate::SELinuxMount) && !gates.enabled(Gate::MemoryQoS));
}

#[test]
fn a_gate_without_its_dependencies_is_an_error() {
    let (_, diagnostics) = FeatureGates::from_map(&gates_from(&[("GracefulNodeShutdown", false)]));
    let found = errors(&diagnostics);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("featureGates.GracefulNodeShutdownBasedOnPodPriority: true: is on")
    );
    assert!(found[0].contains("off: GracefulNodeShutdown;"), "{}", found[0]);
    assert!(found[1].starts_with("featureGates.WindowsGracefulNodeShutdown"));

    let all_off = gates_from(&[
        ("GracefulNodeShutdown", false),
        ("GracefulNodeShutdownBasedOnPodPriority", false),
        ("WindowsGracefulNodeShutdown", false),
    ]);
    assert_eq!(FeatureGates::from_map(&all_off).1, []);
    let lonely = gates_from(&[("ClusterTrustBundleProjection", true)]);
    assert_eq!(errors(&FeatureGates::from_map(&lonely).1).len(), 1);
    // Dependencies are not checked when a request was rejected already.
    let refused = gates_from(&[("ClusterTrustBundleProjection", true), ("KubeletPSI", false)]);
    assert_eq!(errors(&FeatureGates::from_map(&refused).1).len(), 1);
}

proptest! {
    #[test]
    fn accepted_gates_have_the_requested_value(
        asked in proptest::collection::btree_map(
            proptest::sample::select(Gate::all().map(Gate::name).collect::<Vec<_>>()),
            any::<bool>(),
            0..8,
        )
    ) {
        let asked: BTreeMap<String, bool> =
            asked.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let (gates, diagnostics) = FeatureGates::from_map(&asked);
        if !diagnostics.iter().any(Diagnostic::is_error) {
            for (name, value) in &asked {
                prop_assert_eq!(Gate::find(name).map(|gate| gates.enabled(gate)), Some(*value));
            }
            for state in gates.iter().filter(|state| state.enabled) {
                prop_assert!(state.gate.spec().dependencies.iter().all(|need| gates.enabled(*need)));
            }
        }
    }
}
