//! Which pods are preempted for a critical one.
//!
//! Rules: only less important pods: critical before not critical, otherwise by priority where both
//! have one. Those of a better QoS class are spared as long as the worse ones suffice; within a
//! class the pod nearest to what is lacking is chosen first, of equals the smaller, so that few are
//! preempted. Where all together would not suffice, none is. The shell terminates them.
//!
//! upstream: pkg/kubelet/preemption/preemption.go, pkg/kubelet/types/pod_update.go

use pod_model::pod::resources::{CPU, MEMORY, qos_class};
use pod_model::pod::{Pod, QosClass};

use super::node_capacity::{Shortage, demand};

#[cfg(test)]
mod tests;

/// Reason of the status and of the event of a preempted pod.
pub const PREEMPTED_REASON: &str = "Preempting";
/// Message of both.
pub const PREEMPTED_MESSAGE: &str = "Preempted in order to admit critical pod";
/// Reason and message of its condition `DisruptionTarget`.
pub const PREEMPTED_DISRUPTION: (&str, &str) =
    ("TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod.");

/// What still has to be freed: resource and amount, amounts above zero.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UnmetResources(Vec<(String, i64)>);

impl UnmetResources {
    fn less(&self, pods: &[&Pod]) -> Self {
        let left = self.0.iter().map(|(resource, amount)| {
            let freed =
                pods.iter().fold(0, |sum: i64, pod| sum.saturating_add(demand(pod, resource)));
            (resource.clone(), amount.saturating_sub(freed))
        });
        Self(left.filter(|(_, amount)| *amount > 0).collect())
    }

    /// How far a pod alone is from what is needed: each resource weighs the same.
    fn distance(&self, pod: &Pod) -> f64 {
        let part = |(resource, amount): &(String, i64)| {
            let left = amount.saturating_sub(demand(pod, resource)).max(0);
            #[expect(clippy::cast_precision_loss, reason = "only compared with its like")]
            let share = left as f64 / *amount as f64;
            share * share
        };
        self.0.iter().map(part).sum()
    }

    /// The rejection message, with the reference's text.
    fn unmet(&self) -> String {
        let amounts: Vec<String> =
            self.0.iter().map(|(name, amount)| format!("(res: {name}, q: {amount}), ")).collect();
        format!("no set of running pods found to reclaim resources: [{}]", amounts.concat())
    }
}

/// The pods to preempt, or why there are none.
pub(super) fn victims<'a>(
    pod: &Pod,
    others: &[&'a Pod],
    shortages: &[Shortage],
) -> Result<Vec<&'a Pod>, String> {
    let needs = UnmetResources(
        shortages.iter().map(|each| (each.resource.clone(), each.lacking())).collect(),
    );
    let of = |class: QosClass| -> Vec<&'a Pod> {
        let weaker = others.iter().copied().filter(|other| may_be_preempted_by(other, pod));
        weaker.filter(|other| qos_class(other) == class).collect()
    };
    let best_effort = of(QosClass::BestEffort);
    let burstable = of(QosClass::Burstable);
    let guaranteed = of(QosClass::Guaranteed);
    let unmet = needs.less(&[&*best_effort, &*burstable, &*guaranteed].concat());
    if !unmet.0.is_empty() {
        return Err(unmet.unmet());
    }
    // The minimum that each class must free when all worse ones free everything; then the worse
    // ones free only what is still lacking.
    let high = nearest(&guaranteed, needs.less(&[&*best_effort, &*burstable].concat()))?;
    let middle = nearest(&burstable, needs.less(&[&*best_effort, &*high].concat()))?;
    let low = nearest(&best_effort, needs.less(&[&*middle, &*high].concat()))?;
    Ok([low, middle, high].concat())
}

/// Whether `one` may be preempted for `other`.
fn may_be_preempted_by(one: &Pod, other: &Pod) -> bool {
    if other.is_critical() && !one.is_critical() {
        return true;
    }
    match (one.spec.priority, other.spec.priority) {
        (Some(one), Some(other)) => other > one,
        _ => false,
    }
}

/// Selects pods until nothing is lacking, each time the nearest.
fn nearest<'a>(pods: &[&'a Pod], mut needs: UnmetResources) -> Result<Vec<&'a Pod>, String> {
    let mut left = pods.to_vec();
    let mut chosen = Vec::new();
    while !needs.0.is_empty() {
        let mut best: Option<(usize, f64)> = None;
        for (index, pod) in left.iter().enumerate() {
            let distance = needs.distance(pod);
            let nearer = best.is_none_or(|(known, least)| {
                distance < least || (distance <= least && is_smaller(pod, left[known]))
            });
            if nearer {
                best = Some((index, distance));
            }
        }
        let Some((index, _)) = best else { return Err(needs.unmet()) };
        let pod = left.swap_remove(index);
        needs = needs.less(&[pod]);
        chosen.push(pod);
    }
    Ok(chosen)
}

/// Whether `one` asks for no more than `other`: by memory, then by CPU.
fn is_smaller(one: &Pod, other: &Pod) -> bool {
    let size = |pod: &Pod| (demand(pod, MEMORY), demand(pod, CPU));
    size(one) <= size(other)
}
