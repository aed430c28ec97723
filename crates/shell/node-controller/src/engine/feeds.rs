//! Applies watch events: updates the tables of nodes and pods, and the state machines that decide.
//!
//! Rule: level-triggered. A list replaces what was known; an event changes one object. An object
//! that cannot be parsed keeps its last known state, and is logged.

use std::collections::HashMap;

use node_health::lifecycle::{ObservationSource, WriteKind};
use node_health::no_execute::PodAction;
use node_health::{ConditionState, ControllerTime, NodeId, PodId, RemoteTime};
use ports::FeedEvent;
use ports::cluster_objects::{Node, Pod, Renewal};
use tracing::{info, warn};

use super::Engine;
use super::queue::Pending;
use crate::convert;
use crate::names::KnownNode;
use crate::uid::Uid;

impl Engine {
    pub(super) fn node_event(&mut self, event: FeedEvent<Node>) {
        match event {
            FeedEvent::ListBegun => self.node_list.number += 1,
            FeedEvent::Listed(nodes) => {
                for node in nodes {
                    self.upsert_node(&node, ObservationSource::List);
                }
            }
            FeedEvent::ListEnded => {
                for node in self.names.not_in_list(self.node_list.number) {
                    self.drop_node(node);
                }
                self.lease_freshness.set_nodes_watch_open(true);
                self.node_list.complete = true;
                self.early_renewals = HashMap::new();
                let number = self.node_list.number;
                self.unread_nodes.retain(|_, list| *list == number);
                self.changed = true;
                self.begin_ranges();
                self.report_synced();
            }
            FeedEvent::Applied(node) => self.upsert_node(&node, ObservationSource::Event),
            FeedEvent::Deleted(node) => {
                if let Some(id) = self.names.find(&node.metadata.name)
                    && self.names.known(id).is_some_and(|it| it.uid == Uid::new(&node.metadata.uid))
                {
                    self.drop_node(id);
                }
                self.forget_unparsable_node(&node.metadata.name);
            }
            FeedEvent::Unreadable { object, deleted, cause } => {
                warn!(object, deleted, cause, "A node cannot be parsed");
                self.keep_unparsable_node(&object, deleted);
            }
            FeedEvent::Interrupted(error) => {
                warn!(err = %error, "Node watch interrupted");
                self.lease_freshness.set_nodes_watch_open(false);
            }
            FeedEvent::Resumed => self.lease_freshness.set_nodes_watch_open(true),
        }
    }

    /// Records that an unparsable node exists: the end of the list must neither remove it nor free
    /// its pod CIDR. `object` is `kind/name`; the name is empty if it cannot be parsed either.
    fn keep_unparsable_node(&mut self, object: &str, deleted: bool) {
        let name = object.rsplit('/').next().unwrap_or_default();
        let list = self.node_list.number;
        if let Some(known) = self.names.find(name).and_then(|id| self.names.known_mut(id)) {
            known.list = list;
            return;
        }
        if deleted && !name.is_empty() {
            return self.forget_unparsable_node(name);
        }
        // After the first list an unparsable node needs no entry: a node that joins later has no
        // pod CIDR but the one that this controller assigns, and it assigns none to such a node.
        if !self.node_list.complete || self.unread_nodes.contains_key(name) {
            self.unread_nodes.insert(name.into(), list);
        }
    }

    /// Records that the unparsable node of this name was deleted, or can be parsed again.
    fn forget_unparsable_node(&mut self, name: &str) {
        if self.unread_nodes.remove(name).is_some() {
            self.begin_ranges();
        }
    }

    pub(super) fn report_synced(&mut self) {
        if self.synced() {
            info!(nodes = self.names.len(), pods = self.pods.len(), "Initial lists complete");
            self.shared.counters.synced(true);
        }
    }

