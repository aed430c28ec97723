//! The worker of one pod: plan, start the planned actions, apply inputs, repeat.
//!
//! Rules: the worker alone owns the pod's memory ([`PodMemory`]). Actions run as tasks of the
//! worker, at most one per key; an action that replaces another aborts it first. After every action
//! the pod is relisted. A change of the memory that must be durable is saved before the worker goes
//! on; meanwhile a container may be created, but not started. If a worker is dropped or panics, the
//! next one recovers the state. The worker decides nothing: `pod_lifecycle` plans.

mod devices;
mod service_tasks;

use super::facts::PodFactStore;
use super::sync_timer::{Cause, SyncTimer};
use super::{NodeState, PodContext};
use crate::actions::{ActionInputs, deadline, describe, failed, perform};
use crate::keyed_tasks::{KeyedTasks, Panicked};
use crate::metrics::names;
use crate::observed::Observation;
use crate::probes::ProbeUpdate;
use crate::status_store::first_seen;
use crate::worker_events::{WorkerEvent, WorkerEventSender};
use devices::DeviceStage;
use pod_lifecycle::{
    Action, ActionKey, ActionOutcome, Admission, DesiredPod, DesiredState, ExternalEnd,
    ObservedPod, PodEffects, PodEvent, PodInput, PodMemory, PodPlan, PodStage, PodView,
    RequiredImage, SaveUrgency, api_status, plan,
};
use pod_model::pod::Pod;
use pod_model::pod::status::{ConditionStatus, PodCondition, PodStatus};
use ports::runtime_objects::ContainerState;
use service_tasks::ServiceTask;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// How many events of services and probes may wait for the worker.
const WORKER_EVENT_CAPACITY: usize = 64;
/// How long a change that need not be saved at once may wait, to be saved together with others.
const SAVE_DELAY: Duration = Duration::from_millis(500);

/// Why a worker returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorkerEnd {
    /// All resources of the pod are removed. The memory is for a pod that comes back with this UID.
    Finished { successor_memory: Vec<u8> },
    /// The clock was set back: restart from the saved memory.
    Restart,
}

/// What others have written into a pod's status in the API server.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ExternalStatus {
    pub(super) conditions: Vec<PodCondition>,
    pub(super) end: Option<ExternalEnd>,
}

impl ExternalStatus {
    pub(super) fn of(status: &PodStatus) -> Self {
        Self { conditions: api_status::external_conditions(status), end: ExternalEnd::of(status) }
    }
}

/// What the owner of the workers sends to one.
pub(super) struct PodReceivers {
    pub(super) desired: watch::Receiver<DesiredPod>,
    pub(super) external: watch::Receiver<ExternalStatus>,
}

/// Channels a pod worker selects on.
struct WorkerInputs {
    observed: watch::Receiver<Observation>,
    desired: watch::Receiver<DesiredPod>,
    external: watch::Receiver<ExternalStatus>,
    admission: watch::Receiver<Admission>,
    node: watch::Receiver<NodeState>,
    jumps: watch::Receiver<u64>,
    worker_events: mpsc::Receiver<Box<WorkerEvent>>,
    /// Changes with devices and their health; never for a pod without devices.
    devices: Option<watch::Receiver<u64>>,
}

/// Runs the pod until all its resources are removed. `is_first`: this agent had no worker for it
/// before.
pub(super) async fn run(
    context: Arc<PodContext>,
    uid: String,
    receivers: PodReceivers,
    is_first: bool,
) -> WorkerEnd {
    let Some((mut worker, mut worker_inputs)) = open(context, uid, receivers, is_first).await
    else {
        return WorkerEnd::Finished { successor_memory: Vec::new() };
    };
    worker.count_start(is_first);
    worker.link_logs(Duration::ZERO);
    worker.absorb_first_observation().await;
    loop {
        let admission = worker_inputs.admission.borrow_and_update().clone();
        worker.take_admission(admission);
        worker.read_device_health(&mut worker_inputs.devices);
        worker.fact_store.node(&worker_inputs.node.borrow_and_update());
        worker.fact_store.external(&worker_inputs.external.borrow_and_update());
        let plan = worker.plan_and_act().await;
        if worker.is_over(&plan) {
            worker.finish().await;
            let successor_memory = worker.memory.to_saved_for_successor();
            return WorkerEnd::Finished { successor_memory };
        }
        let wake_at = worker.wake_at(&plan);
        // Most pods wait here for days. Others read the plan's results from the status store, so
        // its memory can be freed.
        drop(plan);
        tokio::select! {
            () = sleep_until(wake_at) => {}
            Ok(()) = worker_inputs.admission.changed() => {}
            () = devices::changed(&mut worker_inputs.devices) => {}
            Ok(()) = worker_inputs.node.changed() => {}
            Ok(()) = worker_inputs.external.changed() => {}
            () = worker.reported.written() => {}
            Ok(()) = worker_inputs.jumps.changed() => return worker.save_and_restart().await,
            (key, outcome) = worker.actions.next() => worker.on_action_ended(key, outcome).await,
            observation = next_value(&mut worker_inputs.observed) => worker.on_observed(observation).await,
            desired = next_value(&mut worker_inputs.desired) => worker.on_desired_changed(desired).await,
            Some(event) = worker_inputs.worker_events.recv() => worker.on_worker_event(*event).await,
            (service_task, end) = worker.service_tasks.next() => worker.on_service_task_ended(&service_task, end),
        }
        worker.sync_timer.begins(Cause::Sync);
        worker.save_if_due().await;
    }
}

