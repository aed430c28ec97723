//! What the watches tell, carried into the tables and the decisions.
//!
//! Rule: level, not edge. A list replaces what was known; an event only adds to it. An object that
//! cannot be read is left as it was last known, and logged.

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
                warn!(object, deleted, cause, "A node cannot be read");
                self.keep_node(&object, deleted);
            }
            FeedEvent::Interrupted(error) => {
                warn!(err = %error, "Nodes are not heard any more");
                self.sight.nodes_heard(false);
            }
            FeedEvent::Resumed => self.sight.nodes_heard(true),
        }
    }

    /// A node that cannot be read is there all the same: the end of a list must not take it for
    /// gone, nor its range for free. Feeds name it with its kind before a slash; of some not even the
    /// name can be read.
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
        // One that comes later has no range but what we give it, and we give it none.
        if !self.node_list.complete || self.unread_nodes.contains_key(name) {
            self.unread_nodes.insert(name.into(), list);
        }
    }

    /// A node of this name is gone, or can be read.
    fn no_longer_unread(&mut self, name: &str) {
        if self.unread_nodes.remove(name).is_some() {
            self.begin_ranges();
        }
    }

    pub(super) fn tell_synced(&mut self) {
        if self.synced() {
            info!(nodes = self.names.len(), pods = self.pods.len(), "All is listed");
            self.shared.counters.synced(true);
        }
    }

    /// A node is there, in this version.
    pub(super) fn see_node(&mut self, node: &Node, seen: Seen) {
        if node.metadata.name.is_empty() {
            return;
        }
        let id = self.names.handle(&node.metadata.name);
        let uid = Uid::new(&node.metadata.uid);
        if self.names.known(id).is_some_and(|known| known.uid != uid) {
            self.lose_node(id);
            // The place may have been given back with the last use of its name.
            return self.see_node(node, seen);
        }
        let arrives = self.names.known(id).is_none();
        let (version, odd_version) = self.version_of(id, &node.metadata.resource_version);
        let now = self.now();
        let facts = convert::node_facts(node, version);
        // One that cannot be read is not among them.
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

    /// Pods that were seen before their node, if that is lost: whoever was the controller then may
    /// have ended before it marked them. Those that come after it are looked at one by one.
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

    /// Versions are numbers that grow; one that is none follows what we had.
    fn version_of(&self, node: NodeId, text: &str) -> (u64, Option<Box<str>>) {
        match text.parse() {
            Ok(version) => (version, None),
            Err(_) => {
                let last = self.lifecycle.facts(node).map_or(0, |facts| facts.version);
                (last.saturating_add(1), Some(text.into()))
            }
        }
    }

    /// A node is gone.
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

    /// What a node's taints mean for its pods.
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
            // A lease that is gone is a silent one: the grace runs from its last renewal.
            FeedEvent::Deleted(lease) => {
                self.early_renewals.remove(lease.name.as_str());
            }
            FeedEvent::Unreadable { object, cause, .. } => {
                warn!(object, cause, "A lease cannot be read");
            }
            FeedEvent::Interrupted(error) => {
                warn!(err = %error, "Leases are not heard any more");
                self.sight.interrupted();
            }
            FeedEvent::Resumed => self.sight.resumed(now),
        }
    }

    /// Whose lease it is, and when that was renewed. One that comes before its node, which the first
    /// list has yet to bring, is kept for it: if it were read for the first time later, it would pass
    /// for a sign of life, and a node that had died before we began would have its grace twice.
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
                warn!(object, cause, "A pod cannot be read");
            }
            FeedEvent::Interrupted(error) => warn!(err = %error, "Pods are not heard any more"),
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
