//! Whether a pod tolerates the node's NoExecute taints.
//!
//! Rules: other effects are the scheduler's; a static pod is not checked. Numbers are compared only
//! behind the feature gate, and only if both are in canonical form.
//!
//! upstream: pkg/kubelet/lifecycle/predicate.go (generalFilter), api/core/v1/toleration.go

use pod_model::pod::Pod;
use pod_model::pod::scheduling::{Toleration, TolerationEffect, TolerationOperator};
use ports::cluster_objects::NodeTaint;

#[cfg(test)]
mod tests;

const NO_EXECUTE: &str = "NoExecute";

/// Whether the pod may run beside `taints`; `compares` is the gate `TaintTolerationComparisonOperators`.
pub(super) fn tolerates_all(pod: &Pod, taints: &[NodeTaint], compares: bool) -> bool {
    let tolerated = |taint: &NodeTaint| {
        pod.spec.tolerations.iter().any(|toleration| tolerates(toleration, taint, compares))
    };
    pod.is_static() || taints.iter().filter(|taint| taint.effect == NO_EXECUTE).all(tolerated)
}

/// Called with NoExecute taints only.
fn tolerates(toleration: &Toleration, taint: &NodeTaint, compares: bool) -> bool {
    let has_effect =
        toleration.effect.is_empty() || toleration.effect == TolerationEffect::NoExecute;
    let has_key = toleration.key.is_empty() || *toleration.key == *taint.key;
    if !has_effect || !has_key {
        return false;
    }
    let compared = |holds: fn(&i64, &i64) -> bool| {
        let numbers = number(&taint.value).zip(number(&toleration.value));
        compares && numbers.is_some_and(|(taint, own)| holds(&taint, &own))
    };
    match &toleration.operator {
        TolerationOperator::Exists => true,
        TolerationOperator::Equal => *toleration.value == *taint.value,
        TolerationOperator::Lt => compared(i64::lt),
        TolerationOperator::Gt => compared(i64::gt),
        other => other.is_empty() && *toleration.value == *taint.value,
    }
}

/// A decimal number in canonical form.
fn number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
