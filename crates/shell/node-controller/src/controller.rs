//! The controller as its owner sees it: start it, ask it, end it.
//!
//! Rule: a handle; clones are the same controller. Answers come from what the tasks published or
//! are asked of the task that owns the state, with a limit on the wait.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ports::{CloudProvider, ClusterApi};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::clock::{Clock, Surroundings};
use crate::config::{Checked, ConfigError, ControllerConfig, check};
use crate::counters::Counters;
use crate::election::{self, LeaderView};
use crate::events::Events;
use crate::report::{Explanation, HealthState, MetricFamily};

/// How long a question may wait for its answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How many questions may wait.
const QUESTIONS: usize = 16;

/// What somebody wants to know of the task that owns the state.
pub(crate) struct Question {
    pub(crate) node: String,
    pub(crate) answer: oneshot::Sender<Explanation>,
}

/// The ways to one API server. Each is to have a rate of its own, so that a thousand deletions that
/// wait for their turn hold up neither the leader's lease nor a look at whether a node lives.
#[derive(Clone)]
pub struct Clients {
    /// Watches, writes, and what belongs to them.
    pub work: Arc<dyn ClusterApi>,
    /// Reads of nodes' leases, past the watch.
    pub looks: Arc<dyn ClusterApi>,
    /// The leader's lease.
    pub election: Arc<dyn ClusterApi>,
}

impl Clients {
    /// One client for all; for one without a rate.
    #[must_use]
    pub fn one(api: Arc<dyn ClusterApi>) -> Self {
        Self { work: api.clone(), looks: api.clone(), election: api }
    }
}

/// What all tasks of one controller share.
pub(crate) struct Shared {
    pub(crate) checked: Checked,
    pub(crate) clients: Clients,
    pub(crate) cloud: Option<Arc<dyn CloudProvider>>,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    pub(crate) leader: LeaderView,
    pub(crate) questions: tokio::sync::Mutex<mpsc::Receiver<Question>>,
}

/// A node controller.
#[derive(Clone)]
pub struct NodeController {
    shared: Arc<Shared>,
    ask: mpsc::Sender<Question>,
}

impl NodeController {
    /// Makes a controller; nothing is asked and nothing written yet. To be called within tokio.
    ///
    /// # Errors
    /// When the configuration does not hold together.
    pub fn new(
        config: ControllerConfig,
        clients: Clients,
        cloud: Option<Arc<dyn CloudProvider>>,
        surroundings: Arc<dyn Surroundings>,
    ) -> Result<Self, ConfigError> {
        let checked = check(config)?;
        let (ask, questions) = mpsc::channel(QUESTIONS);
        let clock = Clock::new(surroundings);
        let leader = LeaderView::new(checked.leader.as_ref().map(|(config, _)| config));
        let counters = Counters::default();
        let shared = Shared {
            checked,
            clients,
            cloud,
            events: Events::new(clock.clone(), counters.clone()),
            counters,
            leader,
            clock,
            questions: tokio::sync::Mutex::new(questions),
        };
        Ok(Self { shared: Arc::new(shared), ask })
    }

    /// Runs until `shutdown` is ready; frees the lease on the way out.
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

    /// What `/healthz` asks for: whether a leader that cannot renew has failed to stop, and one
    /// check for each controller that runs.
    #[must_use]
    pub fn health(&self) -> Vec<HealthState> {
        let now = self.shared.clock.now();
        let mut checks = vec![self.shared.leader.health(now)];
        checks.extend(self.shared.counters.health(&self.shared.checked.config));
        checks
    }

    /// Whether nodes, leases and pods were each listed since this instance began to lead; before
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

    /// Why a node is as it is, and what will become of its pods.
    pub async fn explain(&self, node: &str) -> Explanation {
        let (answer, answered) = oneshot::channel();
        let question = Question { node: node.to_owned(), answer };
        let asked = async {
            self.ask.send(question).await.ok()?;
            answered.await.ok()
        };
        if let Ok(Some(found)) = timeout(ANSWER, asked).await {
            return found;
        }
        let leader = self.shared.leader.holder();
        let outlook = match leader.as_str() {
            _ if self.is_leading() => "This controller is busy; ask again.".to_owned(),
            "" => "This controller does not lead, and knows of nobody who does.".to_owned(),
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
