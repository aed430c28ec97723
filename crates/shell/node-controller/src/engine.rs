//! The task that owns everything that is known.
//!
//! Rule: one owner, no locks: feeds, outcomes of writes, questions and timers come to it one at a
//! time. Nothing is decided before nodes, leases and pods were each listed once, and nobody is
//! judged while the watch of leases has something left to tell. Decides nothing itself: it asks
//! `node-health` and carries.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use node_health::cidr::Ranges;
use node_health::lifecycle::NodeLifecycle;
use node_health::no_execute::Evictions;
use node_health::pod_cleanup::PodCleanup;
use node_health::{Moment, NodeId, PodId, Stamp};
use ports::cluster_api::Selection;
use ports::cluster_objects::{Node, Pod, Renewal};
use ports::{FeedEvent, ObjectFeed};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info};

use crate::controller::{Question, Shared};
use crate::gate::Gate;
use crate::names::Names;
use crate::pods::Pods;
use crate::sight::{Need, Sight};
use crate::uid::Uid;
use crate::writes::cloud::Task;
use crate::writes::node::LEASES;
use crate::writes::{Done, Write, perform};

mod acting;
mod cleanup;
mod cloud;
mod explain;
mod feeds;
mod outcomes;
mod published;
mod queue;
mod ranges;

use published::Published;
use queue::{Due, WriteQueue};

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);
/// Many changes at once are judged together.
const BATCH: Duration = Duration::from_millis(100);
/// What is proven is told to the decisions in steps of this size, and of this part of the largest gap:
/// proofs that were left out must not look like a pause.
const PROOF: Duration = Duration::from_secs(1);
const PROOF_OF_GAP: u32 = 8;
/// No two looks are closer than this, unless something came.
const SHORTEST: Duration = Duration::from_millis(1);
/// How many events are taken before anything else has its turn.
const MOST_EVENTS: usize = 4096;

/// Runs the engine until it is dropped; after a panic it begins anew, with empty hands. `first`: nobody
/// can have sent anything before it; after a panic that is no longer so.
pub(crate) async fn keep_running(shared: Arc<Shared>, mut first: bool) {
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
            error!(err = %problem, "The node controller panicked and will be started again");
        }
        tasks.shutdown().await;
        shared.counters.synced(false);
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RESTART);
    }
}

/// One list after the other of one kind.
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
    fn open(shared: &Shared) -> Self {
        Self {
            nodes: shared.clients.work.watch_nodes(Selection::default()),
            leases: Self::leases(shared),
            pods: shared.clients.work.watch_pods(Selection::default()),
        }
    }

    fn leases(shared: &Shared) -> Box<dyn ObjectFeed<Renewal>> {
        shared.clients.work.watch_renewals(Selection::in_namespace(LEASES))
    }
}

/// How far the marking of a node's pods is.
#[derive(Debug, Default)]
struct Marking {
    /// Pods that wait behind those that are on their way.
    behind: VecDeque<(PodId, Uid)>,
    /// Some of them have to be tried again.
    failed: bool,
}

/// Something that one of the feeds told.
enum News {
    Node(FeedEvent<Node>),
    Lease(FeedEvent<Renewal>),
    Pod(FeedEvent<Pod>),
}

/// The owner.
struct Engine {
    shared: Arc<Shared>,
    gate: Gate,
    names: Names,
    pods: Pods,
    node_list: Listing,
    lease_list: Listing,
    /// Renewals of leases that came before their nodes, until all nodes are known.
    early_renewals: HashMap<Box<str>, Stamp>,
    pod_list: Listing,
    sight: Sight,
    reopen_leases: bool,
    /// Nodes with a taint that we cannot read, whose own taints wait for that.
    unreadable: BTreeSet<NodeId>,
    lifecycle: NodeLifecycle,
    evictions: Evictions,
    ranges: Option<Ranges>,
    /// Ranges of nodes in the first list, until all are known.
    listed_ranges: BTreeMap<NodeId, Vec<String>>,
    /// Nodes of the first list that cannot be read, so that nobody knows their ranges, and the list
    /// in which each was last seen.
    unread_nodes: BTreeMap<Box<str>, u32>,
    without_range: BTreeSet<NodeId>,
    /// Nobody can have had a range on its way when we began.
    is_first: bool,
    cleanup: PodCleanup,
    clearing: HashSet<Uid>,
    /// Pods whose time is over, until they are seen to go or turn out to stay: what we write to them
    /// on the way must not send them away once more.
    leaving: HashSet<Uid>,
    /// Nodes whose pods are being sent away, and who waits behind those that are on their way.
    evicting: BTreeMap<NodeId, Vec<Due>>,
    /// Nodes that fell and whose pods are being marked.
    marking: BTreeMap<NodeId, Marking>,
    /// Pods whose mark was refused, until their pause is over.
    refused_marks: HashSet<Uid>,
    looking_for: bool,
    queue: WriteQueue,
    writes: JoinSet<Done>,
    /// Outcomes that are told to the decisions later, so that they do not try again at once.
    later: BTreeMap<(Moment, u64), Done>,
    laters: u64,
    /// The API server is in trouble: nothing is sent before this moment.
    hold_until: Moment,
    troubles: u32,
    changed: bool,
    last_tick: Moment,
    ticked_through: Option<Moment>,
    next_cleanup: Moment,
    next_cloud: Moment,
    next_addresses: Moment,
    published: Published,
    /// What the cloud is being asked, or is to be; until what follows from it is done.
    asking_cloud: BTreeSet<(NodeId, Task)>,
    /// What waits to be asked; addresses come last.
    cloud_questions: [VecDeque<(NodeId, Task)>; 2],
    /// Apart from the writes: a cloud may take as long as it likes.
    cloud_asks: JoinSet<Done>,
    cursor: usize,
}

