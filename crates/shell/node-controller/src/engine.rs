//! The task that owns all state.
//!
//! Rule: one owner, no locks: watch events, outcomes of writes, queries and timers reach it one at
//! a time. It decides nothing before nodes, leases and pods were each listed once, and marks no
//! node silent while the watch of leases has undelivered events. The decisions are made by
//! `node-health`; this task carries them out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use node_health::cidr::CidrAllocator;
use node_health::lifecycle::NodeLifecycle;
use node_health::no_execute::Evictions;
use node_health::pod_cleanup::PodCleanup;
use node_health::{ControllerTime, NodeId, PodId, RemoteTime};
use ports::cluster_api::ObjectSelector;
use ports::cluster_objects::{Node, Pod, Renewal};
use ports::{FeedEvent, ObjectFeed};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info};

use crate::api_gate::ApiGate;
use crate::controller::{ControllerShared, ExplainRequest};
use crate::lease_freshness::{LeaseFreshness, Need};
use crate::names::NodeNames;
use crate::pods::PodCache;
use crate::uid::Uid;
use crate::writes::cloud::CloudTask;
use crate::writes::node::LEASES;
use crate::writes::{Write, WriteResult, perform};

mod cleanup;
mod cloud;
mod dispatch;
mod explain;
mod feeds;
mod outcomes;
mod published;
mod queue;
mod ranges;

use published::PublishedMetrics;
use queue::{Due, WriteQueue};

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);
/// Changes within this time are evaluated together.
const BATCH: Duration = Duration::from_millis(100);
/// The decisions get the proven time in steps of this size, and of this part of the largest gap:
/// skipped proofs must not look like a pause.
const PROOF_STEP: Duration = Duration::from_secs(1);
const PROOF_OF_GAP: u32 = 8;
/// Shortest time between two evaluations, unless there was an event.
const MIN_WAKE_INTERVAL: Duration = Duration::from_millis(1);
/// How many events are handled before anything else.
const MAX_EVENTS_PER_TURN: usize = 4096;

/// Runs the engine until it is dropped; after a panic it restarts with empty state. `first`: no
/// earlier leader can have sent a write; not so after a panic.
pub(crate) async fn keep_running(shared: Arc<ControllerShared>, mut first: bool) {
    let mut pause = FIRST_RESTART;
    loop {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        let events = shared.events.clone();
        let (api, writes) = (shared.clients.work.clone(), shared.checked.config.writes);
        tasks.spawn(Engine::new(shared.clone(), std::mem::take(&mut first)).run());
        tasks.spawn(async move { events.deliver(api, &writes).await });
        let ended = tasks.join_next().await;
        if began.elapsed() > LONGEST_RESTART {
            pause = FIRST_RESTART;
        }
        if let Some(Err(problem)) = ended {
            error!(err = %problem, "The node controller panicked and will be restarted");
        }
        tasks.shutdown().await;
        shared.counters.synced(false);
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RESTART);
    }
}

/// The lists of one kind, one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Listing {
    number: u32,
    complete: bool,
}

struct Feeds {
    nodes: Box<dyn ObjectFeed<Node>>,
    leases: Box<dyn ObjectFeed<Renewal>>,
    pods: Box<dyn ObjectFeed<Pod>>,
}

impl Feeds {
    fn open(shared: &ControllerShared) -> Self {
        Self {
            nodes: shared.clients.work.watch_nodes(ObjectSelector::default()),
            leases: Self::leases(shared),
            pods: shared.clients.work.watch_pods(ObjectSelector::default()),
        }
    }

    fn leases(shared: &ControllerShared) -> Box<dyn ObjectFeed<Renewal>> {
        shared.clients.work.watch_renewals(ObjectSelector::in_namespace(LEASES))
    }
}

/// Progress of marking a node's pods.
#[derive(Debug, Default)]
struct PodMarking {
    /// Pods queued behind those in flight.
    behind: VecDeque<(PodId, Uid)>,
    /// Some of them must be retried.
    failed: bool,
}

/// An event of one of the watches.
enum FeedUpdate {
    Node(FeedEvent<Node>),
    Lease(FeedEvent<Renewal>),
    Pod(FeedEvent<Pod>),
}

