//! The agent of the simulated node: plans, begins actions, absorbs their outcomes, and can be
//! killed at any step.

use std::sync::Arc;

use ports::ApiTime;
use ports::runtime_objects::ContainerState;

use crate::action::{Action, ActionKey};
use crate::input::{
    ActionOutcome, PodEffects, PodInput, ProbeKind, ProbeResult, SaveUrgency, StartFailure,
    StartStage,
};
use crate::memory::PodMemory;
use crate::plan::{PodPlan, plan};
use crate::view::{
    Admission, AttemptImage, DesiredPod, DesiredState, ImageState, LifecycleFacts, ObservedPod,
    PodView, VolumesState,
};

use super::node::SimulatedRuntime;
use super::rng::SimulationRng;

/// An action in flight in the runtime.
pub(super) struct PendingAction {
    pub(super) action: Action,
    pub(super) done_at: i64,
    pub(super) half_at: i64,
    pub(super) made: Option<String>,
    pub(super) fails: bool,
}

pub(super) struct SimulatedWorker {
    pub(super) desired: DesiredPod,
    pub(super) memory: PodMemory,
    pub(super) observed: ObservedPod,
    pub(super) facts: LifecycleFacts,
    pub(super) saved: Option<Vec<u8>>,
    /// The state saved for a start that has just begun: it is written while the container is
    /// created, so that a kill may come first. Nothing else happens to the pod until it is written.
    pub(super) before_start: Option<Option<Vec<u8>>>,
    pub(super) unsaved: bool,
    pub(super) doing: Vec<PendingAction>,
    pub(super) last: Option<PodPlan>,
    pub(super) trace: Vec<String>,
    /// Tracing takes most of the time, so only the repetition of a failed run does it.
    pub(super) tracing: bool,
    /// Actions fail, events are duplicated.
    pub(super) failing: bool,
    /// Containers crash.
    pub(super) crashing: bool,
}

impl SimulatedWorker {
    pub(super) fn new(desired: DesiredPod, node: &SimulatedRuntime) -> Self {
        let facts = LifecycleFacts {
            admission: Admission::Admitted,
            volumes: VolumesState::Ready,
            ..LifecycleFacts::default()
        };
        let observed = node.observe();
        let memory = PodMemory::recover(
            &desired,
            &observed,
            None,
            &facts.settings,
            ApiTime::from_nanos(node.now),
        );
        Self {
            desired,
            memory,
            observed,
            facts,
            saved: None,
            before_start: None,
            unsaved: false,
            doing: Vec::new(),
            last: None,
            trace: Vec::new(),
            tracing: false,
            failing: false,
            crashing: false,
        }
    }

    pub(super) fn note(&mut self, node: &SimulatedRuntime, text: impl std::fmt::Display) {
        if self.tracing {
            self.trace.push(format!("{:>10.3} {text}", node.now as f64 / 1e9));
        }
    }

