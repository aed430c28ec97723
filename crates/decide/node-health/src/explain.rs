//! One sentence each: why a node is tainted, when its pods are evicted, what delays an eviction.
//!
//! Read from the decisions' state, never from a log. Times are printed relative to now.

use std::time::Duration;

use pod_model::TaintEffect;

use crate::cidr::fence::Fence;
use crate::facts::{ConditionKind, NodeFacts, NodeId, Taint, TaintKey, Truth};
use crate::lifecycle::NodeLifecycle;
use crate::no_execute::{Evictions, PodFacts, Verdict, judge};
use crate::time::Moment;
use crate::zones::{Zone, ZoneState};

/// Why the node has each of its taints.
pub fn why_tainted(facts: &NodeFacts) -> Vec<String> {
    if facts.taints.is_empty() {
        return vec!["The node has no taints.".to_owned()];
    }
    facts.taints.iter().map(|taint| why(facts, taint)).collect()
}

fn why(facts: &NodeFacts, taint: &Taint) -> String {
    let name = format!("{}:{}", taint.key.as_str(), taint.effect);
    let lost = taint.effect == TaintEffect::NoExecute;
    let because = match &taint.key {
        TaintKey::Unreachable
            if facts.conditions.status(ConditionKind::Ready) == Some(Truth::Unknown) =>
        {
            "nothing was heard of the node for longer than its grace"
        }
        TaintKey::NotReady
            if facts.conditions.status(ConditionKind::Ready) == Some(Truth::False) =>
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
pub fn what_holds_it_back(lifecycle: &NodeLifecycle, node: NodeId, now: Moment) -> String {
    let Some(facts) = lifecycle.facts(node) else {
        return "This controller does not know the node.".to_owned();
    };
    if facts.conditions.is_ready() {
        return still_ready(lifecycle, node, now);
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
    let Some((turn_at, interval)) = outlook.turn_at.zip(outlook.interval) else {
        let (bad, size) = zone.map_or((0, 0), |zone| (zone.not_ready(), zone.size()));
        return format!(
            "{bad} of the {size} nodes of its zone are not ready, which is too many for a zone this small: nobody there is given up until that changes."
        );
    };
    let turns = u32::try_from(outlook.ahead).unwrap_or(u32::MAX);
    let wait = turn_at.since(now).saturating_add(interval.saturating_mul(turns));
    let slow = match zone.map(Zone::state) {
        Some(ZoneState::Partial) => " (slowed down, since most of the zone is not ready)",
        _ => "",
    };
    let attention = lifecycle.attention();
    if attention.is_fresh(now) && !attention.may_act(now) {
        let left = span(attention.settled_at().since(now));
        return format!(
            "This controller, or its sight, has only just come back and acts against nobody for another {left}."
        );
    }
    if !attention.is_fresh(now) {
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

fn still_ready(lifecycle: &NodeLifecycle, node: NodeId, now: Moment) -> String {
    let silence = lifecycle.silence(node).unwrap_or_default();
    let ends = lifecycle.patience_ends(node).unwrap_or(now);
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
pub fn why_no_ranges(fence: &Fence, now: Moment) -> Option<String> {
    let outlook = fence.outlook()?;
    let left = count(outlook.left, "node");
    let failing = match (outlook.failing, outlook.patience_ends) {
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
pub fn when_it_goes(
    evictions: &Evictions,
    node: NodeId,
    pod: &PodFacts<'_>,
    now: Moment,
) -> String {
    if pod.terminating {
        return "It is being deleted already.".to_owned();
    }
    let threats = evictions.threats(node);
    if threats.is_empty() {
        return "It stays: no taint on its node sends pods away.".to_owned();
    }
    match judge(threats, pod, evictions.compares()) {
        Verdict::Stays => "It stays: it tolerates its node's taints for ever.".to_owned(),
        Verdict::GoesNow => {
            let bears = |key: &Taint| {
                pod.tolerations.iter().any(|it| it.tolerates(key, evictions.compares()))
            };
            let unborne = threats.iter().find(|threat| !bears(&threat.taint));
            let key = unborne.map_or("its node's taint", |threat| threat.taint.key.as_str());
            format!("It goes now: it does not tolerate {key}.")
        }
        Verdict::Goes(when) if when <= now => "It goes now: its toleration is used up.".to_owned(),
        Verdict::Goes(when) => {
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