/// The owner of the state.
struct Engine {
    shared: Arc<ControllerShared>,
    api_gate: ApiGate,
    names: NodeNames,
    pods: PodCache,
    node_list: Listing,
    lease_list: Listing,
    /// Lease renewals seen before their nodes, until all nodes are known.
    early_renewals: HashMap<Box<str>, RemoteTime>,
    pod_list: Listing,
    lease_freshness: LeaseFreshness,
    reopen_leases: bool,
    /// Nodes with an unparsable taint: their taints are not written until it parses.
    unreadable: BTreeSet<NodeId>,
    lifecycle: NodeLifecycle,
    evictions: Evictions,
    ranges: Option<CidrAllocator>,
    /// Pod CIDRs of nodes in the first list, until all are known.
    listed_ranges: BTreeMap<NodeId, Vec<String>>,
    /// Unparsable nodes of the first list, with unknown pod CIDRs, and the list in which each was
    /// last seen.
    unread_nodes: BTreeMap<Box<str>, u32>,
    without_range: BTreeSet<NodeId>,
    /// No earlier leader can have had pod CIDR writes in flight.
    is_first: bool,
    cleanup: PodCleanup,
    clearing: HashSet<Uid>,
    /// Pods being evicted, until they are observed to go or turn out to stay: our own writes to
    /// them must not evict them again.
    leaving: HashSet<Uid>,
    /// Nodes whose pods are being evicted, and the pods queued behind those in flight.
    evicting: BTreeMap<NodeId, Vec<Due>>,
    /// Nodes that became not ready and whose pods are being marked.
    marking: BTreeMap<NodeId, PodMarking>,
    /// Pods whose mark was refused, until their retry pause ends.
    refused_marks: HashSet<Uid>,
    is_looking_up_nodes: bool,
    queue: WriteQueue,
    writes: JoinSet<WriteResult>,
    /// Outcomes that are passed to the decisions later, so that they do not retry at once.
    deferred: BTreeMap<(ControllerTime, u64), WriteResult>,
    deferred_count: u64,
    /// The API server is failing: nothing is sent before this time.
    hold_until: ControllerTime,
    failures_in_a_row: u32,
    changed: bool,
    last_tick: ControllerTime,
    ticked_through: Option<ControllerTime>,
    next_cleanup: ControllerTime,
    next_cloud: ControllerTime,
    next_addresses: ControllerTime,
    published: PublishedMetrics,
    /// Cloud queries queued or in flight, and those whose results are still being applied.
    cloud_in_flight: BTreeSet<(NodeId, CloudTask)>,
    /// Queued cloud queries; addresses come last.
    cloud_queue: [VecDeque<(NodeId, CloudTask)>; 2],
    /// Separate from the writes: a cloud query may take arbitrarily long.
    cloud_tasks: JoinSet<WriteResult>,
    cursor: usize,
}

impl Engine {
    fn new(shared: Arc<ControllerShared>, is_first: bool) -> Self {
        let now = shared.clock.now();
        let checked = &shared.checked;
        let cleanup = checked.config.pod_cleanup;
        let settings = checked.settings;
        Self {
            api_gate: ApiGate::new(shared.clone()),
            names: NodeNames::default(),
            pods: PodCache::default(),
            node_list: Listing::default(),
            lease_list: Listing::default(),
            early_renewals: HashMap::new(),
            pod_list: Listing::default(),
            lease_freshness: LeaseFreshness::new(settings.largest_gap),
            reopen_leases: false,
            unreadable: BTreeSet::new(),
            lifecycle: NodeLifecycle::new(settings),
            evictions: Evictions::new(checked.config.toleration_comparisons),
            ranges: None,
            listed_ranges: BTreeMap::new(),
            unread_nodes: BTreeMap::new(),
            without_range: BTreeSet::new(),
            is_first,
            cleanup: PodCleanup::new(cleanup.terminated_threshold)
                .with_quarantine(cleanup.quarantine),
            clearing: HashSet::new(),
            leaving: HashSet::new(),
            evicting: BTreeMap::new(),
            marking: BTreeMap::new(),
            refused_marks: HashSet::new(),
            is_looking_up_nodes: false,
            queue: WriteQueue::default(),
            writes: JoinSet::new(),
            deferred: BTreeMap::new(),
            deferred_count: 0,
            hold_until: now,
            failures_in_a_row: 0,
            changed: false,
            last_tick: now,
            ticked_through: None,
            next_cleanup: now,
            next_cloud: now,
            next_addresses: now.after(checked.config.cloud_update_period),
            published: PublishedMetrics::new(now),
            cloud_in_flight: BTreeSet::new(),
            cloud_queue: Default::default(),
            cloud_tasks: JoinSet::new(),
            cursor: 0,
            shared,
        }
    }

