//! The worker of one pod: plan, start the planned actions, absorb inputs, repeat.
//!
//! Rules: it alone owns the pod's memory. Actions run as its own tasks, at most one per key; an
//! action that replaces another aborts it first. After every action the pod is relisted. What the
//! memory requires to be on disk is saved before the worker goes on; meanwhile a container may be
//! created, but not started. A worker that is dropped or panics loses only time: the next one
//! recovers. Decides nothing itself.

mod services;

use super::facts::PodFactBook;
use super::turn::{Cause, Turn};
use super::{NodeState, PodContext};
use crate::actions::{ActionWorld, deadline, describe, failed, perform};
use crate::board::first_seen;
use crate::branch::{Branch, Panicked};
use crate::metrics::names;
use crate::news::{News, NewsSender};
use crate::observed::Observation;
use crate::probes::ProbeNews;
use pod_lifecycle::{
    Action, ActionKey, Admission, DesiredPod, Happening, ImageWant, ObservedPod, Outcome, PodEvent,
    PodMemory, PodPlan, Save, Stage, Told, View, Wish, plan,
};
use pod_model::pod::Pod;
use pod_model::pod::status::{ConditionStatus, PodCondition};
use ports::runtime_objects::ContainerState;
use services::Chore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Events of services and probes that may wait for the worker.
const NEWS: usize = 64;
/// How long a change that need not be on disk at once may wait for others.
const SAVE_SOON: Duration = Duration::from_millis(500);

/// Why a worker returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerEnd {
    /// Nothing is left of the pod.
    Finished,
    /// The clock went back: restart from what is saved.
    BeginAnew,
}

/// Channels a pod worker selects on.
struct Ears {
    observed: watch::Receiver<Observation>,
    desired: watch::Receiver<DesiredPod>,
    admission: watch::Receiver<Admission>,
    node: watch::Receiver<NodeState>,
    jumps: watch::Receiver<u64>,
    news: mpsc::Receiver<Box<News>>,
}

/// Runs the pod until nothing is left of it. `is_first`: this agent had no worker for it before.
pub(super) async fn run(
    context: Arc<PodContext>,
    uid: String,
    desired: watch::Receiver<DesiredPod>,
    is_first: bool,
) -> WorkerEnd {
    let Some((mut worker, mut ears)) = open(context, uid, desired, is_first).await else {
        return WorkerEnd::Finished;
    };
    worker.count_start(is_first);
    worker.link_logs(Duration::ZERO);
    worker.told_at_start().await;
    loop {
        worker.book.admission(ears.admission.borrow_and_update().clone());
        worker.book.node(&ears.node.borrow_and_update());
        let plan = worker.follow_plan().await;
        if worker.is_over(&plan) {
            worker.leave().await;
            return WorkerEnd::Finished;
        }
        let wake = worker.wake(&plan);
        // Most pods wait here for days, and the store has what others read of the plan.
        drop(plan);
        tokio::select! {
            () = until(wake) => {}
            Ok(()) = ears.admission.changed() => {}
            Ok(()) = ears.node.changed() => {}
            Ok(()) = ears.jumps.changed() => return worker.begin_anew().await,
            (key, outcome) = worker.actions.next() => worker.ended(key, outcome).await,
            seen = newer(&mut ears.observed) => worker.saw(seen).await,
            wish = newer(&mut ears.desired) => worker.wished(wish).await,
            Some(news) = ears.news.recv() => worker.heard(*news).await,
            (chore, end) = worker.chores.next() => worker.chore_ended(&chore, end),
        }
        worker.turn.begins(Cause::Sync);
        worker.save_if_due().await;
    }
}

