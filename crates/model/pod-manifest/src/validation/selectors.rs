//! Rules for label selectors and for the keys that are merged into them.

use std::collections::BTreeSet;

use pod_model::pod::scheduling::{LabelSelector, LabelSelectorOperator};
use pod_model::{check_label_value, check_qualified_name};

use super::findings::{FieldPath, PodFindings};
use super::metadata::check_labels;

pub(super) fn check_selector(
    selector: Option<&LabelSelector>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let Some(selector) = selector else { return };
    check_labels(&selector.match_labels, findings, &path.child("matchLabels"));
    for (index, rule) in selector.match_expressions.iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = path.child("values");
        match rule.operator {
            LabelSelectorOperator::In | LabelSelectorOperator::NotIn => {
                if rule.values.is_empty() {
                    findings.required(&values);
                }
            }
            LabelSelectorOperator::Exists | LabelSelectorOperator::DoesNotExist => {
                if !rule.values.is_empty() {
                    findings.forbidden(&values, "this operator takes no values");
                }
            }
            LabelSelectorOperator::Other(_) => {
                let known = LabelSelectorOperator::KNOWN;
                findings.unsupported(&path.child("operator"), &rule.operator, known);
            }
        }
        findings.name(&path.child("key"), &rule.key, check_qualified_name(&rule.key));
        for (at, value) in rule.values.iter().enumerate() {
            findings.name(&values.index(at), value, check_label_value(value));
        }
    }
}

/// Keys whose values come from the pod's own labels.
pub(super) fn check_label_keys(
    matching: &[Box<str>],
    mismatching: &[Box<str>],
    selector: Option<&LabelSelector>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for (keys, field) in [(matching, "matchLabelKeys"), (mismatching, "mismatchLabelKeys")] {
        let path = path.child(field);
        if keys.is_empty() {
            continue;
        }
        if selector.is_none() {
            findings.forbidden(&path, "needs a labelSelector");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            findings.name(&path.index(index), key, check_qualified_name(key));
        }
    }
    if let Some(selector) = selector {
        let mut seen: BTreeSet<&str> = selector.match_labels.keys().collect();
        for rule in &selector.match_expressions {
            let merged = matching.iter().rposition(|key| *key == rule.key);
            if let Some(index) = merged.filter(|_| seen.contains(&*rule.key)) {
                let why = "stands in matchLabelKeys and in labelSelector";
                findings.invalid(&path.index(index), &rule.key, why);
            }
            seen.insert(&rule.key);
        }
    }
    for (index, key) in matching.iter().enumerate() {
        if mismatching.contains(key) {
            let why = "stands in matchLabelKeys and in mismatchLabelKeys";
            findings.invalid(&path.child("matchLabelKeys").index(index), key, why);
        }
    }
}