    async fn run(mut self) {
        let shared = self.shared.clone();
        let mut explain_queue = shared.explain_queue.lock().await;
        let mut feeds = Feeds::open(&shared);
        info!("Starting the node controller; listing nodes, leases and pods");
        let mut alarm = pin!(sleep_until(Instant::now()));
        let mut set_to = None;
        loop {
            self.start_writes();
            // It rarely changes, and resetting the timer is not free.
            let wake = self.next_wake();
            if set_to.replace(wake) != Some(wake) {
                alarm.as_mut().reset(shared.clock.instant_of(wake));
            }
            tokio::select! {
                biased;
                Some(done) = self.writes.join_next(), if !self.writes.is_empty() => {
                    self.joined(done);
                }
                Some(done) = self.cloud_tasks.join_next(), if !self.cloud_tasks.is_empty() => {
                    self.joined(done);
                }
                update = Self::next_update(&mut feeds) => self.take(update),
                Some(question) = explain_queue.recv() => self.reply(question),
                () = &mut alarm => set_to = None,
            }
            self.take_ready_updates(&mut feeds).await;
            self.evaluate();
            if std::mem::take(&mut self.reopen_leases) {
                info!("The watch of leases missed renewals; reopening it");
                feeds.leases = Feeds::leases(&shared);
            }
        }
    }

    /// Leases first: they keep nodes from being marked silent.
    async fn next_update(feeds: &mut Feeds) -> FeedUpdate {
        tokio::select! {
            biased;
            event = feeds.leases.next() => FeedUpdate::Lease(event),
            event = feeds.nodes.next() => FeedUpdate::Node(event),
            event = feeds.pods.next() => FeedUpdate::Pod(event),
        }
    }

    fn ready_update(feeds: &mut Feeds) -> Option<FeedUpdate> {
        let lease = feeds.leases.ready().map(FeedUpdate::Lease);
        let lease_or_node = lease.or_else(|| feeds.nodes.ready().map(FeedUpdate::Node));
        lease_or_node.or_else(|| feeds.pods.ready().map(FeedUpdate::Pod))
    }

    /// Handles all queued events, so that no node is evaluated while its events are undelivered.
    async fn take_ready_updates(&mut self, feeds: &mut Feeds) {
        let mut quiet = 0;
        for _ in 0..MAX_EVENTS_PER_TURN {
            match Self::ready_update(feeds) {
                Some(update) => {
                    quiet = 0;
                    self.take(update);
                }
                // Yield once to the task that fills the channel.
                None if quiet == 0 => {
                    quiet = 1;
                    tokio::task::yield_now().await;
                }
                None => return,
            }
        }
    }

    fn take(&mut self, update: FeedUpdate) {
        match update {
            FeedUpdate::Lease(event) => self.lease_event(event),
            FeedUpdate::Node(event) => self.node_event(event),
            FeedUpdate::Pod(event) => {
                self.pod_event(event);
                self.published.changed();
            }
        }
    }

    /// Whether there are changes to evaluate.
    fn is_unjudged(&self) -> bool {
        self.changed || self.lifecycle.zones().needs_evaluation()
    }

    fn reply(&mut self, question: ExplainRequest) {
        let found = self.explain(&question.node);
        // The caller may have stopped waiting.
        let _ = question.reply.send(found);
    }

    fn now(&self) -> ControllerTime {
        self.shared.clock.now()
    }

    fn synced(&self) -> bool {
        self.node_list.complete && self.lease_list.complete && self.pod_list.complete
    }