/// Recovers the pod's state once the runtime was listed.
async fn open(
    context: Arc<PodContext>,
    uid: String,
    mut desired: watch::Receiver<DesiredPod>,
    is_first: bool,
) -> Option<(Worker, Ears)> {
    let mut jumps = context.clock.jumps();
    let mut observed = context.observed.watch(&uid);
    let first = first_look(&context, &uid, (&mut observed, &mut jumps), is_first).await?;
    let wish = desired.borrow_and_update().clone();
    let saved = context.saved.get(&uid);
    let now = context.clock.now();
    let memory =
        PodMemory::recover(&wish, &first, saved.as_deref(), &context.settings.lifecycle, now);
    let book = PodFactBook::open(&context, &wish.pod).await;
    let (news_sender, news) = mpsc::channel(NEWS);
    let admission = context.admissions.watch(&uid);
    let node = context.node.clone();
    let turn = Turn::new(context.board.metrics().clone());
    let worker = Worker {
        context,
        uid,
        desired: wish,
        observed: first,
        memory,
        book,
        actions: Branch::default(),
        chores: Branch::default(),
        image_wants: BTreeMap::new(),
        news: news_sender,
        save_at: None,
        has_unsaved_verdict: false,
        shown_ready: None,
        turn,
    };
    let ears = Ears { observed, desired, admission, node, jumps, news };
    Some((worker, ears))
}

/// The first observation. Actions of a worker before this one may have taken effect since: then
/// only a relist from now on will do. An observation stamped in the future is from before the clock
/// was set back.
async fn first_look(
    context: &PodContext,
    uid: &str,
    (observed, jumps): (&mut watch::Receiver<Observation>, &mut watch::Receiver<u64>),
    is_first: bool,
) -> Option<Arc<ObservedPod>> {
    loop {
        jumps.borrow_and_update();
        let begun = context.clock.now();
        if !is_first {
            context.observed.look_at(uid);
        }
        let serves = |seen: &Observation| {
            seen.as_ref().is_some_and(|seen| {
                (is_first || seen.as_of > begun) && seen.as_of <= context.clock.now()
            })
        };
        tokio::select! {
            seen = observed.wait_for(serves) => return seen.ok()?.clone(),
            Ok(()) = jumps.changed() => {}
        }
    }
}

