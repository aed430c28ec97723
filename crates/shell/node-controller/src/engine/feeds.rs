//! Applies watch events to the tables and the decisions.
//!
//! Rule: level-triggered. A list replaces what was known; an event only adds to it. An object that
//! cannot be parsed keeps its last known state, and is logged.

use std::collections::HashMap;

use node_health::lifecycle::{Sight as Seen, WriteKind};
use node_health::no_execute::PodAction;
use node_health::{Moment, NodeId, PodId, Stamp, Truth};
use ports::FeedEvent;
use ports::cluster_objects::{Node, Pod, Renewal};
use tracing::{info, warn};

use super::Engine;
use super::queue::Pending;
use crate::convert;
use crate::names::Known;
use crate::uid::Uid;

impl Engine {
    pub(super) fn node_event(&mut self, event: FeedEvent<Node>) {
        match event {
            FeedEvent::ListBegan => self.node_list.number += 1,
            FeedEvent::Listed(nodes) => {
                for node in nodes {
                    self.see_node(&node, Seen::List);
                }
            }
            FeedEvent::ListEnded => {
                for node in self.names.missing_from(self.node_list.number) {
                    self.lose_node(node);
                }
                self.sight.nodes_heard(true);
                self.node_list.complete = true;
                self.early_renewals = HashMap::new();
                let number = self.node_list.number;
                self.unread_nodes.retain(|_, list| *list == number);
                self.changed = true;
                self.begin_ranges();
                self.tell_synced();
            }
            FeedEvent::Applied(node) => self.see_node(&node, Seen::Event),
            FeedEvent::Deleted(node) => {
                if let Some(id) = self.names.find(&node.metadata.name)
                    && self.names.known(id).is_some_and(|it| it.uid == Uid::new(&node.metadata.uid))
                {
                    self.lose_node(id);
                }
                self.no_longer_unread(&node.metadata.name);
            }
            FeedEvent::Unreadable { object, deleted, cause } => {
                warn!(object, deleted, cause, "A node cannot be parsed");
                self.keep_node(&object, deleted);
            }
            FeedEvent::Interrupted(error) => {
                warn!(err = %error, "Node watch interrupted");
                self.sight.nodes_heard(false);
            }
            FeedEvent::Resumed => self.sight.nodes_heard(true),
        }
    }

    /// An unparsable node exists all the same: the end of a list must neither remove it nor free
    /// its pod CIDR. Feeds name it as `kind/name`; some objects have not even a parsable name.
    fn keep_node(&mut self, object: &str, deleted: bool) {
        let name = object.rsplit('/').next().unwrap_or_default();
        let list = self.node_list.number;
        if let Some(known) = self.names.find(name).and_then(|id| self.names.known_mut(id)) {
            known.list = list;
            return;
        }
        if deleted && !name.is_empty() {
            return self.no_longer_unread(name);
        }
        // A node that joins later has only the pod CIDR that we assign, and we assign none.
        if !self.node_list.complete || self.unread_nodes.contains_key(name) {
            self.unread_nodes.insert(name.into(), list);
        }
    }

    /// Records that the node of this name is gone, or parses again.
    fn no_longer_unread(&mut self, name: &str) {
        if self.unread_nodes.remove(name).is_some() {
            self.begin_ranges();
        }
    }

    pub(super) fn tell_synced(&mut self) {
        if self.synced() {
            info!(nodes = self.names.len(), pods = self.pods.len(), "Initial lists complete");
            self.shared.counters.synced(true);
        }
    }

