//! Rules for affinity, tolerations, spread and gates.

use std::ops::RangeInclusive;

use pod_model::pod::PodSpec;
use pod_model::pod::scheduling::{
    Affinity, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity,
    PodAffinityTerm, Toleration, TolerationEffect, TolerationOperator, TopologySpreadConstraint,
    UnsatisfiableAction,
};
use pod_model::{check_dns_label, check_dns_subdomain, check_label_value, check_qualified_name};

use super::findings::{FieldPath, PodFindings};
use super::selectors::{check_label_keys, check_selector};
use crate::PodGates;

const WEIGHTS: RangeInclusive<i64> = 1..=100;

pub(super) fn check_affinity(affinity: &Affinity, findings: &mut PodFindings, path: &FieldPath) {
    if let Some(node) = &affinity.node_affinity {
        let path = path.child("nodeAffinity");
        if let Some(required) = &node.required {
            let terms = path
                .child("requiredDuringSchedulingIgnoredDuringExecution")
                .child("nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                findings.required(&terms);
            }
            for (index, term) in required.node_selector_terms.iter().enumerate() {
                check_node_term(term, LabelValues::Validated, findings, &terms.index(index));
            }
        }
        let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in node.preferred.iter().enumerate() {
            let path = preferred.index(index);
            findings.range(&path.child("weight"), term.weight.into(), WEIGHTS);
            let preference = path.child("preference");
            check_node_term(&term.preference, LabelValues::Free, findings, &preference);
        }
    }
    for (affinity, field) in
        [(&affinity.pod_affinity, "podAffinity"), (&affinity.pod_anti_affinity, "podAntiAffinity")]
    {
        if let Some(affinity) = affinity {
            check_pod_affinity(affinity, findings, &path.child(field));
        }
    }
}

/// Whether the values of a node selector must be label values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LabelValues {
    Validated,
    Free,
}

fn check_node_term(
    term: &NodeSelectorTerm,
    values: LabelValues,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for (index, rule) in term.match_expressions.iter().enumerate() {
        check_node_rule(rule, values, findings, &path.child("matchExpressions").index(index));
    }
    for (index, rule) in term.match_fields.iter().enumerate() {
        check_node_field(rule, findings, &path.child("matchFields").index(index));
    }
}

fn check_node_rule(
    rule: &NodeSelectorRequirement,
    values: LabelValues,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    use NodeSelectorOperator::{DoesNotExist, Exists, Gt, In, Lt, NotIn, Other};
    let value_path = path.child("values");
    match rule.operator {
        In | NotIn if rule.values.is_empty() => findings.required(&value_path),
        Exists | DoesNotExist if !rule.values.is_empty() => {
            findings.forbidden(&value_path, "this operator takes no values");
        }
        Gt | Lt if rule.values.len() != 1 => {
            findings.forbidden(&value_path, "this operator takes one value");
        }
        Other(_) => {
            let known = NodeSelectorOperator::KNOWN;
            findings.unsupported(&path.child("operator"), &rule.operator, known);
        }
        _ => {}
    }
    findings.name(&path.child("key"), &rule.key, check_qualified_name(&rule.key));
    if values == LabelValues::Validated {
        for (index, value) in rule.values.iter().enumerate() {
            findings.name(&value_path.index(index), value, check_label_value(value));
        }
    }
}

fn check_node_field(rule: &NodeSelectorRequirement, findings: &mut PodFindings, path: &FieldPath) {
    let values = path.child("values");
    if !matches!(rule.operator, NodeSelectorOperator::In | NodeSelectorOperator::NotIn) {
        findings.unsupported(&path.child("operator"), &rule.operator, &["In", "NotIn"]);
    } else if rule.values.len() != 1 {
        findings.forbidden(&values, "a field is compared with one value");
    }
    if &*rule.key != "metadata.name" {
        findings.unsupported(&path.child("key"), &rule.key, &["metadata.name"]);
        return;
    }
    for (index, value) in rule.values.iter().enumerate() {
        findings.name(&values.index(index), value, check_dns_subdomain(value));
    }
}

fn check_pod_affinity(affinity: &PodAffinity, findings: &mut PodFindings, path: &FieldPath) {
    let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.required.iter().enumerate() {
        check_pod_term(term, findings, &required.index(index));
    }
    let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.preferred.iter().enumerate() {
        let path = preferred.index(index);
        findings.range(&path.child("weight"), term.weight.into(), WEIGHTS);
        check_pod_term(&term.pod_affinity_term, findings, &path.child("podAffinityTerm"));
    }
}

fn check_pod_term(term: &PodAffinityTerm, findings: &mut PodFindings, path: &FieldPath) {
    let selector = term.label_selector.as_deref();
    check_selector(selector, findings, &path.child("labelSelector"));
    let namespaces = term.namespace_selector.as_deref();
    check_selector(namespaces, findings, &path.child("namespaceSelector"));
    for namespace in &term.namespaces {
        findings.name(&path.child("namespace"), namespace, check_dns_label(namespace));
    }
    let (matching, mismatching) = (&term.match_label_keys, &term.mismatch_label_keys);
    check_label_keys(matching, mismatching, selector, findings, path);
    let format_result = check_qualified_name(&term.topology_key);
    findings.name(&path.child("topologyKey"), &term.topology_key, format_result);
}