/// The next value; pending for ever once the sender is gone.
async fn newer<T: Clone>(values: &mut watch::Receiver<T>) -> T {
    if values.changed().await.is_err() {
        return std::future::pending().await;
    }
    values.borrow_and_update().clone()
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct Worker {
    context: Arc<PodContext>,
    uid: String,
    desired: DesiredPod,
    observed: Arc<ObservedPod>,
    memory: PodMemory,
    book: PodFactBook,
    actions: Branch<ActionKey, Outcome>,
    chores: Branch<Chore, ()>,
    /// The wants for which service tasks were started.
    image_wants: BTreeMap<String, Box<ImageWant>>,
    news: NewsSender,
    save_at: Option<Instant>,
    /// Whether a probe result is not on disk.
    has_unsaved_verdict: bool,
    /// The Ready condition that was last published.
    shown_ready: Option<PodCondition>,
    turn: Turn,
}

impl Worker {
    fn pod(&self) -> &Arc<Pod> {
        &self.desired.pod
    }

    /// Counts the first sync. A pod that an earlier agent has worked on is not a new one.
    fn count_start(&mut self, is_first: bool) {
        let is_wanted = self.desired.wish == Wish::Run;
        self.turn.begins(match (is_wanted, is_first) {
            (false, _) => Cause::Kill,
            (true, true) => Cause::Create,
            (true, false) => Cause::Sync,
        });
        let is_new = is_first && is_wanted && self.context.saved.get(&self.uid).is_none();
        if let Some(seen) = first_seen(self.pod()).filter(|_| is_new) {
            let nanos = self.context.clock.now().nanos().saturating_sub(seen.nanos());
            let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
            self.context.board.metrics().took(&names::POD_WORKER_START_DURATION, &[], took);
        }
    }

    async fn told_at_start(&mut self) {
        let observed = self.observed.clone();
        self.absorb(&Happening::Observed(&observed)).await;
    }

    /// Applies an input to the pod's memory and saves the memory where it must be durable before
    /// the worker goes on. Returns false only if that save failed; a save that may wait is
    /// scheduled.
    async fn absorb(&mut self, happening: &Happening<'_>) -> bool {
        match self.take_in(happening) {
            Save::BeforeGoingOn => self.save_now().await,
            Save::Not | Save::Soon => true,
        }
    }

    /// Applies an input to the pod's memory and publishes its marks and events. Schedules a save
    /// that may wait (`Save::Soon`); for `Save::BeforeGoingOn` the caller saves.
    fn take_in(&mut self, happening: &Happening<'_>) -> Save {
        let now = self.context.clock.now();
        let Told { events, marks, save } = self.memory.absorb(&self.desired, happening, now);
        self.context.board.mark(&self.uid, marks);
        for event in events {
            self.tell_event(event);
        }
        if save == Save::Soon {
            self.save_at.get_or_insert_with(|| Instant::now() + SAVE_SOON);
        }
        save
    }

    fn tell_event(&self, event: PodEvent) {
        self.context.board.tell(self.pod(), event, self.context.clock.now());
    }

    async fn save_now(&mut self) -> bool {
        let durable = self.context.saved.save(&self.uid, self.memory.to_saved()).await;
        self.save_at = (!durable).then(|| Instant::now() + SAVE_SOON * 20);
        self.has_unsaved_verdict &= !durable;
        durable
    }

    async fn save_if_due(&mut self) {
        if self.save_at.is_some_and(|at| at <= Instant::now()) {
            self.save_now().await;
        }
    }

    /// Plans, and starts the planned actions.
    async fn follow_plan(&mut self) -> PodPlan {
        self.book.facts.host_ips = self.context.host_ips();
        let view = View {
            desired: &self.desired,
            observed: &self.observed,
            memory: &self.memory,
            facts: &self.book.facts,
            now: self.context.clock.now(),
        };
        let plan = plan(&view);
        if plan.stage != Stage::Running && !self.desired.is_wished_away() {
            // It ends for good; a manifest that went and came back meanwhile does not matter.
            self.context.saved.drop_ending(&self.uid).await;
        }
        self.absorb(&Happening::Planned(&plan)).await;
        for action in &plan.actions {
            self.begin(action).await;
        }
        if plan.stage == Stage::Running {
            self.serve(&plan);
        } else {
            self.give_up_wants(&plan);
        }
        if plan.stage >= Stage::Ended {
            self.context.admissions.ended(&self.uid);
        }
        // A published readiness that a killed agent has not saved would flap. A readiness that was
        // lost with a container's exit is not saved here: the next agent sees the exit too, and the
        // restart does not wait for a write.
        let ready = plan.status.condition("Ready").cloned();
        let is_ready = ready.as_ref().is_some_and(|it| it.status == ConditionStatus::True);
        let could_flap = is_ready || self.has_unsaved_verdict;
        if ready != self.shown_ready && self.save_at.is_some() && could_flap {
            self.save_now().await;
        }
        self.shown_ready = ready;
        self.tell_recorded();
        let doing = self.memory.actions_in_flight().map(describe).collect();
        self.context.board.show(&self.uid, &plan, doing, self.context.clock.now());
        if self.actions.is_empty() && !self.is_over(&plan) {
            self.turn.ends();
        }
        plan
    }

    /// Publishes which containers garbage collection may remove: those whose exits are on disk.
    fn tell_recorded(&self) {
        if self.save_at.is_none() {
            let all = self.observed.containers.iter().map(|each| &each.record);
            let ended = all.filter(|record| record.state == ContainerState::Exited);
            self.context.saved.set_recorded(&self.uid, ended.map(|record| record.id.as_str()));
        }
    }

    async fn begin(&mut self, action: &Action) {
        let key = action.key();
        if self.actions.contains(&key) {
            if !action.replaces() {
                warn!(
                    pod_uid = self.uid,
                    action = describe(action),
                    "Planned while another is in flight"
                );
                return;
            }
            self.actions.abort(&key);
            self.absorb(&Happening::Ended { key: key.clone(), outcome: Outcome::Aborted }).await;
            self.context.observed.look_at(&self.uid);
        }
        if matches!(action, Action::StartContainer { .. }) {
            // Saved while the container is created; the program runs only after that.
            let save = self.take_in(&Happening::Began(action));
            let recorded = self.carry_out(action);
            if save == Save::BeforeGoingOn {
                self.save_now().await;
            }
            recorded.send_replace(true);
            return;
        }
        let is_saved = self.absorb(&Happening::Began(action)).await;
        if !is_saved && matches!(action, Action::RemoveContainer { .. }) {
            // Its exit would be lost.
            let why = "the pod's state cannot be saved".to_owned();
            let outcome = Outcome::Done(Err(why));
            self.absorb(&Happening::Ended { key, outcome }).await;
            self.context.observed.look_at(&self.uid);
            return;
        }
        self.carry_out(action).send_replace(true);
    }

    /// Starts the action's task; the sender reports that the action is saved.
    fn carry_out(&mut self, action: &Action) -> watch::Sender<bool> {
        let words = describe(action);
        debug!(pod_uid = self.uid, action = words, "Begins");
        let found_image = match action {
            Action::StartContainer { name, .. } => self.book.take_found_image(name),
            _ => None,
        };
        let (recorded, hears_recorded) = watch::channel(false);
        let world = ActionWorld {
            context: self.context.clone(),
            pod: self.pod().clone(),
            observed: self.observed.clone(),
            volumes: self.book.volumes.clone(),
            found_image,
            recorded: hears_recorded,
            news: self.news.clone(),
        };
        let (key, action, limit) = (action.key(), action.clone(), deadline(action));
        let task = async move {
            match tokio::time::timeout(limit, perform(&action, &world)).await {
                Ok(outcome) => outcome,
                Err(_) => crate::actions::timed_out(&action, limit),
            }
        };
        self.actions.start(key, format!("{words} of pod {}", self.uid), task);
        recorded
    }

    async fn ended(&mut self, key: ActionKey, outcome: Result<Outcome, Panicked>) {
        let action = self.memory.action_in_flight(&key).cloned();
        let words = action.as_ref().map(describe).unwrap_or_default();
        let outcome = outcome.unwrap_or_else(|Panicked(why)| {
            warn!(pod_uid = self.uid, action = words, panic = why, "An action panicked");
            // Like any error: reported, and retried after a delay.
            let why = format!("{words}: the agent's own task panicked: {why}");
            action.as_ref().map_or(Outcome::Aborted, |action| failed(action, why))
        });
        debug!(pod_uid = self.uid, action = words, outcome = ?outcome, "Ended");
        if let (ActionKey::Container(name), Outcome::ContainerStarted(Err(_))) = (&key, &outcome) {
            self.forget_image(name);
        }
        self.absorb(&Happening::Ended { key, outcome }).await;
        // Whatever the outcome: nothing is decided on the previous observation.
        self.context.observed.look_at(&self.uid);
    }

    async fn saw(&mut self, seen: Observation) {
        let Some(seen) = seen else { return };
        self.observed = seen.clone();
        self.absorb(&Happening::Observed(&seen)).await;
    }

    async fn wished(&mut self, wish: DesiredPod) {
        if wish == self.desired {
            return;
        }
        let before = std::mem::replace(&mut self.desired, wish);
        self.follow_volumes(&before.pod);
        let ends = matches!(self.desired.wish, Wish::End(_));
        self.turn.begins(if ends { Cause::Kill } else { Cause::Update });
        if self.desired.is_wished_away() {
            self.context.saved.keep_ending(&self.desired.pod).await;
        }
        self.absorb(&Happening::WishChanged).await;
    }

    async fn heard(&mut self, news: News) {
        match news {
            News::Image(news) => self.heard_of_image(news),
            News::Volumes(news) => self.heard_of_volumes(news),
            News::Probe(news) => self.probed(news).await,
            News::Event(event) => self.tell_event(event),
        }
    }

    async fn probed(&mut self, news: ProbeNews) {
        let ProbeNews { container, container_id, kind, result } = news;
        let save = self.take_in(&Happening::Probe { container, container_id, kind, result });
        self.has_unsaved_verdict |= save != Save::Not;
        if save == Save::BeforeGoingOn {
            self.save_now().await;
        }
    }

    fn wake(&self, plan: &PodPlan) -> Option<Instant> {
        let planned = plan.wake_at.map(|at| Instant::now() + self.context.clock.until(at));
        [planned, self.save_at].into_iter().flatten().min()
    }

    fn is_over(&self, plan: &PodPlan) -> bool {
        let is_unwished = self.desired.is_wished_away();
        is_unwished && plan.stage == Stage::Finished && self.actions.is_empty()
    }

    async fn begin_anew(&mut self) -> WorkerEnd {
        warn!(pod_uid = self.uid, "The clock went back; the pod's worker restarts");
        self.save_now().await;
        WorkerEnd::BeginAnew
    }

    async fn leave(&mut self) {
        self.context.probes.clear(&self.uid);
        self.context.saved.forget(&self.uid).await;
        self.turn.is_last();
        info!(pod = self.pod().full_name(), pod_uid = self.uid, "Nothing is left of the pod");
    }
}