/// Creates the worker: recovers the pod's memory from what is saved and from the first observation.
async fn open(
    context: Arc<PodContext>,
    uid: String,
    receivers: PodReceivers,
    is_first: bool,
) -> Option<(Worker, WorkerInputs)> {
    let PodReceivers { mut desired, external } = receivers;
    let mut jumps = context.clock.jumps();
    let mut observed = context.observed.watch(&uid);
    let first = first_observation(&context, &uid, &mut observed, &mut jumps, is_first).await?;
    let desired_pod = desired.borrow_and_update().clone();
    let saved = context.saved.get(&uid);
    let now = context.clock.now();
    let mut memory = PodMemory::recover(
        &desired_pod,
        &first,
        saved.as_deref(),
        &context.settings.lifecycle,
        now,
    );
    if let Some(entry) = context.api_pods.entry(&uid).filter(|_| is_first) {
        memory.adopt_api_status(&entry.status);
    }
    let fact_store = PodFactStore::open(&context, &desired_pod.pod).await;
    let (worker_events_sender, worker_events) = mpsc::channel(WORKER_EVENT_CAPACITY);
    let admission = context.admissions.watch(&uid);
    let node = context.node.clone();
    let sync_timer = SyncTimer::new(context.status_store.metrics().clone());
    let worker = Worker {
        context,
        uid,
        desired: desired_pod,
        observed: first,
        memory,
        fact_store,
        actions: KeyedTasks::default(),
        service_tasks: KeyedTasks::default(),
        required_images: BTreeMap::new(),
        worker_events: worker_events_sender,
        save_at: None,
        has_unsaved_probe_result: false,
        reported_ready: None,
        reported: ReportedStatus::default(),
        sync_timer,
        device_stage: DeviceStage::default(),
    };
    let devices = devices::changes(&worker.context, worker.pod());
    let worker_inputs = WorkerInputs {
        observed,
        desired,
        external,
        admission,
        node,
        jumps,
        worker_events,
        devices,
    };
    Some((worker, worker_inputs))
}

/// Waits for the first observation that is recent enough. If an earlier worker's actions may still
/// have taken effect, only a relist that starts from now on is. An observation with a timestamp in
/// the future was made before the clock was set back.
async fn first_observation(
    context: &PodContext,
    uid: &str,
    observed: &mut watch::Receiver<Observation>,
    jumps: &mut watch::Receiver<u64>,
    is_first: bool,
) -> Option<Arc<ObservedPod>> {
    loop {
        jumps.borrow_and_update();
        let started_at = context.clock.now();
        if !is_first {
            context.observed.request_relist(uid);
        }
        let is_recent = |observation: &Observation| {
            observation.as_ref().is_some_and(|pod| {
                (is_first || pod.as_of > started_at) && pod.as_of <= context.clock.now()
            })
        };
        tokio::select! {
            observation = observed.wait_for(is_recent) => return observation.ok()?.clone(),
            Ok(()) = jumps.changed() => {}
        }
    }
}

/// The next value; pending for ever once the sender is gone.
async fn next_value<T: Clone>(values: &mut watch::Receiver<T>) -> T {
    if values.changed().await.is_err() {
        return std::future::pending().await;
    }
    values.borrow_and_update().clone()
}