    pub(super) fn view(&self, node: &SimulatedRuntime) -> PodView<'_> {
        PodView {
            desired: &self.desired,
            observed: &self.observed,
            memory: &self.memory,
            facts: &self.facts,
            now: ApiTime::from_nanos(node.now),
        }
    }

    pub(super) fn apply_input(
        &mut self,
        node: &SimulatedRuntime,
        input: &PodInput<'_>,
    ) -> PodEffects {
        let now = ApiTime::from_nanos(node.now);
        let desired = self.desired.clone();
        self.before_start = match input {
            PodInput::ActionBegun(Action::StartContainer { .. }) => Some(self.saved.clone()),
            _ => None,
        };
        let effects = self.memory.apply_input(&desired, input, now);
        self.unsaved |= effects.save == SaveUrgency::Soon;
        if effects.save == SaveUrgency::BeforeNextAction {
            self.save();
        }
        for event in &effects.events {
            self.note(node, format_args!("event {} {}", event.reason, event.message));
        }
        effects
    }

    pub(super) fn save(&mut self) {
        self.saved = Some(self.memory.to_saved());
        self.unsaved = false;
    }

    pub(super) fn look(&mut self, node: &SimulatedRuntime) {
        self.observed = node.observe();
        let observed = self.observed.clone();
        self.apply_input(node, &PodInput::Observed(&observed));
    }

    /// Plans and begins what the plan says.
    pub(super) fn work(&mut self, node: &SimulatedRuntime, rng: &mut SimulationRng) -> PodPlan {
        let plan = plan(&self.view(node));
        self.apply_input(node, &PodInput::Planned(&plan));
        for required in &plan.requirements.images {
            let state = ImageState::Present { image_ref: "ref".to_owned() };
            let fact = AttemptImage { attempt: required.attempt, state };
            self.facts.images.insert(required.container.clone(), Box::new(fact));
        }
        for action in &plan.actions {
            self.note(node, format_args!("do {action:?}"));
            if action.replaces() {
                let key = action.key();
                self.doing.retain(|each| each.action.key() != key);
            }
            self.apply_input(node, &PodInput::ActionBegun(action));
            let took = match action {
                Action::StopContainer { grace, .. } => {
                    let most = (grace.as_millis() as u64).max(2_000);
                    rng.millis(50, most.max(100))
                }
                _ => rng.millis(20, 700),
            };
            self.doing.push(PendingAction {
                action: action.clone(),
                done_at: node.now + took,
                half_at: node.now + took / 2,
                made: None,
                fails: self.failing && rng.percent(10),
            });
        }
        self.last = Some(plan.clone());
        plan
    }

    /// Advances actions in the runtime; true when one finished.
    pub(super) fn advance(&mut self, node: &mut SimulatedRuntime, rng: &mut SimulationRng) -> bool {
        let pod = Arc::clone(&self.desired.pod);
        for each in &mut self.doing {
            if let Action::StartContainer { name, attempt, sandbox_id, .. } = &each.action
                && each.made.is_none()
                && node.now >= each.half_at
                && !each.fails
            {
                match node.create(&pod, name, *attempt, sandbox_id) {
                    Ok(id) => each.made = Some(id),
                    Err(_) => each.fails = true,
                }
            }
        }
        let (over, doing): (Vec<PendingAction>, Vec<PendingAction>) =
            self.doing.drain(..).partition(|each| each.done_at <= node.now);
        self.doing = doing;
        let ended = !over.is_empty();
        for each in over {
            let outcome = finish(&pod, node, rng, &each, !self.crashing);
            let key = each.action.key();
            self.note(node, format_args!("ended {key:?} {outcome:?}"));
            self.apply_input(node, &PodInput::Ended { key: key.clone(), outcome: outcome.clone() });
            if self.failing && rng.percent(10) {
                // A duplicate.
                self.apply_input(node, &PodInput::Ended { key, outcome });
            }
        }
        ended
    }

    pub(super) fn probe(&mut self, node: &SimulatedRuntime, rng: &mut SimulationRng) {
        let Some(plan) = &self.last else { return };
        for required in plan.requirements.probes.clone() {
            let fails = if required.kind == ProbeKind::Liveness { 5 } else { 20 };
            let result = if self.crashing && rng.percent(fails) {
                ProbeResult::Failure("no".to_owned())
            } else {
                ProbeResult::Success
            };
            self.apply_input(
                node,
                &PodInput::Probe {
                    container: required.container,
                    container_id: required.container_id,
                    kind: required.kind,
                    result,
                },
            );
        }
    }

    /// The agent is killed. Actions in flight have taken effect, or half of it, or none.
    pub(super) fn crash(&mut self, node: &mut SimulatedRuntime, rng: &mut SimulationRng) {
        self.note(node, "KILLED");
        let pod = Arc::clone(&self.desired.pod);
        let doing = std::mem::take(&mut self.doing);
        // Not written yet: then the container of the last start may have been created, no more.
        let unwritten = self.before_start.take().filter(|_| rng.percent(50));
        let begun_last = doing.len().saturating_sub(1);
        for (place, mut each) in doing.into_iter().enumerate() {
            let is_unwritten = unwritten.is_some() && place == begun_last;
            match rng.below(if is_unwritten { 2 } else { 3 }) {
                0 => {}
                1 => {
                    if let Action::StartContainer { name, attempt, sandbox_id, .. } = &each.action
                        && each.made.is_none()
                    {
                        let _ = node.create(&pod, name, *attempt, sandbox_id);
                    }
                }
                _ => {
                    if let Action::StartContainer { name, attempt, sandbox_id, .. } = &each.action
                        && each.made.is_none()
                    {
                        each.made = node.create(&pod, name, *attempt, sandbox_id).ok();
                        each.fails |= each.made.is_none();
                    }
                    let _ = finish(&pod, node, rng, &each, false);
                }
            }
        }
        if let Some(before) = unwritten {
            self.saved = before;
        }
        self.observed = node.observe();
        let now = ApiTime::from_nanos(node.now);
        self.memory = PodMemory::recover(
            &self.desired,
            &self.observed,
            self.saved.as_deref(),
            &self.facts.settings,
            now,
        );
        self.facts.images.clear();
        self.last = None;
    }

    pub(super) fn desired_state(&mut self, node: &SimulatedRuntime, desired_state: DesiredState) {
        self.note(node, format_args!("wish {desired_state:?}"));
        self.desired.desired_state = desired_state;
        self.apply_input(node, &PodInput::DesiredStateChanged);
    }
}