    /// Records a node.
    pub(super) fn see_node(&mut self, node: &Node, seen: Seen) {
        if node.metadata.name.is_empty() {
            return;
        }
        let id = self.names.handle(&node.metadata.name);
        let uid = Uid::new(&node.metadata.uid);
        if self.names.known(id).is_some_and(|known| known.uid != uid) {
            self.lose_node(id);
            // The entry may have been freed with the last use of its name.
            return self.see_node(node, seen);
        }
        let arrives = self.names.known(id).is_none();
        let (version, odd_version) = self.version_of(id, &node.metadata.resource_version);
        let now = self.now();
        let facts = convert::node_facts(node, version);
        // Unparsable taints are left out.
        let odd_taints = facts.taints.len() < node.spec.taints.len();
        let list = self.node_list.number;
        let terminating = node.metadata.deletion_timestamp.is_some();
        let known = Known { uid, list, odd_version, odd_taints, terminating };
        if arrives {
            self.names.arrive(id, known);
        } else if let Some(place) = self.names.known_mut(id) {
            *place = known;
        }
        let actions = self.lifecycle.observe(now, id, facts, seen);
        if let Some(renewed) = self.early_renewals.remove(node.metadata.name.as_str()) {
            self.lifecycle.lease_read(now, id, renewed);
        }
        self.act(actions);
        if !odd_taints && self.unreadable.remove(&id) {
            self.take_back(now, id, WriteKind::Taints);
        }
        self.weigh_node(now, id);
        if arrives {
            self.cleanup.node_came(&node.metadata.name);
            self.regard_pods(id);
            self.mark_pods_before(id);
            self.published.changed();
        }
        self.see_range(id, node);
        self.no_longer_unread(&node.metadata.name);
        self.see_for_cloud(id);
        self.shared.counters.node_looked_at(self.now().since(now));
    }

    /// Marks pods that were seen before their lost node: a previous leader may have died before it
    /// marked them. Pods seen after their node are handled one by one.
    fn mark_pods_before(&mut self, node: NodeId) {
        if matches!(self.lifecycle.node_ready(node), None | Some(Truth::True)) {
            return;
        }
        for pod in self.names.pods(node) {
            if self.must_be_marked(*pod, node)
                && let Some(entry) = self.pods.get(*pod)
            {
                self.queue.push(Pending::MarkPod(*pod, entry.uid.clone()));
            }
        }
    }

    /// Resource versions are growing numbers; one that is not a number gets the successor of the
    /// last.
    fn version_of(&self, node: NodeId, text: &str) -> (u64, Option<Box<str>>) {
        match text.parse() {
            Ok(version) => (version, None),
            Err(_) => {
                let last = self.lifecycle.facts(node).map_or(0, |facts| facts.version);
                (last.saturating_add(1), Some(text.into()))
            }
        }
    }

    /// Records that a node is gone.
    pub(super) fn lose_node(&mut self, node: NodeId) {
        let actions = self.lifecycle.forget(node);
        self.act(actions);
        let pods = self.names.pods(node).to_vec();
        self.evictions.node_gone(node, pods.iter().copied());
        self.lose_range(node);
        self.forget_cloud(node);
        self.marking.remove(&node);
        self.unreadable.remove(&node);
        self.names.depart(node);
        for pod in pods {
            self.regard(pod);
        }
        self.published.changed();
    }

    /// Updates the evictions by a node's taints.
    pub(super) fn weigh_node(&mut self, now: Moment, node: NodeId) {
        if !self.shared.checked.config.enabled.taint_eviction {
            return;
        }
        if let Some(proven) = self.sight.proven() {
            self.evictions.still_clean(node, proven);
        }
        let Some(facts) = self.lifecycle.facts(node) else { return };
        let pods = self.names.pods(node).iter();
        let pods = pods.filter_map(|pod| Some((*pod, self.pods.get(*pod)?)));
        let pods = pods.filter(|(_, entry)| !self.leaving.contains(&entry.uid));
        let pods = pods.map(|(pod, entry)| entry.facts(pod));
        let actions = self.evictions.node_seen(now, node, facts, pods);
        self.pod_actions(actions);
    }

    pub(super) fn lease_event(&mut self, event: FeedEvent<Renewal>) {
        let now = self.now();
        match event {
            FeedEvent::ListBegan => {
                self.lease_list.number += 1;
                self.early_renewals.clear();
                self.sight.list_began();
            }
            FeedEvent::Listed(leases) => {
                for lease in leases {
                    if let Some((node, renewed)) = self.lease_of(&lease) {
                        self.lifecycle.lease_read(now, node, renewed);
                    }
                }
            }
            FeedEvent::ListEnded => {
                self.lease_list.complete = true;
                self.sight.list_ended(now);
                self.tell_synced();
            }
            FeedEvent::Applied(lease) => {
                let proves = self.sight.heard(now);
                let Some((node, renewed)) = self.lease_of(&lease) else { return };
                if proves {
                    self.lifecycle.lease_seen(now, node, renewed);
                } else {
                    self.lifecycle.lease_read(now, node, renewed);
                }
            }
            // A deleted lease is a silent one: the grace period runs from its last renewal.
            FeedEvent::Deleted(lease) => {
                self.early_renewals.remove(lease.name.as_str());
            }
            FeedEvent::Unreadable { object, cause, .. } => {
                warn!(object, cause, "A lease cannot be parsed");
            }
            FeedEvent::Interrupted(error) => {
                warn!(err = %error, "Lease watch interrupted");
                self.sight.interrupted();
            }
            FeedEvent::Resumed => self.sight.resumed(now),
        }
    }

