//! Which taints a node should have, and the smallest patch to get there.
//!
//! NoSchedule taints follow the conditions at once and without limit. Of the two "lost" NoExecute
//! taints a node has at most one; the first one waits for an eviction token of the zone, a swap of
//! the two and the removal do not wait. Taints set by others are never touched, and an existing
//! taint of ours keeps its value and time. Also computes which of the old platform labels must
//! follow the stable ones. upstream: node_lifecycle_controller.go

use std::collections::BTreeMap;

use pod_model::TaintEffect;

use crate::facts::{ConditionKind, ConditionState, Conditions, NodeHealthFacts, Taint, TaintKey};
use crate::time::ControllerTime;

/// A change of a node's taints, by key and effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaintPatch {
    /// Taints to add; one of the same key and effect is replaced.
    pub add: Vec<Taint>,
    /// Taints to remove.
    pub remove: Vec<(TaintKey, TaintEffect)>,
}

impl TaintPatch {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    /// Both patches in one.
    pub fn and(mut self, other: Self) -> Self {
        self.add.extend(other.add);
        self.remove.extend(other.remove);
        self
    }

    /// The list to be written: existing taints keep their order, new ones come last.
    pub fn apply(&self, taints: &[Taint]) -> Vec<Taint> {
        let mut result = taints.to_vec();
        for added in &self.add {
            match result.iter_mut().find(|taint| taint.is(&added.key, added.effect)) {
                Some(taint) => *taint = added.clone(),
                None => result.push(added.clone()),
            }
        }
        result.retain(|taint| !self.remove.iter().any(|(key, effect)| taint.is(key, *effect)));
        result
    }

    /// Whether it adds a NoExecute taint.
    pub fn evicts(&self) -> bool {
        self.add.iter().any(|taint| taint.effect == TaintEffect::NoExecute)
    }
}

/// The NoSchedule taint for a condition with this status.
fn condition_taint(kind: ConditionKind, status: ConditionState) -> Option<TaintKey> {
    match (kind, status) {
        (ConditionKind::Ready, ConditionState::False) => Some(TaintKey::NotReady),
        (ConditionKind::Ready, ConditionState::Unknown) => Some(TaintKey::Unreachable),
        (ConditionKind::MemoryPressure, ConditionState::True) => Some(TaintKey::MemoryPressure),
        (ConditionKind::DiskPressure, ConditionState::True) => Some(TaintKey::DiskPressure),
        (ConditionKind::PidPressure, ConditionState::True) => Some(TaintKey::PidPressure),
        (ConditionKind::NetworkUnavailable, ConditionState::True) => {
            Some(TaintKey::NetworkUnavailable)
        }
        _ => None,
    }
}

/// Whether this controller adds and removes the NoSchedule taint of this key.
fn is_condition_taint(key: &TaintKey) -> bool {
    matches!(
        key,
        TaintKey::NotReady
            | TaintKey::Unreachable
            | TaintKey::MemoryPressure
            | TaintKey::DiskPressure
            | TaintKey::PidPressure
            | TaintKey::NetworkUnavailable
            | TaintKey::Unschedulable
    )
}

/// The NoSchedule taints that its conditions and a cordon require.
fn desired_no_schedule(conditions: &Conditions, unschedulable: bool) -> Vec<TaintKey> {
    let by_condition = ConditionKind::ALL
        .into_iter()
        .filter_map(|kind| condition_taint(kind, conditions.status(kind)?));
    by_condition.chain(unschedulable.then_some(TaintKey::Unschedulable)).collect()
}

/// The patch that brings the NoSchedule taints in line with the conditions.
pub fn no_schedule(facts: &NodeHealthFacts, now: ControllerTime) -> TaintPatch {
    let effect = TaintEffect::NoSchedule;
    let wanted = desired_no_schedule(&facts.conditions, facts.unschedulable);
    let has = |key: &TaintKey| facts.taints.iter().any(|taint| taint.is(key, effect));
    let add = wanted
        .iter()
        .filter(|key| !has(key))
        .map(|key| Taint::new(key.clone(), effect, Some(now.stamp())))
        .collect();
    let unwanted = |taint: &&Taint| {
        taint.effect == effect && is_condition_taint(&taint.key) && !wanted.contains(&taint.key)
    };
    let remove = facts.taints.iter().filter(unwanted).map(|taint| (taint.key.clone(), effect));
    TaintPatch { add, remove: remove.collect() }
}

/// What the NoExecute taints of a node need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoExecuteChange {
    /// They are right.
    Settled,
    /// Change them at once: a swap, or a removal.
    Now(TaintPatch),
    /// A taint is missing and has to wait for an eviction token.
    Wait,
}

/// Decides on the pair of "lost" taints. In a blackout (every zone fully not ready) the fault is
/// most likely ours or the network's, and no node may have one.
pub fn no_execute(facts: &NodeHealthFacts, blackout: bool, now: ControllerTime) -> NoExecuteChange {
    let Some(ready) = facts.conditions.status(ConditionKind::Ready) else {
        // The node has no Ready condition yet.
        return NoExecuteChange::Settled;
    };
    let carried: Vec<&TaintKey> = facts
        .taints
        .iter()
        .filter(|taint| taint.effect == TaintEffect::NoExecute && taint.key.means_lost())
        .map(|taint| &taint.key)
        .collect();
    let wanted = if blackout { None } else { lost_key(ready) };
    let Some(wanted) = wanted else {
        return change(no_execute_patch(None, &carried, now));
    };
    if carried.is_empty() {
        return NoExecuteChange::Wait;
    }
    change(no_execute_patch(Some(wanted), &carried, now))
}

/// The taint patch of a node with an eviction token; none if it recovered meanwhile.
pub fn eviction_patch(facts: &NodeHealthFacts, now: ControllerTime) -> Option<TaintPatch> {
    let wanted = lost_key(facts.conditions.status(ConditionKind::Ready)?)?;
    Some(no_execute_patch(Some(wanted), &[], now))
}

fn lost_key(ready: ConditionState) -> Option<TaintKey> {
    condition_taint(ConditionKind::Ready, ready)
}

fn change(patch: TaintPatch) -> NoExecuteChange {
    if patch.is_empty() { NoExecuteChange::Settled } else { NoExecuteChange::Now(patch) }
}

fn no_execute_patch(
    wanted: Option<TaintKey>,
    carried: &[&TaintKey],
    now: ControllerTime,
) -> TaintPatch {
    let effect = TaintEffect::NoExecute;
    let unwanted = carried.iter().filter(|key| Some(**key) != wanted.as_ref());
    let remove = unwanted.map(|key| ((*key).clone(), effect)).collect();
    let missing = wanted.filter(|key| !carried.contains(&key));
    let add = missing.map(|key| Taint::new(key, effect, Some(now.stamp()))).into_iter().collect();
    TaintPatch { add, remove }
}

/// Old platform labels follow the stable ones where those exist.
const MIRRORS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// Labels to set so that the old platform labels equal the stable ones.
pub fn mirrored_labels(labels: &BTreeMap<String, String>) -> Vec<(Box<str>, Box<str>)> {
    MIRRORS
        .into_iter()
        .filter_map(|(stable, old)| {
            let value = labels.get(stable)?;
            (labels.get(old) != Some(value)).then(|| (old.into(), value.as_str().into()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
