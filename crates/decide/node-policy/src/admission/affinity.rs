//! Whether a node's labels are what a pod asks for.

use std::collections::BTreeMap;

use pod_model::pod::Pod;
use pod_model::pod::scheduling::{NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};

/// Selector and required affinity; terms are alternatives, what is in a term holds together.
pub fn matches_node(pod: &Pod, labels: &BTreeMap<String, String>, node_name: &str) -> bool {
    let selected = pod
        .spec
        .node_selector
        .iter()
        .all(|(key, value)| labels.get(key).is_some_and(|label| **label == **value));
    let affinity = pod.spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let wanted = required.is_none_or(|required| {
        required.node_selector_terms.iter().any(|term| matches_term(term, labels, node_name))
    });
    selected && wanted
}

fn matches_term(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let is_not_empty = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
    let labelled =
        |each: &NodeSelectorRequirement| holds(each, labels.get(&*each.key).map(String::as_str));
    let named =
        |each: &NodeSelectorRequirement| &*each.key == "metadata.name" && holds(each, Some(name));
    is_not_empty
        && term.match_expressions.iter().all(labelled)
        && term.match_fields.iter().all(named)
}

fn holds(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let is_listed = |found: &str| requirement.values.iter().any(|value| **value == *found);
    let numbers = || {
        let found: i64 = found?.parse().ok()?;
        let wanted: i64 = requirement.values.first()?.parse().ok()?;
        Some((found, wanted))
    };
    match requirement.operator {
        NodeSelectorOperator::In => found.is_some_and(is_listed),
        NodeSelectorOperator::NotIn => !found.is_some_and(is_listed),
        NodeSelectorOperator::Exists => found.is_some(),
        NodeSelectorOperator::DoesNotExist => found.is_none(),
        NodeSelectorOperator::Gt => numbers().is_some_and(|(found, wanted)| found > wanted),
        NodeSelectorOperator::Lt => numbers().is_some_and(|(found, wanted)| found < wanted),
        NodeSelectorOperator::Other(_) => false,
    }
}
