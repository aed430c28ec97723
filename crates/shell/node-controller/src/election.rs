//! Leader election, and with it the lifetime of the engine.
//!
//! Rule: the engine exists only while this instance leads; it is stopped before the lease is
//! released, and at the latest when the instance may no longer act, whatever the API server does.
//! Losing the lease does not end the process: it becomes a candidate again. The decisions are in
//! [`node_health::leader`].

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_health::leader::{Answer, Candidate, Change, Jitter, LeaderTimes, Record, Step};
use node_health::{Moment, Stamp};
use ports::cluster_api::{ClusterEvent, EventKind, ObjectReference};
use ports::cluster_objects::{Lease, LeaseSpec};
use ports::{ApiTime, ClusterApiError};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tracing::{info, warn};

use crate::config::LeaderConfig;
use crate::controller::Shared;
use crate::counters::line;
use crate::engine;
use crate::report::{HealthState, MetricFamily, MetricKind};

/// How long after its lease expired an instance may still consider itself leader before it is
/// reported unhealthy: upstream's watchdog.
const WATCHDOG: Duration = Duration::from_secs(20);
/// Timeout of releasing the lease on shutdown.
const RELEASE: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct View {
    name: Option<String>,
    lease: Duration,
    holder: String,
    may_act_until: Option<Moment>,
    renewed: Option<Moment>,
    slow_renewals: u64,
}

/// The election's state for other tasks. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LeaderView(Arc<Mutex<View>>);

