//! The pods of the API server, shared by everything that reads them.
//!
//! Rule: written by the feed, and by answers to writes of this agent; a snapshot is cheap. The feed
//! begins once it is known whether there is a Node: admission depends on its labels.

use crate::clock::AgentClock;
use crate::cluster_node::NodeFeed;
use pod_desired::{ApiPodEntry, ApiPods};
use ports::{ApiPod, ClusterApi, FeedEvent};
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// Cheap to clone; all clones are one store.
#[derive(Clone)]
pub(crate) struct ApiPodStore {
    pods: Arc<watch::Sender<ApiPods>>,
    clock: AgentClock,
    /// Whether this node has an API server.
    is_used: bool,
}

impl ApiPodStore {
    pub(crate) fn new(clock: AgentClock, is_used: bool) -> Self {
        Self { pods: Arc::new(watch::Sender::new(ApiPods::default())), clock, is_used }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<ApiPods> {
        self.pods.subscribe()
    }

    pub(crate) fn snapshot(&self) -> ApiPods {
        self.pods.borrow().clone()
    }

    pub(crate) fn entry(&self, uid: &str) -> Option<Arc<ApiPodEntry>> {
        self.pods.borrow().pods.get(uid).cloned()
    }

    /// Whether nothing is missing: listed, or no pods come from an API server.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_used || self.pods.borrow().is_listed
    }

    fn apply(&self, event: FeedEvent<ApiPod>) {
        let now = self.clock.now();
        self.pods.send_if_modified(|pods| pods.apply(event, now));
    }

    /// The answer to a write of this agent.
    pub(super) fn apply_answer(&self, pod: ApiPod) {
        let now = self.clock.now();
        self.pods.send_if_modified(|pods| pods.apply_answer(pod, now));
    }
}

/// Follows the feed for ever.
pub(super) async fn follow(
    api: Arc<dyn ClusterApi>,
    node_name: String,
    store: ApiPodStore,
    mut node_feed: NodeFeed,
) {
    // Cannot fail: the sender lives as long as the tasks of the node.
    let _ = node_feed.is_listed.wait_for(|is_listed| *is_listed).await;
    let mut feed = api.watch_node_pods(&node_name);
    let mut is_interrupted = false;
    loop {
        let event = feed.next().await;
        match &event {
            FeedEvent::Unreadable { object, cause, .. } => {
                error!(pod = object, err = cause, "A pod of the API server cannot be read");
            }
            FeedEvent::Interrupted(error) if !is_interrupted => {
                is_interrupted = true;
                warn!(err = %error, "Changes of pods are not received now; pods go on running");
            }
            FeedEvent::Resumed => {
                is_interrupted = false;
                info!("Changes of pods are received again");
            }
            _ => {}
        }
        store.apply(event);
    }
}