async fn sleep_until(wake_at: Option<Instant>) {
    match wake_at {
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
    fact_store: PodFactStore,
    actions: KeyedTasks<ActionKey, ActionOutcome>,
    service_tasks: KeyedTasks<ServiceTask, ()>,
    /// The required images, by container, for which service tasks were started.
    required_images: BTreeMap<String, Box<RequiredImage>>,
    worker_events: WorkerEventSender,
    save_at: Option<Instant>,
    /// Whether a probe result is not saved yet.
    has_unsaved_probe_result: bool,
    /// The Ready condition that was last published.
    reported_ready: Option<PodCondition>,
    /// The status that was last reported to the API server.
    reported: ReportedStatus,
    sync_timer: SyncTimer,
    device_stage: DeviceStage,
}

/// The newest report of a worker to the API server.
#[derive(Default)]
struct ReportedStatus {
    version: u64,
    /// Nothing of the pod runs or will.
    is_final: bool,
    /// The version that was written last.
    written: Option<watch::Receiver<u64>>,
}

impl ReportedStatus {
    fn is_final_written(&self) -> bool {
        let written = self.written.as_ref().map_or(0, |written| *written.borrow());
        self.is_final && written >= self.version
    }

    /// Waits until the last status of the pod was written; for ever where it was.
    async fn written(&mut self) {
        let is_awaited = self.is_final && !self.is_final_written();
        let version = self.version;
        let Some(written) = self.written.as_mut().filter(|_| is_awaited) else {
            return std::future::pending().await;
        };
        if written.wait_for(|known| *known >= version).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Worker {
    fn pod(&self) -> &Arc<Pod> {
        &self.desired.pod
    }

    /// Starts the timer of the first sync, and measures how long a new pod waited for its worker. A
    /// pod that an earlier agent has worked on is not new.
    fn count_start(&mut self, is_first: bool) {
        let should_run = self.desired.desired_state == DesiredState::Run;
        self.sync_timer.begins(match (should_run, is_first) {
            (false, _) => Cause::Kill,
            (true, true) => Cause::Create,
            (true, false) => Cause::Sync,
        });
        let is_new = is_first && should_run && self.context.saved.get(&self.uid).is_none();
        if let Some(seen) = first_seen(self.pod()).filter(|_| is_new) {
            let nanos = self.context.clock.now().nanos().saturating_sub(seen.nanos());
            let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
            self.context.status_store.metrics().took(&names::POD_WORKER_START_DURATION, &[], took);
        }
    }

    async fn absorb_first_observation(&mut self) {
        let observed = self.observed.clone();
        self.absorb(&PodInput::Observed(&observed)).await;
    }

    /// Applies an input to the pod's memory and saves the memory where it must be durable before
    /// the worker goes on. Returns false only if that save failed; a save that may wait is
    /// scheduled.
    async fn absorb(&mut self, input: &PodInput<'_>) -> bool {
        match self.apply_input(input) {
            SaveUrgency::BeforeNextAction => self.save_now().await,
            SaveUrgency::Not | SaveUrgency::Soon => true,
        }
    }

    /// Applies an input to the pod's memory and publishes its marks and events. Schedules a save
    /// that may wait (`SaveUrgency::Soon`); for `SaveUrgency::BeforeNextAction` the caller saves.
    fn apply_input(&mut self, input: &PodInput<'_>) -> SaveUrgency {
        let now = self.context.clock.now();
        let PodEffects { events, marks, save } = self.memory.apply_input(&self.desired, input, now);
        self.context.status_store.mark(&self.uid, marks);
        for event in events {
            self.emit_event(event);
        }
        if save == SaveUrgency::Soon {
            self.save_at.get_or_insert_with(|| Instant::now() + SAVE_DELAY);
        }
        save
    }

    fn emit_event(&self, event: PodEvent) {
        self.context.status_store.emit(self.pod(), event, self.context.clock.now());
    }

    async fn save_now(&mut self) -> bool {
        let durable = self.context.saved.save(&self.uid, self.memory.to_saved()).await;
        self.save_at = (!durable).then(|| Instant::now() + SAVE_DELAY * 20);
        self.has_unsaved_probe_result &= !durable;
        durable
    }

    async fn save_if_due(&mut self) {
        if self.save_at.is_some_and(|at| at <= Instant::now()) {
            self.save_now().await;
        }
    }

    /// Plans, starts the planned actions, and publishes the status.
    async fn plan_and_act(&mut self) -> PodPlan {
        self.fact_store.facts.host_ips = self.context.host_ips();
        self.fact_store.facts.final_status_reported = self.is_final_status_written();
        let view = PodView {
            desired: &self.desired,
            observed: &self.observed,
            memory: &self.memory,
            facts: &self.fact_store.facts,
            now: self.context.clock.now(),
        };
        let plan = plan(&view);
        if plan.stage != PodStage::Running && !self.desired.is_removal_requested() {
            // The pod terminates although no source requests it. If its manifest was removed and
            // has come back meanwhile, the record of that removal is obsolete.
            self.context.saved.remove_ending(&self.uid).await;
        }
        self.absorb(&PodInput::Planned(&plan)).await;
        for action in &plan.actions {
            self.begin_action(action).await;
        }
        if plan.stage == PodStage::Running {
            self.start_required_services(&plan);
        } else {
            self.cancel_image_tasks(&plan);
        }
        if plan.stage >= PodStage::Ended {
            self.context.admissions.ended(&self.uid);
            self.release_devices();
        }
        // A readiness is saved before it is published: otherwise, if the agent is killed, the next
        // one would report the previous readiness for a while. A readiness that was lost because a
        // container exited is not saved here: the next agent sees the exit too, and the restart of
        // the container does not wait for a write.
        let ready = plan.status.condition("Ready").cloned();
        let is_ready =
            ready.as_ref().is_some_and(|condition| condition.status == ConditionStatus::True);
        let could_flap = is_ready || self.has_unsaved_probe_result;
        if ready != self.reported_ready && self.save_at.is_some() && could_flap {
            self.save_now().await;
        }
        self.reported_ready = ready;
        self.publish_recorded();
        let in_flight = self.memory.actions_in_flight().map(describe).collect();
        self.context.status_store.set_plan(&self.uid, &plan, in_flight, self.context.clock.now());
        self.report_status(&plan);
        if self.actions.is_empty() && !self.is_over(&plan) {
            self.sync_timer.ends();
        }
        plan
    }

    /// Whether the API server has the pod's last status. A static pod waits for no API server.
    fn is_final_status_written(&self) -> bool {
        let is_reported = self.context.reports.is_some() && !self.pod().is_static();
        !is_reported || self.reported.is_final_written()
    }

    fn report_status(&mut self, plan: &PodPlan) {
        let Some(reports) = &self.context.reports else { return };
        let may_run = plan.stage < PodStage::Ended;
        let version = reports.report(&self.desired.pod, &plan.status, may_run);
        self.reported = ReportedStatus {
            version,
            is_final: !may_run && plan.status.is_terminal(),
            written: self.reported.written.take().or_else(|| reports.written(&self.uid)),
        };
    }

    /// Publishes which containers garbage collection may remove: those whose exits are on disk.
    fn publish_recorded(&self) {
        if self.save_at.is_none() {
            let all = self.observed.containers.iter().map(|each| &each.record);
            let ended = all.filter(|record| record.state == ContainerState::Exited);
            self.context.saved.set_recorded(&self.uid, ended.map(|record| record.id.as_str()));
        }
    }

    async fn begin_action(&mut self, action: &Action) {
        let key = action.key();
        if self.actions.contains(&key) {
            if !action.replaces() {
                warn!(
                    pod_uid = self.uid,
                    action = describe(action),
                    "Skipping a planned action while another with the same key is in flight"
                );
                return;
            }
            self.actions.abort(&key);
            self.absorb(&PodInput::Ended { key: key.clone(), outcome: ActionOutcome::Aborted })
                .await;
            self.context.observed.request_relist(&self.uid);
        }
        if matches!(action, Action::StartContainer { .. }) {
            // The memory is saved while the container is created; the container is started only
            // after that.
            let save = self.apply_input(&PodInput::ActionBegun(action));
            let recorded = self.start_action(action);
            if save == SaveUrgency::BeforeNextAction {
                self.save_now().await;
            }
            recorded.send_replace(true);
            return;
        }
        let is_saved = self.absorb(&PodInput::ActionBegun(action)).await;
        if !is_saved && matches!(action, Action::RemoveContainer { .. }) {
            // Without the save, the container's exit status would be lost with it.
            let why = "the pod's state cannot be saved".to_owned();
            let outcome = ActionOutcome::Done(Err(why));
            self.absorb(&PodInput::Ended { key, outcome }).await;
            self.context.observed.request_relist(&self.uid);
            return;
        }
        self.start_action(action).send_replace(true);
    }

    /// Starts the action's task. The caller sends `true` on the returned channel once the action is
    /// saved.
    fn start_action(&mut self, action: &Action) -> watch::Sender<bool> {
        let description = describe(action);
        debug!(pod_uid = self.uid, action = description, "Starting an action");
        let found_image = match action {
            Action::StartContainer { name, .. } => self.fact_store.take_found_image(name),
            _ => None,
        };
        let (recorded, recorded_receiver) = watch::channel(false);
        let action_inputs = ActionInputs {
            context: self.context.clone(),
            pod: self.pod().clone(),
            observed: self.observed.clone(),
            volumes: self.fact_store.volumes.clone(),
            found_image,
            recorded: recorded_receiver,
            worker_events: self.worker_events.clone(),
        };
        let (key, action, limit) = (action.key(), action.clone(), deadline(action));
        let task = async move {
            match tokio::time::timeout(limit, perform(&action, &action_inputs)).await {
                Ok(outcome) => outcome,
                Err(_) => crate::actions::timed_out(&action, limit),
            }
        };
        self.actions.start(key, format!("{description} of pod {}", self.uid), task);
        recorded
    }

    async fn on_action_ended(&mut self, key: ActionKey, outcome: Result<ActionOutcome, Panicked>) {
        let action = self.memory.action_in_flight(&key).cloned();
        let description = action.as_ref().map(describe).unwrap_or_default();
        let outcome = outcome.unwrap_or_else(|Panicked(why)| {
            warn!(pod_uid = self.uid, action = description, panic = why, "An action panicked");
            // Handled like any error: reported, and retried after a delay.
            let why = format!("{description}: the agent's own task panicked: {why}");
            action.as_ref().map_or(ActionOutcome::Aborted, |action| failed(action, why))
        });
        debug!(pod_uid = self.uid, action = description, outcome = ?outcome, "Action ended");
        if let (ActionKey::Container(name), ActionOutcome::ContainerStarted(Err(_))) =
            (&key, &outcome)
        {
            self.forget_image(name);
        }
        self.absorb(&PodInput::Ended { key, outcome }).await;
        // Whatever the outcome, the previous observation may be outdated.
        self.context.observed.request_relist(&self.uid);
    }

    async fn on_observed(&mut self, observation: Observation) {
        let Some(observed) = observation else { return };
        self.observed = observed.clone();
        self.absorb(&PodInput::Observed(&observed)).await;
    }

    async fn on_desired_changed(&mut self, desired: DesiredPod) {
        if desired == self.desired {
            return;
        }
        let before = std::mem::replace(&mut self.desired, desired);
        self.update_volumes(&before.pod);
        let ends = matches!(self.desired.desired_state, DesiredState::End(_));
        self.sync_timer.begins(if ends { Cause::Kill } else { Cause::Update });
        if self.desired.is_removal_requested() {
            self.context.saved.save_ending(&self.desired.pod).await;
        }
        self.absorb(&PodInput::DesiredStateChanged).await;
    }

    async fn on_worker_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Image(update) => self.on_image_update(update),
            WorkerEvent::Volumes(update) => self.on_volume_update(update),
            WorkerEvent::Probe(update) => self.on_probe_update(update).await,
            WorkerEvent::Devices(result) => self.on_devices(result),
            WorkerEvent::Event(event) => self.emit_event(event),
        }
    }

    async fn on_probe_update(&mut self, update: ProbeUpdate) {
        let ProbeUpdate { container, container_id, kind, result } = update;
        let save = self.apply_input(&PodInput::Probe { container, container_id, kind, result });
        self.has_unsaved_probe_result |= save != SaveUrgency::Not;
        if save == SaveUrgency::BeforeNextAction {
            self.save_now().await;
        }
    }

    fn wake_at(&self, plan: &PodPlan) -> Option<Instant> {
        let planned = plan.wake_at.map(|at| Instant::now() + self.context.clock.until(at));
        [planned, self.save_at].into_iter().flatten().min()
    }

    fn is_over(&self, plan: &PodPlan) -> bool {
        let is_end_requested = self.desired.is_removal_requested();
        is_end_requested && plan.stage == PodStage::Finished && self.actions.is_empty()
    }

    async fn save_and_restart(&mut self) -> WorkerEnd {
        warn!(pod_uid = self.uid, "The clock was set back; restarting the pod's worker");
        self.save_now().await;
        WorkerEnd::Restart
    }

    async fn finish(&mut self) {
        self.context.probes.clear(&self.uid);
        self.release_devices();
        self.context.saved.forget(&self.uid).await;
        self.sync_timer.is_last();
        info!(
            pod = self.pod().full_name(),
            pod_uid = self.uid,
            "All resources of the pod are removed"
        );
    }
}