    /// Applies the current state of a node, which may be new.
    pub(super) fn upsert_node(&mut self, node: &Node, source: ObservationSource) {
        if node.metadata.name.is_empty() {
            return;
        }
        let id = self.names.handle(&node.metadata.name);
        let uid = Uid::new(&node.metadata.uid);
        if self.names.known(id).is_some_and(|known| known.uid != uid) {
            self.drop_node(id);
            // Another node of the same name. Its handle is looked up again, because dropping the
            // old node may have freed it.
            return self.upsert_node(node, source);
        }
        let is_new = self.names.known(id).is_none();
        let (version, odd_version) = self.version_of(id, &node.metadata.resource_version);
        let now = self.now();
        let facts = convert::node_facts(node, version);
        // `node_facts` leaves out unparsable taints.
        let odd_taints = facts.taints.len() < node.spec.taints.len();
        let list = self.node_list.number;
        let terminating = node.metadata.deletion_timestamp.is_some();
        let known = KnownNode { uid, list, odd_version, odd_taints, terminating };
        if is_new {
            self.names.arrive(id, known);
        } else if let Some(entry) = self.names.known_mut(id) {
            *entry = known;
        }
        let actions = self.lifecycle.observe(now, id, facts, source);
        if let Some(renewed) = self.early_renewals.remove(node.metadata.name.as_str()) {
            self.lifecycle.observe_listed_lease(now, id, renewed);
        }
        self.apply_actions(actions);
        if !odd_taints && self.unreadable.remove(&id) {
            self.report_unsent(now, id, WriteKind::Taints);
        }
        self.evaluate_node_taints(now, id);
        if is_new {
            self.cleanup.on_node_added(&node.metadata.name);
            self.update_cleanup_interest_of_node(id);
            self.mark_earlier_pods(id);
            self.published.changed();
        }
        self.see_range(id, node);
        self.forget_unparsable_node(&node.metadata.name);
        self.schedule_description(id);
        self.shared.counters.node_looked_at(self.now().since(now));
    }