    /// The node of a lease, and the lease's renewal. A lease seen before its node, while the first
    /// list is incomplete, is kept: if it were read later for the first time, it would count as a
    /// heartbeat, and a node that died before this controller started would get its grace period
    /// twice.
    fn lease_of(&mut self, lease: &Renewal) -> Option<(NodeId, Stamp)> {
        let renewed = Stamp::from_nanos(lease.renewed?.nanos());
        let node = self.names.find(&lease.name).filter(|node| self.names.known(*node).is_some());
        if node.is_none() && !self.node_list.complete {
            self.early_renewals.insert(lease.name.as_str().into(), renewed);
        }
        Some((node?, renewed))
    }

    pub(super) fn pod_event(&mut self, event: FeedEvent<Pod>) {
        match event {
            FeedEvent::ListBegan => self.pod_list.number += 1,
            FeedEvent::Listed(pods) => {
                for pod in pods {
                    self.see_pod(&pod);
                }
            }
            FeedEvent::ListEnded => {
                for pod in self.pods.missing_from(self.pod_list.number) {
                    self.lose_pod(pod);
                }
                self.pod_list.complete = true;
                self.tell_synced();
            }
            FeedEvent::Applied(pod) => self.see_pod(&pod),
            FeedEvent::Deleted(pod) => {
                if let Some(pod) = self.pods.find(&Uid::new(&pod.metadata.uid)) {
                    self.lose_pod(pod);
                }
            }
            FeedEvent::Unreadable { object, cause, .. } => {
                warn!(object, cause, "A pod cannot be parsed");
            }
            FeedEvent::Interrupted(error) => warn!(err = %error, "Pod watch interrupted"),
            FeedEvent::Resumed => {}
        }
    }

    fn see_pod(&mut self, pod: &Pod) {
        if pod.metadata.uid.is_empty() {
            return;
        }
        let known = self.pods.find(&Uid::new(&pod.metadata.uid));
        let before = known.and_then(|pod| self.pods.get(pod)).and_then(|entry| entry.node);
        let name = pod.spec.node_name.as_str();
        let node = (!name.is_empty()).then(|| self.names.handle(name));
        let now = self.now();
        let sighted = self.pods.see(pod, node, self.pod_list.number, now);
        let id = sighted.pod;
        if before != node {
            if let Some(node) = node {
                self.names.add_pod(node, id);
            }
            if let Some(before) = before {
                self.names.remove_pod(before, id);
            }
        }
        self.regard(id);
        let Some(node) = node.filter(|node| self.names.known(*node).is_some()) else { return };
        if self.shared.checked.config.enabled.taint_eviction
            && let Some(entry) = self.pods.get(id)
            && (!self.leaving.contains(&entry.uid) || entry.terminating)
        {
            self.leaving.remove(&entry.uid);
            let actions = self.evictions.pod_seen(now, node, &entry.facts(id));
            self.pod_actions(actions);
        }
        if sighted.newly_bound
            && self.must_be_marked(id, node)
            && let Some(entry) = self.pods.get(id)
        {
            self.queue.push(Pending::MarkPod(id, entry.uid.clone()));
        }
    }

    fn lose_pod(&mut self, pod: PodId) {
        let now = self.now();
        if self.evictions.pod_gone(pod).is_some_and(|due| due > now) {
            self.pod_actions(vec![PodAction::TellCancelled(pod)]);
        }
        let Some(entry) = self.pods.remove(pod) else { return };
        self.clearing.remove(&entry.uid);
        self.leaving.remove(&entry.uid);
        if let Some(node) = entry.node {
            self.names.remove_pod(node, pod);
        }
    }
}
