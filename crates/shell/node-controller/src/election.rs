//! Leader election, and with it the lifetime of the engine.
//!
//! Rule: the engine exists only while this instance leads; it is stopped before the lease is
//! released, and at the latest when the instance may no longer act, whatever the API server does.
//! Losing the lease does not end the process: it becomes a candidate again. The decisions are in
//! [`node_health::leader`].

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_health::leader::{
    Candidate, Jitter, LeaderElectionRecord, LeaderElectionTimes, LeadershipChange, LeaseResult,
    LeaseStep,
};
use node_health::{ControllerTime, RemoteTime};
use ports::cluster_api::{ClusterEvent, ClusterEventType, ObjectReference};
use ports::cluster_objects::{Lease, LeaseSpec};
use ports::{ApiTime, ClusterApiError};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tracing::{info, warn};

use crate::config::LeaderConfig;
use crate::controller::ControllerShared;
use crate::counters::line;
use crate::engine;
use crate::report::{HealthState, MetricFamily, MetricKind};

/// How long after its lease expired an instance may still consider itself leader before it is
/// reported unhealthy: upstream's watchdog.
const LEASE_HEALTH_GRACE: Duration = Duration::from_secs(20);
/// Timeout of releasing the lease on shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct LeadershipState {
    name: Option<String>,
    lease: Duration,
    holder: String,
    may_act_until: Option<ControllerTime>,
    renewed: Option<ControllerTime>,
    slow_renewals: u64,
}

/// The election's state for other tasks. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LeaderView(Arc<Mutex<LeadershipState>>);

