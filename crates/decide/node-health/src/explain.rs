//! One sentence each: why a node is tainted, when its pods are evicted, what delays an eviction.
//!
//! Read from the decisions' state, never from a log. Times are printed relative to now.

use std::time::Duration;

use pod_model::TaintEffect;

use crate::cidr::fence::Fence;
use crate::facts::{ConditionKind, ConditionState, NodeHealthFacts, NodeId, Taint, TaintKey};
use crate::lifecycle::NodeLifecycle;
use crate::no_execute::{BoundPod, EvictionDecision, Evictions, decide_eviction};
use crate::time::ControllerTime;
use crate::zones::{Zone, ZoneState};

/// Why the node has each of its taints.
pub fn explain_taints(facts: &NodeHealthFacts) -> Vec<String> {
    if facts.taints.is_empty() {
        return vec!["The node has no taints.".to_owned()];
    }
    facts.taints.iter().map(|taint| taint_reason(facts, taint)).collect()
}

fn taint_reason(facts: &NodeHealthFacts, taint: &Taint) -> String {
    let name = format!("{}:{}", taint.key.as_str(), taint.effect);
    let lost = taint.effect == TaintEffect::NoExecute;
    let because = match &taint.key {
        TaintKey::Unreachable
            if facts.conditions.status(ConditionKind::Ready) == Some(ConditionState::Unknown) =>
        {
            "nothing was heard of the node for longer than its grace"
        }
        TaintKey::NotReady
            if facts.conditions.status(ConditionKind::Ready) == Some(ConditionState::False) =>
        {
            "the node itself says that it is not ready"
        }
        TaintKey::Unreachable | TaintKey::NotReady if lost => {
            "the node was lost; this no longer fits its Ready condition and is about to change"
        }
        TaintKey::MemoryPressure => "the node says that its memory is short",
        TaintKey::DiskPressure => "the node says that its disk is short",
        TaintKey::PidPressure => "the node says that its process ids are short",
        TaintKey::NetworkUnavailable => "the node's network is not set up",
        TaintKey::Unschedulable => "the node is cordoned",
        TaintKey::OutOfService => "somebody declared the node out of service",
        TaintKey::CloudShutdown => "the cloud says that the node is shut down",
        TaintKey::CloudUninitialized => "the cloud has not described the node yet",
        TaintKey::NotReady | TaintKey::Unreachable => "its Ready condition asked for it",
        TaintKey::Other(_) => "somebody else set it; it is not ours to remove",
    };
    format!("{name}: {because}.")
}

/// How far a node is from its NoExecute taint, and what delays that.
pub fn explain_eviction_progress(
    lifecycle: &NodeLifecycle,
    node: NodeId,
    now: ControllerTime,
) -> String {
    let Some(facts) = lifecycle.facts(node) else {
        return "This controller does not know the node.".to_owned();
    };
    if facts.conditions.is_ready() {
        return explain_ready(lifecycle, node, now);
    }
    if facts
        .taints
        .iter()
        .any(|taint| taint.effect == TaintEffect::NoExecute && taint.key.means_lost())
    {
        return "Nothing: the node is given up, and its pods go as their tolerations say."
            .to_owned();
    }
    if lifecycle.zones().in_blackout() {
        return "Every zone is dark, so the fault is taken to be on this side: nobody is given up until some node is ready.".to_owned();
    }
    let Some(outlook) = lifecycle.queue().outlook(node) else {
        let waits = match facts.conditions.status(ConditionKind::Ready) {
            None => "The node said nothing yet; it is waited for.",
            Some(_) if lifecycle.writes_taints(node) => {
                "Its taint is being written, or was refused and will be tried again."
            }
            Some(_) => "Its taint could not be written yet; it is decided anew in a moment.",
        };
        return waits.to_owned();
    };
    let zone = lifecycle.zone_of(node).and_then(|zone| lifecycle.zones().get(zone));
    let Some((next_eviction_at, interval)) = outlook.next_eviction_at.zip(outlook.interval) else {
        let (bad, size) = zone.map_or((0, 0), |zone| (zone.not_ready(), zone.size()));
        return format!(
            "{bad} of the {size} nodes of its zone are not ready, which is too many for a zone this small: nobody there is given up until that changes."
        );
    };
    let turns = u32::try_from(outlook.ahead).unwrap_or(u32::MAX);
    let wait = next_eviction_at.since(now).saturating_add(interval.saturating_mul(turns));
    let slow = match zone.map(Zone::state) {
        Some(ZoneState::Partial) => " (slowed down, since most of the zone is not ready)",
        _ => "",
    };
    let observation_clock = lifecycle.observation_clock();
    if observation_clock.is_fresh(now) && !observation_clock.may_act(now) {
        let left = span(observation_clock.settled_at().since(now));
        return format!(
            "This controller, or its sight, has only just come back and acts against nobody for another {left}."
        );
    }
    if !observation_clock.is_fresh(now) {
        return "This controller cannot see the cluster at the moment and acts against nobody."
            .to_owned();
    }
    format!(
        "It waits for its zone's turn, one node per {}{slow}: {} before it, so in about {}.",
        span(interval),
        count(outlook.ahead, "node"),
        span(wait)
    )
}