pub(super) fn check_tolerations(
    tolerations: &[Toleration],
    gates: &PodGates,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let operator = path.child("operator");
        if !toleration.key.is_empty() {
            findings.name(
                &path.child("key"),
                &toleration.key,
                check_qualified_name(&toleration.key),
            );
        } else if toleration.operator != TolerationOperator::Exists {
            findings.invalid(&operator, &toleration.operator, "expected Exists without a key");
        }
        let effect = path.child("effect");
        if toleration.toleration_seconds.is_some()
            && toleration.effect != TolerationEffect::NoExecute
        {
            let why = "expected NoExecute with tolerationSeconds";
            findings.invalid(&effect, &toleration.effect, why);
        }
        check_toleration_value(toleration, gates, findings, &path);
        if !toleration.effect.is_empty() && !toleration.effect.is_known() {
            findings.unsupported(&effect, &toleration.effect, TolerationEffect::KNOWN);
        }
    }
}

fn check_toleration_value(
    toleration: &Toleration,
    gates: &PodGates,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let operator = path.child("operator");
    match &toleration.operator {
        TolerationOperator::Exists => {
            if !toleration.value.is_empty() {
                findings.invalid(&operator, &toleration.value, "Exists takes no value");
            }
        }
        TolerationOperator::Gt | TolerationOperator::Lt if gates.toleration_comparison => {
            let digits = toleration.value.strip_prefix('-').unwrap_or(&toleration.value);
            let canonical = digits == "0" || !digits.starts_with('0');
            let plain = canonical && &*toleration.value != "-0" && !digits.starts_with('+');
            if !plain || toleration.value.parse::<i64>().is_err() {
                let why = "expected a whole number of 64 bits";
                findings.invalid(&path.child("value"), &toleration.value, why);
            }
        }
        other if *other == TolerationOperator::Equal || other.is_empty() => {
            findings.name(&operator, &toleration.value, check_label_value(&toleration.value));
        }
        other => findings.unsupported(&operator, other, &["Equal", "Exists"]),
    }
}

pub(super) fn check_spread(
    constraints: &[TopologySpreadConstraint],
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        if constraint.max_skew <= 0 {
            findings.invalid(
                &path.child("maxSkew"),
                constraint.max_skew,
                "expected more than zero",
            );
        }
        findings.require(&constraint.topology_key, &path.child("topologyKey"));
        let action = &constraint.when_unsatisfiable;
        if !action.is_known() {
            let known = UnsatisfiableAction::KNOWN;
            findings.unsupported(&path.child("whenUnsatisfiable"), action, known);
        }
        let repeated = constraints.iter().skip(index + 1).any(|later| {
            later.topology_key == constraint.topology_key && later.when_unsatisfiable == *action
        });
        if repeated {
            let path = path.child("{topologyKey, whenUnsatisfiable}");
            findings.duplicate(&path, format!("{{{}, {action}}}", constraint.topology_key));
        }
        check_spread_details(constraint, findings, &path);
    }
}

fn check_spread_details(
    constraint: &TopologySpreadConstraint,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    if let Some(domains) = constraint.min_domains {
        let path = path.child("minDomains");
        if domains <= 0 {
            findings.invalid(&path, domains, "expected more than zero");
        }
        if constraint.when_unsatisfiable != UnsatisfiableAction::DoNotSchedule {
            findings.invalid(&path, domains, "needs whenUnsatisfiable: DoNotSchedule");
        }
    }
    for (policy, field) in [
        (&constraint.node_affinity_policy, "nodeAffinityPolicy"),
        (&constraint.node_taints_policy, "nodeTaintsPolicy"),
    ] {
        if let Some(policy) = policy.as_ref().filter(|policy| !policy.is_known()) {
            findings.unsupported(&path.child(field), policy, &["Honor", "Ignore"]);
        }
    }
    let selector = constraint.label_selector.as_deref();
    check_label_keys(&constraint.match_label_keys, &[], selector, findings, path);
    check_selector(selector, findings, &path.child("labelSelector"));
}

pub(super) fn check_gates(spec: &PodSpec, findings: &mut PodFindings, path: &FieldPath) {
    for (index, gate) in spec.readiness_gates.iter().enumerate() {
        let path = path.child("readinessGates").index(index).child("conditionType");
        findings.name(&path, &gate.condition_type, check_qualified_name(&gate.condition_type));
    }
    for (index, gate) in spec.scheduling_gates.iter().enumerate() {
        let path = path.child("schedulingGates").index(index);
        findings.name(&path, &gate.name, check_qualified_name(&gate.name));
        if spec.scheduling_gates.iter().take(index).any(|earlier| earlier.name == gate.name) {
            findings.duplicate(&path, &gate.name);
        }
    }
    if !spec.node_name.is_empty() && !spec.scheduling_gates.is_empty() {
        findings
            .forbidden(&path.child("nodeName"), "may not be set while there are schedulingGates");
    }
}