impl LeaderView {
    /// Without election this instance leads from the start.
    pub(crate) fn new(config: Option<&LeaderConfig>) -> Self {
        let alone = Moment::from_nanos(i64::MAX);
        Self(Arc::new(Mutex::new(View {
            name: config.map(|config| config.name.clone()),
            lease: config.map_or(Duration::MAX, |config| config.lease_duration),
            holder: String::new(),
            may_act_until: config.is_none().then_some(alone),
            renewed: None,
            slow_renewals: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn may_act(&self, now: Moment) -> bool {
        self.lock().may_act_until.is_some_and(|until| now < until)
    }

    /// How long this instance may still act.
    pub(crate) fn time_left(&self, now: Moment) -> Duration {
        self.lock().may_act_until.map_or(Duration::ZERO, |until| until.since(now))
    }

    pub(crate) fn holder(&self) -> String {
        self.lock().holder.clone()
    }

    fn publish(&self, candidate: &Candidate, renewed: Option<Moment>) {
        let mut view = self.lock();
        view.may_act_until = candidate.may_act_until();
        candidate.leader().clone_into(&mut view.holder);
        view.renewed = renewed.or(view.renewed);
    }

    fn stop(&self) {
        self.lock().may_act_until = None;
    }

    /// Unhealthy only if this instance still considers itself leader long after it could not renew.
    pub(crate) fn health(&self, now: Moment) -> HealthState {
        let view = self.lock();
        let overdue = match (view.may_act_until, view.renewed, &view.name) {
            (Some(_), Some(renewed), Some(name))
                if now.since(renewed) > view.lease.saturating_add(WATCHDOG) =>
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
pub(crate) async fn run(shared: Arc<Shared>, shutdown: impl Future<Output = ()> + Send) {
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
    election.leave().await;
}

struct Election {
    shared: Arc<Shared>,
    config: LeaderConfig,
    candidate: Candidate,
    /// The lease as last read or written.
    known: Lease,
    engine: JoinSet<()>,
    /// Events in flight.
    telling: JoinSet<()>,
}

impl Election {
    fn new(shared: Arc<Shared>, config: LeaderConfig, times: LeaderTimes) -> Self {
        let candidate = Candidate::new(config.identity.clone(), times, shared.clock.now());
        let (engine, telling) = (JoinSet::new(), JoinSet::new());
        Self { shared, config, candidate, known: Lease::default(), engine, telling }
    }

    async fn campaign(&mut self) {
        loop {
            let now = self.shared.clock.now();
            let changes = self.candidate.changes(now);
            self.shared.leader.publish(&self.candidate, None);
            self.apply(changes).await;
            match self.candidate.step(now) {
                Step::Wait(until) => {
                    let wake = self.candidate.next_wake().map_or(until, |wake| wake.min(until));
                    sleep_until(self.shared.clock.instant_of(wake)).await;
                }
                step => self.take(step).await,
            }
        }
    }

    /// Sends the request with client-go's timeout, half the renew deadline, and not beyond the time
    /// in which this instance may act.
    async fn take(&mut self, step: Step) {
        let sent = self.shared.clock.now();
        let mut limit = self.config.renew_deadline / 2;
        if let Some(until) = self.candidate.may_act_until() {
            limit = limit.min(until.since(sent)).max(Duration::from_millis(1));
        }
        let reads = step == Step::Read;
        let answer = match timeout(limit, self.ask(step)).await {
            Ok(answer) => answer,
            Err(_) => {
                warn!(lease = self.config.name, "No answer about the leader's lease in time");
                Answer::Failed
            }
        };
        let now = self.shared.clock.now();
        let renewed = matches!(answer, Answer::Written(_)).then_some(now);
        if reads && self.candidate.may_act_until().is_some() {
            self.shared.leader.lock().slow_renewals += 1;
        }
        let jitter = Jitter::new(u16::try_from(self.shared.clock.random() % 1_000).unwrap_or(0));
        let changes = self.candidate.answered(sent, now, answer, jitter);
        self.shared.leader.publish(&self.candidate, renewed);
        self.apply(changes).await;
    }

    async fn ask(&mut self, step: Step) -> Answer {
        let api = self.shared.clients.election.clone();
        let outcome = match step {
            Step::Wait(_) => return Answer::Failed,
            Step::Read => {
                let found = api.read_lease(&self.config.namespace, &self.config.name).await;
                match found {
                    Err(ClusterApiError::NotFound { .. }) => return Answer::NotFound,
                    Ok(lease) => {
                        let record = record_of(&lease.spec);
                        self.known = lease;
                        return Answer::Found(record);
                    }
                    Err(error) => Err(error),
                }
            }
            Step::Create(record) => {
                let mut lease = Lease::default();
                lease.metadata.namespace.clone_from(&self.config.namespace);
                lease.metadata.name.clone_from(&self.config.name);
                lease.spec = self.spec_of(&record);
                api.create_lease(&lease).await
            }
            Step::Update(record) => {
                let spec = self.spec_of(&record);
                let lease = Lease { metadata: self.known.metadata.clone(), spec };
                api.update_lease(&lease).await
            }
        };
        match outcome {
            Ok(lease) => {
                let record = record_of(&lease.spec);
                self.known = lease;
                Answer::Written(record)
            }
            Err(error) => {
                warn!(err = %error, "Failed to write the leader's lease");
                Answer::Failed
            }
        }
    }

    /// The record with wall-clock times, since others display it.
    fn spec_of(&self, record: &Record) -> LeaseSpec {
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

    async fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Began => {
                    info!(identity = self.config.identity, "Leading from now on");
                    self.end_engine().await;
                    let first = self.candidate.is_first();
                    self.engine.spawn(engine::keep_running(self.shared.clone(), first));
                    let told = self.tell("became leader");
                    self.telling.spawn(told);
                }
                Change::Ended => {
                    warn!(identity = self.config.identity, "Not leading any more");
                    self.end_engine().await;
                    let told = self.tell("stopped leading");
                    self.telling.spawn(told);
                }
                Change::NewLeader(leader) => info!(leader, "Another instance leads"),
            }
        }
    }

    /// Nothing acts after this; and lists of this term do not count in the next.
    async fn end_engine(&mut self) {
        self.engine.shutdown().await;
        self.shared.counters.synced(false);
    }

    /// Records an event on the lease, as client-go does. A failure is harmless.
    fn tell(&mut self, what: &str) -> impl Future<Output = ()> + Send + use<> {
        // Remove finished tasks.
        while self.telling.try_join_next().is_some() {}
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
            kind: EventKind::Normal,
            reason: "LeaderElection".to_owned(),
            message: format!("{} {what}", self.config.identity),
            component: "keelson-node-controller".to_owned(),
            host: String::new(),
            at: self.shared.clock.wall(),
        };
        let api = self.shared.clients.election.clone();
        let deadline = self.shared.checked.config.writes.deadline;
        async move {
            if let Ok(Err(error)) = timeout(deadline, api.tell_event(&event)).await {
                warn!(err = %error, "Failed to record a leader election event");
            }
        }
    }

    /// On shutdown: stops all actions, then releases the lease for the next leader.
    async fn leave(mut self) {
        self.shared.leader.stop();
        self.end_engine().await;
        let Some(record) = self.candidate.release(self.shared.clock.now()) else { return };
        let spec = self.spec_of(&record);
        let lease = Lease { metadata: self.known.metadata.clone(), spec };
        let api = self.shared.clients.election.clone();
        match timeout(RELEASE, api.update_lease(&lease)).await {
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
        let _ = timeout(RELEASE, self.tell("stopped leading")).await;
    }
}

fn record_of(spec: &LeaseSpec) -> Record {
    let stamp = |time: Option<ApiTime>| Stamp::from_nanos(time.map_or(0, ApiTime::nanos));
    Record {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        duration_seconds: spec.lease_duration_seconds.unwrap_or(0),
        acquired: stamp(spec.acquire_time),
        renewed: stamp(spec.renew_time),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}