    /// When the decisions have to be evaluated next.
    fn due(&mut self) -> Option<ControllerTime> {
        let settled = self.lifecycle.observation_clock().settled_at();
        let evictions = self.evictions.next_wake().map(|when| when.max(settled));
        let evictions = evictions.filter(|_| self.shared.checked.config.enabled.taint_eviction);
        self.lifecycle.next_wake().into_iter().chain(evictions).min()
    }

    /// When there is something to do, if no event arrives.
    fn next_wake(&mut self) -> ControllerTime {
        let now = self.now();
        let gap = self.shared.checked.settings.largest_gap;
        let mut wakes = vec![self.last_tick.after(gap / 2).max(now.after(BATCH))];
        wakes.extend(self.deferred.keys().next().map(|(when, _)| *when));
        wakes.extend(self.fence_wake());
        let can_write = !self.queue.is_empty() && self.writes.len() < self.free_slots();
        if can_write || self.cloud_has_room() {
            wakes.push(self.hold_until);
        }
        if self.synced() {
            if self.is_unjudged() && self.lease_freshness.proven().is_some() {
                wakes.push(self.last_tick.after(BATCH));
            }
            let due = self.due();
            // Work that is due but blocked waits for a proof, not for a timer.
            wakes.extend(due.map(|due| if due > now { due } else { now.after(BATCH) }));
            if self.names.len() > 0 {
                wakes.extend(self.lease_freshness.next_probe_at(self.need(now, due)));
            }
            wakes.extend(self.published.wake());
            wakes.extend(self.cleanup_wake());
            wakes.extend(self.cloud_wake());
        }
        // A bug above must cost latency, not a busy loop.
        wakes.into_iter().min().unwrap_or(now).max(now.after(MIN_WAKE_INTERVAL))
    }

    /// How much depends on a fresh view.
    fn need(&self, now: ControllerTime, due: Option<ControllerTime>) -> Need {
        // By proven time, not by `now`: the last steps of the settling time must be small too.
        let observation_clock = self.lifecycle.observation_clock();
        let settled = observation_clock
            .through()
            .is_some_and(|through| observation_clock.settled_at() <= through);
        match due {
            Some(due) if due <= now => Need::Proof,
            _ if settled => Need::Calm,
            _ => Need::Steady,
        }
    }

    /// Evaluates what is due.
    fn evaluate(&mut self) {
        let now = self.now();
        self.deliver_deferred(now);
        self.carry_fence(now);
        if !self.synced() {
            return;
        }
        let due = self.due();
        let need = self.need(now, due);
        if self.names.len() > 0
            && self.lease_freshness.next_probe_at(need).is_some_and(|when| when <= now)
        {
            self.probe_leases(now, need);
        }
        self.tick(now, due.is_some_and(|due| due <= now));
        self.clean_up(now);
        self.ask_cloud(now);
        self.publish(now);
    }

    fn tick(&mut self, now: ControllerTime, due: bool) {
        let Some(proven) = self.lease_freshness.proven() else { return };
        let waited = now.since(self.last_tick);
        let gap = self.shared.checked.settings.largest_gap;
        let advanced = self.ticked_through < Some(proven);
        // A proof without a lease event is known only here.
        let step = PROOF_STEP.min(gap / PROOF_OF_GAP);
        let update = self.ticked_through.is_none_or(|through| proven.since(through) >= step);
        let useful = update
            || (due && (advanced || waited >= BATCH))
            || (self.is_unjudged() && waited >= BATCH)
            || waited >= gap / 2;
        if !useful {
            return;
        }
        self.last_tick = now;
        self.ticked_through = Some(proven);
        self.changed = false;
        self.published.changed();
        let actions = self.lifecycle.tick(now, proven);
        self.apply_actions(actions);
        self.evict_due_pods(now);
        self.shared.counters.all_nodes_looked_at(self.now().since(now));
    }

    /// Reads some leases in addition to the watch.
    fn probe_leases(&mut self, now: ControllerTime, need: Need) {
        let (nodes, next) = self.names.some(self.cursor, self.lease_freshness.sample(need));
        self.cursor = next;
        let nodes: Vec<_> = nodes.into_iter().filter_map(|node| self.target(node)).collect();
        self.lease_freshness.start_probe(now, nodes.len() == self.names.len());
        self.writes.spawn(perform(self.api_gate.clone(), Write::Probe { nodes }));
    }
}
