//! A row for each way to tolerate, or not to.

use super::*;
use crate::admission::{AdmissionDecision, NodeCapacity, admit};

fn taint(key: &str, value: &str, effect: &str) -> NodeTaint {
    NodeTaint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        time_added: None,
    }
}

type KeysAndEffects = &'static [(&'static str, &'static str)];

/// Key, operator, value, effect.
fn pod(tolerations: &[(&str, &str, &str, &str)]) -> Pod {
    let mut pod = Pod::default();
    pod.spec.tolerations = tolerations
        .iter()
        .map(|(key, operator, value, effect)| Toleration {
            key: Box::from(*key),
            operator: TolerationOperator::from_text(operator),
            value: Box::from(*value),
            effect: TolerationEffect::from_text(effect),
            toleration_seconds: None,
        })
        .collect();
    pod
}

#[test]
fn a_toleration_matches_by_effect_key_operator_and_value() {
    let five = taint("k", "5", NO_EXECUTE);
    // (toleration, tolerates, tolerates where numbers are compared)
    let rows = [
        (("k", "Equal", "5", "NoExecute"), true, true),
        (("k", "", "5", ""), true, true),
        (("k", "", "6", ""), false, false),
        (("", "Exists", "", ""), true, true),
        (("k", "Exists", "", "NoExecute"), true, true),
        (("k", "Exists", "", "NoSchedule"), false, false),
        (("other", "Exists", "", ""), false, false),
        (("k", "Odd", "5", ""), false, false),
        (("k", "Lt", "6", ""), false, true),
        (("k", "Lt", "5", ""), false, false),
        (("k", "Gt", "4", ""), false, true),
        (("k", "Gt", "04", ""), false, false),
        (("k", "Gt", "x", ""), false, false),
    ];
    for (toleration, expected, expected_compared) in rows {
        let pod = pod(&[toleration]);
        let taints = [five.clone()];
        assert_eq!(tolerates_all(&pod, &taints, false), expected, "{toleration:?}");
        assert_eq!(tolerates_all(&pod, &taints, true), expected_compared, "{toleration:?}");
    }
}

#[test]
fn only_no_execute_taints_count_and_none_for_a_static_pod() {
    let words = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    let refused = AdmissionDecision::Rejected {
        reason: "TaintToleration".to_owned(),
        message: words.to_owned(),
    };
    let mut of_manifest = pod(&[]);
    of_manifest.metadata.annotations.insert("kubernetes.io/config.source", Box::from("http"));
    let mut of_cluster = pod(&[]);
    of_cluster.metadata.annotations.insert("kubernetes.io/config.source", Box::from("api"));
    let both = pod(&[("a", "Exists", "", ""), ("b", "Exists", "", "NoExecute")]);
    let rows: [(Pod, KeysAndEffects, bool); 8] = [
        (pod(&[]), &[], true),
        (pod(&[]), &[("a", "NoSchedule"), ("b", "PreferNoSchedule")], true),
        (pod(&[]), &[("a", "NoSchedule"), ("b", "NoExecute")], false),
        (of_cluster, &[("a", "NoExecute")], false),
        (of_manifest, &[("a", "NoExecute")], true),
        (both.clone(), &[("a", "NoExecute"), ("b", "NoExecute")], true),
        (both.clone(), &[("a", "NoExecute"), ("c", "NoExecute")], false),
        (both, &[("c", "NoSchedule")], true),
    ];
    for (pod, taints, admitted) in rows {
        let taints = taints.iter().map(|(key, effect)| taint(key, "", effect)).collect();
        let capacity = NodeCapacity { pods: 1, taints, ..NodeCapacity::default() };
        let expected = if admitted { AdmissionDecision::Admitted } else { refused.clone() };
        assert_eq!(admit(&pod, &capacity, &[]), expected, "{:?}", capacity.taints);
    }
}

#[test]
fn any_other_failed_check_comes_before_the_taints() {
    let taints = vec![taint("a", "", NO_EXECUTE)];
    let mut elsewhere = pod(&[]);
    elsewhere.spec.node_name = Box::from("other");
    for (pod, pods, expected) in
        [(pod(&[]), 0, "OutOfpods"), (elsewhere, 1, "NodeName"), (pod(&[]), 1, "TaintToleration")]
    {
        let capacity = NodeCapacity { pods, taints: taints.clone(), ..NodeCapacity::default() };
        let decision = admit(&pod, &capacity, &[]);
        let is_expected =
            matches!(&decision, AdmissionDecision::Rejected { reason, .. } if reason == expected);
        assert!(is_expected, "{expected}: {decision:?}");
    }
}