impl Engine {
    fn new(shared: Arc<Shared>, is_first: bool) -> Self {
        let now = shared.clock.now();
        let checked = &shared.checked;
        let cleanup = checked.config.pod_cleanup;
        let settings = checked.settings;
        Self {
            gate: Gate::new(shared.clone()),
            names: Names::default(),
            pods: Pods::default(),
            node_list: Listing::default(),
            lease_list: Listing::default(),
            early_renewals: HashMap::new(),
            pod_list: Listing::default(),
            sight: Sight::new(settings.largest_gap),
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
            looking_for: false,
            queue: WriteQueue::default(),
            writes: JoinSet::new(),
            later: BTreeMap::new(),
            laters: 0,
            hold_until: now,
            troubles: 0,
            changed: false,
            last_tick: now,
            ticked_through: None,
            next_cleanup: now,
            next_cloud: now,
            next_addresses: now.after(checked.config.cloud_update_period),
            published: Published::new(now),
            asking_cloud: BTreeSet::new(),
            cloud_questions: Default::default(),
            cloud_asks: JoinSet::new(),
            cursor: 0,
            shared,
        }
    }

    async fn run(mut self) {
        let shared = self.shared.clone();
        let mut questions = shared.questions.lock().await;
        let mut feeds = Feeds::open(&shared);
        info!("The node controller begins; listing nodes, leases and pods");
        let mut alarm = pin!(sleep_until(Instant::now()));
        let mut set_to = None;
        loop {
            self.start_writes();
            // Mostly it stays as it is, and setting it anew has its price.
            let wake = self.next_wake();
            if set_to.replace(wake) != Some(wake) {
                alarm.as_mut().reset(shared.clock.instant_of(wake));
            }
            tokio::select! {
                biased;
                Some(done) = self.writes.join_next(), if !self.writes.is_empty() => {
                    self.joined(done);
                }
                Some(done) = self.cloud_asks.join_next(), if !self.cloud_asks.is_empty() => {
                    self.joined(done);
                }
                news = Self::next_news(&mut feeds) => self.take(news),
                Some(question) = questions.recv() => self.answer(question),
                () = &mut alarm => set_to = None,
            }
            self.drain(&mut feeds).await;
            self.settle();
            if std::mem::take(&mut self.reopen_leases) {
                info!("The watch of leases missed renewals; opening it anew");
                feeds.leases = Feeds::leases(&shared);
            }
        }
    }

    /// Leases first: they are what keeps nodes alive.
    async fn next_news(feeds: &mut Feeds) -> News {
        tokio::select! {
            biased;
            event = feeds.leases.next() => News::Lease(event),
            event = feeds.nodes.next() => News::Node(event),
            event = feeds.pods.next() => News::Pod(event),
        }
    }

    fn ready_news(feeds: &mut Feeds) -> Option<News> {
        let lease = feeds.leases.ready().map(News::Lease);
        let lease_or_node = lease.or_else(|| feeds.nodes.ready().map(News::Node));
        lease_or_node.or_else(|| feeds.pods.ready().map(News::Pod))
    }

