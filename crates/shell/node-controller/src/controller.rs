//! The controller's public API: start, query, stop.
//!
//! Rule: this is a handle; clones are the same controller. Answers come from published state or
//! from the task that owns the state, with a timeout.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ports::{CloudProvider, ClusterApi};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::clock::{ControllerClock, SystemEnvironment};
use crate::config::{ConfigError, ControllerConfig, ValidatedConfig, validate};
use crate::counters::Counters;
use crate::election::{self, LeaderView};
use crate::events::EventRecorder;
use crate::report::{Explanation, HealthState, MetricFamily};

/// Timeout of a query.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How many queries may be queued.
const EXPLAIN_QUEUE: usize = 16;

/// A query to the task that owns the state.
pub(crate) struct ExplainRequest {
    pub(crate) node: String,
    pub(crate) reply: oneshot::Sender<Explanation>,
}

/// The clients of one API server. Each should have its own rate limit, so that a thousand queued
/// deletions delay neither the leader's lease nor a check of a node's lease.
#[derive(Clone)]
pub struct ApiClients {
    /// Watches, writes, and their reads.
    pub work: Arc<dyn ClusterApi>,
    /// Reads of nodes' leases, in addition to the watch.
    pub lease_reads: Arc<dyn ClusterApi>,
    /// The leader's lease.
    pub election: Arc<dyn ClusterApi>,
}

impl ApiClients {
    /// One client for everything; for clients without a rate limit.
    #[must_use]
    pub fn one(api: Arc<dyn ClusterApi>) -> Self {
        Self { work: api.clone(), lease_reads: api.clone(), election: api }
    }
}

/// State shared by all tasks of one controller.
pub(crate) struct ControllerShared {
    pub(crate) checked: ValidatedConfig,
    pub(crate) clients: ApiClients,
    pub(crate) cloud: Option<Arc<dyn CloudProvider>>,
    pub(crate) clock: ControllerClock,
    pub(crate) counters: Counters,
    pub(crate) events: EventRecorder,
    pub(crate) leader: LeaderView,
    pub(crate) explain_queue: tokio::sync::Mutex<mpsc::Receiver<ExplainRequest>>,
}

/// A node controller.
#[derive(Clone)]
pub struct NodeController {
    shared: Arc<ControllerShared>,
    explain_requests: mpsc::Sender<ExplainRequest>,
}

impl NodeController {
    /// Creates a controller without any request yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the configuration is inconsistent.
    pub fn new(
        config: ControllerConfig,
        clients: ApiClients,
        cloud: Option<Arc<dyn CloudProvider>>,
        surroundings: Arc<dyn SystemEnvironment>,
    ) -> Result<Self, ConfigError> {
        let checked = validate(config)?;
        let (explain_requests, explain_queue) = mpsc::channel(EXPLAIN_QUEUE);
        let clock = ControllerClock::new(surroundings);
        let leader = LeaderView::new(checked.leader.as_ref().map(|(config, _)| config));
        let counters = Counters::default();
        let shared = ControllerShared {
            checked,
            clients,
            cloud,
            events: EventRecorder::new(clock.clone(), counters.clone()),
            counters,
            leader,
            clock,
            explain_queue: tokio::sync::Mutex::new(explain_queue),
        };
        Ok(Self { shared: Arc::new(shared), explain_requests })
    }

    /// Runs until `shutdown` completes; releases the lease on shutdown.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        election::run(self.shared.clone(), shutdown).await;
    }

    /// All metrics as they are now.
    #[must_use]
    pub fn metrics(&self) -> Vec<MetricFamily> {
        let mut families = self.shared.counters.families();
        families.extend(self.shared.leader.families());
        families
    }

    /// The checks of `/healthz`: whether a leader that cannot renew has failed to stop, and one
    /// check per running controller.
    #[must_use]
    pub fn health(&self) -> Vec<HealthState> {
        let now = self.shared.clock.now();
        let mut checks = vec![self.shared.leader.health(now)];
        checks.extend(self.shared.counters.health(&self.shared.checked.config));
        checks
    }

    /// Whether nodes, leases and pods were each listed since this instance became leader; before
    /// that it decides nothing.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.is_leading() && self.shared.counters.is_synced()
    }

    /// Whether this instance may act now.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.shared.leader.may_act(self.shared.clock.now())
    }

    /// Explains the state of a node and what happens to its pods.
    pub async fn explain(&self, node: &str) -> Explanation {
        let (reply, answered) = oneshot::channel();
        let question = ExplainRequest { node: node.to_owned(), reply };
        let asked = async {
            self.explain_requests.send(question).await.ok()?;
            answered.await.ok()
        };
        if let Ok(Some(found)) = timeout(EXPLAIN_TIMEOUT, asked).await {
            return found;
        }
        let leader = self.shared.leader.holder();
        let outlook = match leader.as_str() {
            _ if self.is_leading() => "This controller is busy; ask again.".to_owned(),
            "" => "This controller does not lead, and knows of no leader.".to_owned(),
            leader => format!("This controller does not lead; ask {leader}."),
        };
        Explanation {
            node: node.to_owned(),
            leading: self.is_leading(),
            taints: Vec::new(),
            outlook,
            pods: Vec::new(),
            notes: Vec::new(),
        }
    }
}
