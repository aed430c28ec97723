//! Keeps the Node's status current: written when something changed, or when a report is due.
//!
//! Rule: the newest object wins, whether from the watch or from the response to a patch. What the
//! runtime reports is compared when it changes; everything else every `nodeStatusUpdateFrequency`.
//! An update that fails is retried from a fresh read, and then at the next check.
//!
//! upstream: pkg/kubelet/kubelet_node_status.go (syncNodeStatus)

use super::registration::{decode, register};
use super::{ClusterNode, HEARTBEAT_TIMEOUT, with_timeout};
use node_status::report_schedule::{ReportCause, ReportSchedule};
use node_status::update::{UpdateState, update};
use node_status::{NodeObject, status_patch};
use ports::FeedEvent;
use ports::cluster_api::{ObjectPath, Patch, PatchKind};
use std::sync::Arc;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{error, info, warn};

/// Attempts at one update.
const ATTEMPTS: u32 = 5;

struct NodeStatusUpdater {
    node: Arc<ClusterNode>,
    known: Option<Arc<NodeObject>>,
    /// From a list that has not ended.
    listed: Option<NodeObject>,
    memory: UpdateState,
    schedule: ReportSchedule,
    started: Instant,
}

/// Registers, then keeps the status current, for ever.
pub(super) async fn keep_status_current(node: Arc<ClusterNode>) {
    let mut keeper = NodeStatusUpdater::new(node.clone());
    if node.dependencies.settings.registers {
        let registered = register(&node).await;
        keeper.memory.unschedulable = registered.spec.unschedulable;
        keeper.take(Some(registered));
    }
    let mut feed = node.dependencies.api.watch_own_node(node.name());
    let (mut view, mut state) = node.facts.changes();
    let mut plugins = node.facts.plugin_changes();
    let mut look = tokio::time::interval(node.dependencies.settings.update_frequency);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_listed = false;
    loop {
        let is_due = tokio::select! {
            event = feed.next() => keeper.on_feed_event(event),
            _ = look.tick() => true,
            changed = view.changed() => changed.is_ok(),
            changed = state.changed() => changed.is_ok(),
            () = plugins.changed() => true,
            () = node.facts.wait_until_listed(), if !was_listed => {
                was_listed = true;
                true
            }
        };
        while let Some(event) = feed.ready() {
            keeper.on_feed_event(event);
        }
        if is_due {
            keeper.update().await;
        }
    }
}

impl NodeStatusUpdater {
    fn new(node: Arc<ClusterNode>) -> Self {
        let known = node.node_object.borrow().clone();
        let (memory, schedule) = (UpdateState::default(), ReportSchedule::default());
        Self { node, known, listed: None, memory, schedule, started: Instant::now() }
    }

    /// Whether the status must be compared again.
    fn on_feed_event(&mut self, event: FeedEvent<NodeObject>) -> bool {
        match event {
            FeedEvent::ListBegun => self.listed = None,
            FeedEvent::Listed(nodes) => {
                self.listed = nodes.into_iter().next().or(self.listed.take());
            }
            FeedEvent::ListEnded => {
                let is_due = match self.listed.take() {
                    Some(node) => self.take_newer(node),
                    None => self.lost(),
                };
                self.node.is_listed.send_replace(true);
                return is_due;
            }
            FeedEvent::Applied(node) => return self.take_newer(node),
            FeedEvent::Deleted(_) => return self.lost(),
            FeedEvent::Unreadable { cause, .. } => {
                error!(err = cause, "The Node as the API server has it cannot be read");
            }
            FeedEvent::Interrupted(error) => {
                warn!(err = %error, "Changes of the Node are not received now");
            }
            FeedEvent::Resumed => {}
        }
        false
    }

    fn lost(&mut self) -> bool {
        if self.known.is_some() {
            error!(
                node = self.node.name(),
                "The Node was deleted; it is registered again when the agent is restarted"
            );
        }
        self.take(None);
        false
    }

    fn take_newer(&mut self, node: NodeObject) -> bool {
        let version = |node: &NodeObject| node.metadata.resource_version.parse::<u64>().ok();
        if let Some(known) = &self.known
            && known.metadata.uid == node.metadata.uid
            && version(&node) <= version(known)
            && version(&node).is_some()
        {
            return false;
        }
        self.take(Some(node));
        true
    }

    fn take(&mut self, node: Option<NodeObject>) {
        self.known = node.map(Arc::new);
        // Where the Node was deleted, admission keeps the last one.
        if let Some(known) = &self.known {
            self.node.admissions.set_node(known);
        }
        self.node.node_object.send_replace(self.known.clone());
    }

    async fn update(&mut self) {
        for attempt in 0..ATTEMPTS {
            if attempt > 0
                && let Err(why) = self.read().await
            {
                error!(err = why, "Error updating node status, will retry");
                continue;
            }
            match self.try_update().await {
                Ok(()) => return,
                Err(why) => error!(err = why, "Error updating node status, will retry"),
            }
        }
        error!(err = "update node status exceeds retry count", "Unable to update node status");
    }

    async fn read(&mut self) -> Result<(), String> {
        let path = ObjectPath::node(self.node.name());
        let stored =
            with_timeout(HEARTBEAT_TIMEOUT, self.node.dependencies.heartbeats.read(&path)).await;
        let node = decode(&stored.map_err(|error| error.to_string())?)?;
        self.take(Some(node));
        Ok(())
    }

    async fn try_update(&mut self) -> Result<(), String> {
        let node = self.node.clone();
        let settings = &node.dependencies.settings;
        let Some(existing) = self.known.clone() else {
            info!(v = 2, node = node.name(), "There is no Node to write the status of");
            return Ok(());
        };
        let facts = node.facts.read(settings).await;
        let now = node.clock.now();
        let mut memory = self.memory.clone();
        let next = update(&settings.node, &facts, &existing, &mut memory, now);
        let frequency = millis(settings.report_frequency);
        let since_start = millis(self.started.elapsed());
        if !next.changed && !self.schedule.is_due(since_start, frequency) {
            self.memory = memory;
            node.record(&next.events);
            return Ok(());
        }
        for why in &next.errors {
            warn!(err = why, "A part of the node's status cannot be filled in");
        }
        if let Some(patch) = status_patch(&existing, &next.node) {
            let patch = Patch {
                kind: PatchKind::StrategicMerge,
                subresource: Some("status".into()),
                body: patch.to_string().into_bytes(),
            };
            let path = ObjectPath::node(node.name());
            let stored = node.dependencies.heartbeats.patch(&path, patch);
            let stored =
                with_timeout(HEARTBEAT_TIMEOUT, stored).await.map_err(|error| error.to_string())?;
            self.take(Some(decode(&stored)?));
        }
        self.memory = memory;
        node.record(&next.events);
        let cause = if next.changed { ReportCause::Change } else { ReportCause::Period };
        self.schedule = self.schedule.reported(since_start, frequency, cause, node.random());
        Ok(())
    }
}

fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