    /// Marks the pods of a new, not ready node that were listed before the node as not ready: a
    /// previous leader may have died before it marked them. Pods listed after their node are marked
    /// one by one.
    fn mark_earlier_pods(&mut self, node: NodeId) {
        if matches!(self.lifecycle.node_ready(node), None | Some(ConditionState::True)) {
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

    /// The resource version as a number, to order observations. One that is not a number counts as
    /// the successor of the last one, and is returned as text too.
    fn version_of(&self, node: NodeId, text: &str) -> (u64, Option<Box<str>>) {
        match text.parse() {
            Ok(version) => (version, None),
            Err(_) => {
                let last = self.lifecycle.facts(node).map_or(0, |facts| facts.version);
                (last.saturating_add(1), Some(text.into()))
            }
        }
    }

    /// Removes a node that was deleted.
    pub(super) fn drop_node(&mut self, node: NodeId) {
        let actions = self.lifecycle.forget(node);
        self.apply_actions(actions);
        let pods = self.names.pods(node).to_vec();
        self.evictions.on_node_deleted(node, pods.iter().copied());
        self.lose_range(node);
        self.forget_cloud(node);
        self.marking.remove(&node);
        self.unreadable.remove(&node);
        self.names.depart(node);
        for pod in pods {
            self.update_cleanup_interest(pod);
        }
        self.published.changed();
    }

    /// Schedules or cancels evictions according to a node's taints.
    pub(super) fn evaluate_node_taints(&mut self, now: ControllerTime, node: NodeId) {
        if !self.shared.checked.config.enabled.taint_eviction {
            return;
        }
        if let Some(proven) = self.lease_freshness.proven() {
            self.evictions.confirm_untainted(node, proven);
        }
        let Some(facts) = self.lifecycle.facts(node) else { return };
        let pods = self.names.pods(node).iter();
        let pods = pods.filter_map(|pod| Some((*pod, self.pods.get(*pod)?)));
        let pods = pods.filter(|(_, entry)| !self.leaving.contains(&entry.uid));
        let pods = pods.map(|(pod, entry)| entry.facts(pod));
        let actions = self.evictions.observe_node(now, node, facts, pods);
        self.pod_actions(actions);
    }

    pub(super) fn lease_event(&mut self, event: FeedEvent<Renewal>) {
        let now = self.now();
        match event {
            FeedEvent::ListBegun => {
                self.lease_list.number += 1;
                self.early_renewals.clear();
                self.lease_freshness.on_list_started();
            }
            FeedEvent::Listed(leases) => {
                for lease in leases {
                    if let Some((node, renewed)) = self.lease_of(&lease) {
                        self.lifecycle.observe_listed_lease(now, node, renewed);
                    }
                }
            }
            FeedEvent::ListEnded => {
                self.lease_list.complete = true;
                self.lease_freshness.on_list_finished(now);
                self.report_synced();
            }
            FeedEvent::Applied(lease) => {
                let is_fresh = self.lease_freshness.on_change(now);
                let Some((node, renewed)) = self.lease_of(&lease) else { return };
                if is_fresh {
                    self.lifecycle.observe_lease(now, node, renewed);
                } else {
                    self.lifecycle.observe_listed_lease(now, node, renewed);
                }
            }
            // The deletion of a lease does not renew it: the grace period still runs from its last
            // renewal.
            FeedEvent::Deleted(lease) => {
                self.early_renewals.remove(lease.name.as_str());
            }
            FeedEvent::Unreadable { object, cause, .. } => {
                warn!(object, cause, "A lease cannot be parsed");
            }
            FeedEvent::Interrupted(error) => {
                warn!(err = %error, "Lease watch interrupted");
                self.lease_freshness.on_interrupted();
            }
            FeedEvent::Resumed => self.lease_freshness.on_resumed(now),
        }
    }

    /// The node of a lease, and when the lease was renewed. While the first node list is
    /// incomplete, a lease that is seen before its node is kept for it: otherwise the lease's next
    /// event would count as a heartbeat, and a node that died before this controller started would
    /// get its grace period twice.
    fn lease_of(&mut self, lease: &Renewal) -> Option<(NodeId, RemoteTime)> {
        let renewed = RemoteTime::from_nanos(lease.renewed?.nanos());
        let node = self.names.find(&lease.name).filter(|node| self.names.known(*node).is_some());
        if node.is_none() && !self.node_list.complete {
            self.early_renewals.insert(lease.name.as_str().into(), renewed);
        }
        Some((node?, renewed))
    }

    pub(super) fn pod_event(&mut self, event: FeedEvent<Pod>) {
        match event {
            FeedEvent::ListBegun => self.pod_list.number += 1,
            FeedEvent::Listed(pods) => {
                for pod in pods {
                    self.upsert_pod(&pod);
                }
            }
            FeedEvent::ListEnded => {
                for pod in self.pods.not_in_list(self.pod_list.number) {
                    self.drop_pod(pod);
                }
                self.pod_list.complete = true;
                self.report_synced();
            }
            FeedEvent::Applied(pod) => self.upsert_pod(&pod),
            FeedEvent::Deleted(pod) => {
                if let Some(pod) = self.pods.find(&Uid::new(&pod.metadata.uid)) {
                    self.drop_pod(pod);
                }
            }
            FeedEvent::Unreadable { object, cause, .. } => {
                warn!(object, cause, "A pod cannot be parsed");
            }
            FeedEvent::Interrupted(error) => warn!(err = %error, "Pod watch interrupted"),
            FeedEvent::Resumed => {}
        }
    }

    fn upsert_pod(&mut self, pod: &Pod) {
        if pod.metadata.uid.is_empty() {
            return;
        }
        let known = self.pods.find(&Uid::new(&pod.metadata.uid));
        let before = known.and_then(|pod| self.pods.get(pod)).and_then(|entry| entry.node);
        let name = pod.spec.node_name.as_str();
        let node = (!name.is_empty()).then(|| self.names.handle(name));
        let now = self.now();
        let pod_change = self.pods.upsert(pod, node, self.pod_list.number, now);
        let id = pod_change.pod;
        if before != node {
            if let Some(node) = node {
                self.names.add_pod(node, id);
            }
            if let Some(before) = before {
                self.names.remove_pod(before, id);
            }
        }
        self.update_cleanup_interest(id);
        let Some(node) = node.filter(|node| self.names.known(*node).is_some()) else { return };
        if self.shared.checked.config.enabled.taint_eviction
            && let Some(entry) = self.pods.get(id)
            && (!self.leaving.contains(&entry.uid) || entry.terminating)
        {
            self.leaving.remove(&entry.uid);
            let actions = self.evictions.observe_pod(now, node, &entry.facts(id));
            self.pod_actions(actions);
        }
        if pod_change.newly_bound
            && self.must_be_marked(id, node)
            && let Some(entry) = self.pods.get(id)
        {
            self.queue.push(Pending::MarkPod(id, entry.uid.clone()));
        }
    }

    fn drop_pod(&mut self, pod: PodId) {
        let now = self.now();
        if self.evictions.on_pod_deleted(pod).is_some_and(|due| due > now) {
            self.pod_actions(vec![PodAction::EmitCancelled(pod)]);
        }
        let Some(entry) = self.pods.remove(pod) else { return };
        self.clearing.remove(&entry.uid);
        self.leaving.remove(&entry.uid);
        if let Some(node) = entry.node {
            self.names.remove_pod(node, pod);
        }
    }
}