/// The effect of an action, and its outcome.
fn finish(
    pod: &pod_model::pod::Pod,
    node: &mut SimulatedRuntime,
    rng: &mut SimulationRng,
    each: &PendingAction,
    calm: bool,
) -> ActionOutcome {
    let failed = || Err("it went wrong".to_owned());
    match &each.action {
        Action::StartContainer { name, .. } => {
            let Some(id) = each.made.clone().filter(|_| !each.fails) else {
                return ActionOutcome::ContainerStarted(Err(StartFailure {
                    stage: StartStage::Create,
                    message: "cannot create".to_owned(),
                    id: None,
                }));
            };
            let is_init = pod
                .spec
                .init_containers
                .iter()
                .any(|each| &*each.name == name && !each.is_restarted_always());
            let scheduled_exit = node.scheduled_exit(name, is_init, rng, calm);
            if node.start(&id, scheduled_exit).is_err() {
                return ActionOutcome::ContainerStarted(Err(StartFailure {
                    stage: StartStage::Start,
                    message: "cannot start".to_owned(),
                    id: Some(id),
                }));
            }
            let hook = crate::containers_by_name::find(pod, name)
                .and_then(|(_, container)| container.lifecycle.as_ref())
                .is_some_and(|lifecycle| lifecycle.post_start.is_some());
            if hook && !calm && rng.percent(20) {
                return ActionOutcome::ContainerStarted(Err(StartFailure {
                    stage: StartStage::PostStart,
                    message: "hook".to_owned(),
                    id: Some(id),
                }));
            }
            ActionOutcome::ContainerStarted(Ok(id))
        }
        Action::StopContainer { id, .. } => {
            let result = if each.fails { failed() } else { Ok(()) };
            if !each.fails || rng.percent(50) {
                node.end(id, if rng.percent(50) { 0 } else { 143 });
            }
            ActionOutcome::ContainerStopped { hook_failed: false, result }
        }
        Action::RunPreStop { .. } => {
            ActionOutcome::ContainerStopped { hook_failed: each.fails, result: Ok(()) }
        }
        _ if each.fails => match each.action {
            Action::RunSandbox { .. } => ActionOutcome::SandboxRun(Err("it went wrong".to_owned())),
            _ => ActionOutcome::Done(failed()),
        },
        Action::RunSandbox { attempt } => {
            ActionOutcome::SandboxRun(node.run_sandbox(*attempt, pod.spec.host_network))
        }
        Action::StopSandbox { id } => {
            node.stop_sandbox(id);
            ActionOutcome::Done(Ok(()))
        }
        Action::RemoveSandbox { id } => {
            node.remove_sandbox(id);
            ActionOutcome::Done(Ok(()))
        }
        Action::RemoveContainer { id, .. } => {
            node.remove(id);
            ActionOutcome::Done(Ok(()))
        }
        Action::PreparePod | Action::CleanUpPod { .. } => ActionOutcome::Done(Ok(())),
    }
}

/// Whether two containers of one name run.
pub(super) fn has_twins(node: &SimulatedRuntime) -> bool {
    let mut names: Vec<&str> = node
        .containers
        .iter()
        .filter(|each| each.state == ContainerState::Running)
        .map(|each| each.name.as_str())
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    names.len() != all
}

pub(super) fn is_start(action: &Action) -> bool {
    matches!(action.key(), ActionKey::Container(_) | ActionKey::Sandbox)
        && matches!(action, Action::StartContainer { .. } | Action::RunSandbox { .. })
}
