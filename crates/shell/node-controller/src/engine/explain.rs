//! Explains the state of one node in sentences.

use node_health::explain::{
    explain_eviction_progress, explain_missing_pod_cidr, explain_pod_eviction, explain_taints,
};
use node_health::zones::ZoneState;

use super::Engine;
use crate::report::Explanation;
use crate::writes::WriteResult;

/// How many pods are named; the rest are only counted.
const MOST_PODS: usize = 200;

impl Engine {
    pub(super) fn explain(&self, name: &str) -> Explanation {
        let now = self.now();
        let mut sentences = Explanation {
            node: name.to_owned(),
            leading: self.shared.leader.may_act(now),
            taints: Vec::new(),
            outlook: "This controller does not know the node.".to_owned(),
            pods: Vec::new(),
            notes: Vec::new(),
        };
        if !self.synced() {
            sentences.outlook = "This controller has not seen the whole cluster yet.".to_owned();
            return sentences;
        }
        let Some(node) = self.names.find(name).filter(|node| self.names.known(*node).is_some())
        else {
            if self.unread_nodes.contains_key(name) {
                sentences.outlook =
                    "The node is there, but this controller cannot read it.".to_owned();
            }
            return sentences;
        };
        if let Some(facts) = self.lifecycle.facts(node) {
            sentences.taints = explain_taints(facts);
        }
        sentences.outlook = explain_eviction_progress(&self.lifecycle, node, now);
        sentences.notes = self.notes(node);
        let pods = self.names.pods(node);
        for pod in pods.iter().take(MOST_PODS) {
            if let Some(entry) = self.pods.get(*pod) {
                let when = explain_pod_eviction(&self.evictions, node, &entry.facts(*pod), now);
                sentences.pods.push((entry.full_name(), when));
            }
        }
        if let Some(more) = pods.len().checked_sub(MOST_PODS).filter(|more| *more > 0) {
            sentences.notes.push(format!("{more} more pods are on it."));
        }
        sentences
    }

    /// Failed writes to a node that wait for a retry.
    fn failed_writes(&self, node: node_health::NodeId) -> impl Iterator<Item = String> {
        let now = self.now();
        self.deferred.iter().filter_map(move |((when, _), done)| match done {
            WriteResult::Node { target, outcome: Err(failure), .. } if target.node == node => {
                let seconds = when.since(now).as_secs();
                Some(format!("A write to it failed and is retried in {seconds} s: {failure}."))
            }
            _ => None,
        })
    }

    fn notes(&self, node: node_health::NodeId) -> Vec<String> {
        let mut notes = Vec::new();
        let zone = self.lifecycle.zone_of(node).and_then(|id| self.lifecycle.zones().get(id));
        if let Some(zone) = zone {
            let state = match zone.state() {
                ZoneState::Initial => "not evaluated yet",
                ZoneState::Normal => "healthy",
                ZoneState::Partial => "mostly not ready",
                ZoneState::Full => "fully not ready",
            };
            let name = zone.key().as_str().replace(":\0:", "/");
            let name = if name.is_empty() { "without a name".to_owned() } else { name };
            notes.push(format!(
                "Its zone ({name}) is {state}: {} of {} nodes are ready.",
                zone.ready(),
                zone.size()
            ));
        }
        match self.lifecycle.renewed(node) {
            Some(_) => {
                let silence = self.lifecycle.silence(node).unwrap_or_default();
                notes.push(format!("Its last heartbeat was seen {} s ago.", silence.as_secs()));
            }
            None => notes.push("It has no lease that this controller has seen.".to_owned()),
        }
        notes.extend(self.failed_writes(node));
        if self.unreadable.contains(&node) {
            notes.push("It has a taint that cannot be read, so its taints are not written.".into());
        }
        if self.without_range.contains(&node) {
            notes.push("No pod range is left for it.".to_owned());
        }
        notes.extend(self.range_wait_reason(node));
        let ranges = self.ranges.as_ref().filter(|ranges| !ranges.holds(node));
        if let Some(ranges) = ranges.filter(|_| !self.is_ending(node)) {
            notes.extend(explain_missing_pod_cidr(ranges.fence(), self.now()));
        }
        notes
    }
}