    /// Takes what has already come, so that nobody is judged while his news waits at the door.
    async fn drain(&mut self, feeds: &mut Feeds) {
        let mut quiet = 0;
        for _ in 0..MOST_EVENTS {
            match Self::ready_news(feeds) {
                Some(news) => {
                    quiet = 0;
                    self.take(news);
                }
                // Whoever fills the feed gets a chance to, once.
                None if quiet == 0 => {
                    quiet = 1;
                    tokio::task::yield_now().await;
                }
                None => return,
            }
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Lease(event) => self.lease_event(event),
            News::Node(event) => self.node_event(event),
            News::Pod(event) => {
                self.pod_event(event);
                self.published.changed();
            }
        }
    }

    /// Whether something came that is judged with everything else.
    fn is_unjudged(&self) -> bool {
        self.changed || self.lifecycle.zones().await_judgement()
    }

    fn answer(&mut self, question: Question) {
        let found = self.explain(&question.node);
        // Whoever asked may have gone.
        let _ = question.answer.send(found);
    }

    fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    fn synced(&self) -> bool {
        self.node_list.complete && self.lease_list.complete && self.pod_list.complete
    }

    /// When the decisions want to be asked.
    fn due(&mut self) -> Option<Moment> {
        let settled = self.lifecycle.attention().settled_at();
        let evictions = self.evictions.next_wake().map(|when| when.max(settled));
        let evictions = evictions.filter(|_| self.shared.checked.config.enabled.taint_eviction);
        self.lifecycle.next_wake().into_iter().chain(evictions).min()
    }

    /// When there is something to do, if nothing comes.
    fn next_wake(&mut self) -> Moment {
        let now = self.now();
        let gap = self.shared.checked.settings.largest_gap;
        let mut wakes = vec![self.last_tick.after(gap / 2).max(now.after(BATCH))];
        wakes.extend(self.later.keys().next().map(|(when, _)| *when));
        wakes.extend(self.fence_wake());
        let can_write = !self.queue.is_empty() && self.writes.len() < self.room();
        if can_write || self.cloud_has_room() {
            wakes.push(self.hold_until);
        }
        if self.synced() {
            if self.is_unjudged() && self.sight.proven().is_some() {
                wakes.push(self.last_tick.after(BATCH));
            }
            let due = self.due();
            // What is due and could not be done waits for a proof, not for a timer.
            wakes.extend(due.map(|due| if due > now { due } else { now.after(BATCH) }));
            if self.names.len() > 0 {
                wakes.extend(self.sight.ask_at(self.need(now, due)));
            }
            wakes.extend(self.published.wake());
            wakes.extend(self.cleanup_wake());
            wakes.extend(self.cloud_wake());
        }
        // A mistake above must cost latency, not a processor.
        wakes.into_iter().min().unwrap_or(now).max(now.after(SHORTEST))
    }

    /// How much depends on what we see.
    fn need(&self, now: Moment, due: Option<Moment>) -> Need {
        // By what is proven, not by now: the last steps of the settling time must be small ones too.
        let attention = self.lifecycle.attention();
        let settled = attention.through().is_some_and(|through| attention.settled_at() <= through);
        match due {
            Some(due) if due <= now => Need::Proof,
            _ if settled => Need::Calm,
            _ => Need::Steady,
        }
    }

    /// Asks the decisions what is due.
    fn settle(&mut self) {
        let now = self.now();
        self.deliver_later(now);
        self.carry_fence(now);
        if !self.synced() {
            return;
        }
        let due = self.due();
        let need = self.need(now, due);
        if self.names.len() > 0 && self.sight.ask_at(need).is_some_and(|when| when <= now) {
            self.look_live(now, need);
        }
        self.tick(now, due.is_some_and(|due| due <= now));
        self.clean_up(now);
        self.ask_cloud(now);
        self.publish(now);
    }

    fn tick(&mut self, now: Moment, due: bool) {
        let Some(proven) = self.sight.proven() else { return };
        let waited = now.since(self.last_tick);
        let gap = self.shared.checked.settings.largest_gap;
        let advanced = self.ticked_through < Some(proven);
        // A proof that comes without a lease's event is known to nobody but us.
        let step = PROOF.min(gap / PROOF_OF_GAP);
        let news = self.ticked_through.is_none_or(|through| proven.since(through) >= step);
        let useful = news
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
        self.act(actions);
        self.send_away(now);
        self.shared.counters.all_nodes_looked_at(self.now().since(now));
    }

    /// Reads some leases past the watch.
    fn look_live(&mut self, now: Moment, need: Need) {
        let (nodes, next) = self.names.some(self.cursor, self.sight.sample(need));
        self.cursor = next;
        let nodes: Vec<_> = nodes.into_iter().filter_map(|node| self.target(node)).collect();
        self.sight.ask(now, nodes.len() == self.names.len());
        self.writes.spawn(perform(self.gate.clone(), Write::Probe { nodes }));
    }
}