impl LeaderView {
    /// Without election this instance leads from the start.
    pub(crate) fn new(config: Option<&LeaderConfig>) -> Self {
        let alone = ControllerTime::from_nanos(i64::MAX);
        Self(Arc::new(Mutex::new(LeadershipState {
            name: config.map(|config| config.name.clone()),
            lease: config.map_or(Duration::MAX, |config| config.lease_duration),
            holder: String::new(),
            may_act_until: config.is_none().then_some(alone),
            renewed: None,
            slow_renewals: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, LeadershipState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn may_act(&self, now: ControllerTime) -> bool {
        self.lock().may_act_until.is_some_and(|until| now < until)
    }

    /// How long this instance may still act.
    pub(crate) fn time_left(&self, now: ControllerTime) -> Duration {
        self.lock().may_act_until.map_or(Duration::ZERO, |until| until.since(now))
    }

    pub(crate) fn holder(&self) -> String {
        self.lock().holder.clone()
    }

    fn publish(&self, candidate: &Candidate, renewed: Option<ControllerTime>) {
        let mut view = self.lock();
        view.may_act_until = candidate.may_act_until();
        candidate.leader().clone_into(&mut view.holder);
        view.renewed = renewed.or(view.renewed);
    }

    fn stop(&self) {
        self.lock().may_act_until = None;
    }

    /// Unhealthy only if this instance still considers itself leader long after it could not renew.
    pub(crate) fn health(&self, now: ControllerTime) -> HealthState {
        let view = self.lock();
        let overdue = match (view.may_act_until, view.renewed, &view.name) {
            (Some(_), Some(renewed), Some(name))
                if now.since(renewed) > view.lease.saturating_add(LEASE_HEALTH_GRACE) =>
            {
                Some(format!("failed election to renew leadership on lease {name}"))
            }
            _ => None,
        };
        HealthState { name: "leaderElection".to_owned(), problem: overdue }
    }

    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let view = self.lock();
        let Some(name) = &view.name else { return Vec::new() };
        let labels = || vec![("name", name.clone())];
        let leads = f64::from(u8::from(view.may_act_until.is_some()));
        let slow = u32::try_from(view.slow_renewals).unwrap_or(u32::MAX);
        vec![
            MetricFamily {
                name: "leader_election_master_status",
                help: "Whether this instance leads: 1 if it does, 0 if not.",
                kind: MetricKind::Gauge,
                samples: vec![line(labels(), leads)],
            },
            MetricFamily {
                name: "leader_election_slowpath_total",
                help: "Number of renewals that had to read the lease first.",
                kind: MetricKind::Counter,
                samples: vec![line(labels(), f64::from(slow))],
            },
        ]
    }
}

/// Runs until `shutdown` completes.
pub(crate) async fn run(shared: Arc<ControllerShared>, shutdown: impl Future<Output = ()> + Send) {
    let Some((config, times)) = shared.checked.leader.clone() else {
        // Without a lease it is unknown whether there was an earlier leader.
        tokio::select! {
            () = engine::keep_running(shared.clone(), false) => {}
            () = shutdown => {}
        }
        return;
    };
    let mut election = Election::new(shared, config, times);
    tokio::select! {
        () = election.campaign() => {}
        () = shutdown => {}
    }
    election.release_and_stop().await;
}

struct Election {
    shared: Arc<ControllerShared>,
    config: LeaderConfig,
    candidate: Candidate,
    /// The lease as last read or written.
    known: Lease,
    engine: JoinSet<()>,
    /// Events in flight.
    pending_events: JoinSet<()>,
}

impl Election {
    fn new(
        shared: Arc<ControllerShared>,
        config: LeaderConfig,
        times: LeaderElectionTimes,
    ) -> Self {
        let candidate = Candidate::new(config.identity.clone(), times, shared.clock.now());
        let (engine, pending_events) = (JoinSet::new(), JoinSet::new());
        Self { shared, config, candidate, known: Lease::default(), engine, pending_events }
    }

    async fn campaign(&mut self) {
        loop {
            let now = self.shared.clock.now();
            let changes = self.candidate.changes(now);
            self.shared.leader.publish(&self.candidate, None);
            self.apply(changes).await;
            match self.candidate.step(now) {
                LeaseStep::Wait(until) => {
                    let wake = self.candidate.next_wake().map_or(until, |wake| wake.min(until));
                    sleep_until(self.shared.clock.instant_of(wake)).await;
                }
                step => self.run_step(step).await,
            }
        }
    }

    /// Sends the request with client-go's timeout, half the renew deadline, and not beyond the time
    /// in which this instance may act.
    async fn run_step(&mut self, step: LeaseStep) {
        let sent = self.shared.clock.now();
        let mut limit = self.config.renew_deadline / 2;
        if let Some(until) = self.candidate.may_act_until() {
            limit = limit.min(until.since(sent)).max(Duration::from_millis(1));
        }
        let reads = step == LeaseStep::Read;
        let answer = match timeout(limit, self.send_step(step)).await {
            Ok(answer) => answer,
            Err(_) => {
                warn!(lease = self.config.name, "No answer about the leader's lease in time");
                LeaseResult::Failed
            }
        };
        let now = self.shared.clock.now();
        let renewed = matches!(answer, LeaseResult::Written(_)).then_some(now);
        if reads && self.candidate.may_act_until().is_some() {
            self.shared.leader.lock().slow_renewals += 1;
        }
        let jitter = Jitter::new(u16::try_from(self.shared.clock.random() % 1_000).unwrap_or(0));
        let changes = self.candidate.on_result(sent, now, answer, jitter);
        self.shared.leader.publish(&self.candidate, renewed);
        self.apply(changes).await;
    }

    async fn send_step(&mut self, step: LeaseStep) -> LeaseResult {
        let api = self.shared.clients.election.clone();
        let outcome = match step {
            LeaseStep::Wait(_) => return LeaseResult::Failed,
            LeaseStep::Read => {
                let found = api.read_lease(&self.config.namespace, &self.config.name).await;
                match found {
                    Err(ClusterApiError::NotFound { .. }) => return LeaseResult::NotFound,
                    Ok(lease) => {
                        let record = record_of(&lease.spec);
                        self.known = lease;
                        return LeaseResult::Found(record);
                    }
                    Err(error) => Err(error),
                }
            }
            LeaseStep::Create(record) => {
                let mut lease = Lease::default();
                lease.metadata.namespace.clone_from(&self.config.namespace);
                lease.metadata.name.clone_from(&self.config.name);
                lease.spec = self.spec_of(&record);
                api.create_lease(&lease).await
            }
            LeaseStep::Update(record) => {
                let spec = self.spec_of(&record);
                let lease = Lease { metadata: self.known.metadata.clone(), spec };
                api.update_lease(&lease).await
            }
        };
        match outcome {
            Ok(lease) => {
                let record = record_of(&lease.spec);
                self.known = lease;
                LeaseResult::Written(record)
            }
            Err(error) => {
                warn!(err = %error, "Failed to write the leader's lease");
                LeaseResult::Failed
            }
        }
    }

    /// The record with wall-clock times, since others display it.
    fn spec_of(&self, record: &LeaderElectionRecord) -> LeaseSpec {
        let wall = self.shared.clock.wall();
        let begins = record.acquired == record.renewed;
        let acquired = if begins { wall } else { ApiTime::from_nanos(record.acquired.nanos()) };
        LeaseSpec {
            holder_identity: (!record.holder.is_empty()).then(|| record.holder.clone()),
            lease_duration_seconds: Some(record.duration_seconds),
            acquire_time: Some(acquired),
            renew_time: Some(wall),
            lease_transitions: Some(record.transitions),
        }
    }

    async fn apply(&mut self, changes: Vec<LeadershipChange>) {
        for change in changes {
            match change {
                LeadershipChange::Began => {
                    info!(identity = self.config.identity, "Leading from now on");
                    self.end_engine().await;
                    let first = self.candidate.is_first();
                    self.engine.spawn(engine::keep_running(self.shared.clone(), first));
                    let sending = self.send_event("became leader");
                    self.pending_events.spawn(sending);
                }
                LeadershipChange::Ended => {
                    warn!(identity = self.config.identity, "Not leading any more");
                    self.end_engine().await;
                    let sending = self.send_event("stopped leading");
                    self.pending_events.spawn(sending);
                }
                LeadershipChange::NewLeader(leader) => info!(leader, "Another instance leads"),
            }
        }
    }

    /// Nothing acts after this; and lists of this term do not count in the next.
    async fn end_engine(&mut self) {
        self.engine.shutdown().await;
        self.shared.counters.synced(false);
    }

    /// Records an event on the lease, as client-go does. A failure is harmless.
    fn send_event(&mut self, what: &str) -> impl Future<Output = ()> + Send + use<> {
        // Remove finished tasks.
        while self.pending_events.try_join_next().is_some() {}
        let about = ObjectReference {
            api_version: "coordination.k8s.io/v1".to_owned(),
            kind: "Lease".to_owned(),
            namespace: self.config.namespace.clone(),
            name: self.config.name.clone(),
            uid: self.known.metadata.uid.clone(),
            resource_version: self.known.metadata.resource_version.clone(),
            field_path: String::new(),
        };
        let event = ClusterEvent {
            about,
            kind: ClusterEventType::Normal,
            reason: "LeaderElection".to_owned(),
            message: format!("{} {what}", self.config.identity),
            component: "keelson-node-controller".to_owned(),
            host: String::new(),
            at: self.shared.clock.wall(),
        };
        let api = self.shared.clients.election.clone();
        let deadline = self.shared.checked.config.writes.deadline;
        async move {
            if let Ok(Err(error)) = timeout(deadline, api.create_event(&event)).await {
                warn!(err = %error, "Failed to record a leader election event");
            }
        }
    }

    /// On shutdown: stops all actions, then releases the lease for the next leader.
    async fn release_and_stop(mut self) {
        self.shared.leader.stop();
        self.end_engine().await;
        let Some(record) = self.candidate.release(self.shared.clock.now()) else { return };
        let spec = self.spec_of(&record);
        let lease = Lease { metadata: self.known.metadata.clone(), spec };
        let api = self.shared.clients.election.clone();
        match timeout(RELEASE_TIMEOUT, api.update_lease(&lease)).await {
            Ok(Ok(_)) => info!("The lease is free for the next leader"),
            Ok(Err(error)) => {
                warn!(err = %error, "Failed to free the leader's lease");
                return;
            }
            Err(_) => {
                warn!("Freeing the leader's lease took too long");
                return;
            }
        }
        // Only after a successful release: shutdown does not wait for an unresponsive API server
        // twice.
        let _ = timeout(RELEASE_TIMEOUT, self.send_event("stopped leading")).await;
    }
}

fn record_of(spec: &LeaseSpec) -> LeaderElectionRecord {
    let stamp = |time: Option<ApiTime>| RemoteTime::from_nanos(time.map_or(0, ApiTime::nanos));
    LeaderElectionRecord {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        duration_seconds: spec.lease_duration_seconds.unwrap_or(0),
        acquired: stamp(spec.acquire_time),
        renewed: stamp(spec.renew_time),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}