fn explain_ready(lifecycle: &NodeLifecycle, node: NodeId, now: ControllerTime) -> String {
    let silence = lifecycle.silence(node).unwrap_or_default();
    let ends = lifecycle.grace_ends_at(node).unwrap_or(now);
    if silence < Duration::from_secs(20) {
        return "Nothing is wrong: the node is ready and was heard of lately.".to_owned();
    }
    format!(
        "The node is ready but was not heard of for {}; if that lasts it becomes Unknown in {}.",
        span(silence),
        span(ends.since(now))
    )
}

/// Why no node gets a pod CIDR now, if the reason is the same for all nodes.
pub fn explain_missing_pod_cidr(fence: &Fence, now: ControllerTime) -> Option<String> {
    let outlook = fence.outlook()?;
    let left = count(outlook.left, "node");
    let failing = match (outlook.failing, outlook.grace_ends_at) {
        (0, _) => String::new(),
        (failing, None) => format!("; {failing} could not be, and will be tried again"),
        (failing, Some(ends)) => {
            let ends = span(ends.since(now));
            format!(
                "; {failing} could not be, and will be tried for another {ends} at most where there are answers"
            )
        }
    };
    Some(format!(
        "It gets a pod range once what an earlier leader had sent can give none away any more: {left} without one still to be written to{failing}."
    ))
}

/// When a pod on the node is evicted.
pub fn explain_pod_eviction(
    evictions: &Evictions,
    node: NodeId,
    pod: &BoundPod<'_>,
    now: ControllerTime,
) -> String {
    if pod.terminating {
        return "It is being deleted already.".to_owned();
    }
    let no_execute_taints = evictions.no_execute_taints(node);
    if no_execute_taints.is_empty() {
        return "It stays: no taint on its node sends pods away.".to_owned();
    }
    match decide_eviction(no_execute_taints, pod, evictions.compares()) {
        EvictionDecision::Keep => "It stays: it tolerates its node's taints for ever.".to_owned(),
        EvictionDecision::EvictNow => {
            let tolerations_of = |key: &Taint| {
                pod.tolerations.iter().any(|it| it.tolerates(key, evictions.compares()))
            };
            let unborne = no_execute_taints
                .iter()
                .find(|no_execute_taint| !tolerations_of(&no_execute_taint.taint));
            let key = unborne
                .map_or("its node's taint", |no_execute_taint| no_execute_taint.taint.key.as_str());
            format!("It goes now: it does not tolerate {key}.")
        }
        EvictionDecision::EvictAt(when) if when <= now => {
            "It goes now: its toleration is used up.".to_owned()
        }
        EvictionDecision::EvictAt(when) => {
            format!("It goes in {}, when its toleration ends.", span(when.since(now)))
        }
    }
}

fn count(number: usize, noun: &str) -> String {
    match number {
        0 => "nobody".to_owned(),
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// A duration in words.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests;
