//! The agent of the simulated node: plans, begins actions, absorbs their outcomes, and can be
//! killed at any step.

use std::sync::Arc;

use ports::ApiTime;
use ports::runtime_objects::ContainerState;

use crate::action::{Action, ActionKey};
use crate::happening::{
    Happening, Outcome, ProbeKind, ProbeResult, Save, StartFailure, StartStage, Told,
};
use crate::memory::PodMemory;
use crate::plan::{PodPlan, plan};
use crate::view::{
    Admission, DesiredPod, Facts, ImageFact, ImageState, ObservedPod, View, VolumesFact, Wish,
};

use super::dice::Dice;
use super::node::Node;

/// An action in flight in the runtime.
pub(super) struct Doing {
    pub(super) action: Action,
    pub(super) done_at: i64,
    pub(super) half_at: i64,
    pub(super) made: Option<String>,
    pub(super) fails: bool,
}

pub(super) struct Worker {
    pub(super) desired: DesiredPod,
    pub(super) memory: PodMemory,
    pub(super) observed: ObservedPod,
    pub(super) facts: Facts,
    pub(super) saved: Option<Vec<u8>>,
    /// The state saved for a start that has just begun: it is written while the container is
    /// created, so that a kill may come first. Nothing else happens to the pod until it is written.
    pub(super) before_start: Option<Option<Vec<u8>>>,
    pub(super) unsaved: bool,
    pub(super) doing: Vec<Doing>,
    pub(super) last: Option<PodPlan>,
    pub(super) trace: Vec<String>,
    /// Tracing takes most of the time, so only the repetition of a failed run does it.
    pub(super) tracing: bool,
    /// Actions fail, events are duplicated.
    pub(super) failing: bool,
    /// Containers crash.
    pub(super) crashing: bool,
}

impl Worker {
    pub(super) fn new(desired: DesiredPod, node: &Node) -> Self {
        let facts = Facts {
            admission: Admission::Admitted,
            volumes: VolumesFact::Ready,
            ..Facts::default()
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

    pub(super) fn note(&mut self, node: &Node, text: impl std::fmt::Display) {
        if self.tracing {
            self.trace.push(format!("{:>10.3} {text}", node.now as f64 / 1e9));
        }
    }

    pub(super) fn view(&self, node: &Node) -> View<'_> {
        View {
            desired: &self.desired,
            observed: &self.observed,
            memory: &self.memory,
            facts: &self.facts,
            now: ApiTime::from_nanos(node.now),
        }
    }

    pub(super) fn absorb(&mut self, node: &Node, happening: &Happening<'_>) -> Told {
        let now = ApiTime::from_nanos(node.now);
        let desired = self.desired.clone();
        self.before_start = match happening {
            Happening::Began(Action::StartContainer { .. }) => Some(self.saved.clone()),
            _ => None,
        };
        let told = self.memory.absorb(&desired, happening, now);
        self.unsaved |= told.save == Save::Soon;
        if told.save == Save::BeforeGoingOn {
            self.save();
        }
        for event in &told.events {
            self.note(node, format_args!("event {} {}", event.reason, event.message));
        }
        told
    }

    pub(super) fn save(&mut self) {
        self.saved = Some(self.memory.to_saved());
        self.unsaved = false;
    }

    pub(super) fn look(&mut self, node: &Node) {
        self.observed = node.observe();
        let observed = self.observed.clone();
        self.absorb(node, &Happening::Observed(&observed));
    }

    /// Plans and begins what the plan says.
    pub(super) fn work(&mut self, node: &Node, dice: &mut Dice) -> PodPlan {
        let plan = plan(&self.view(node));
        self.absorb(node, &Happening::Planned(&plan));
        for want in &plan.wants.images {
            let state = ImageState::Present { image_ref: "ref".to_owned() };
            let fact = ImageFact { attempt: want.attempt, state };
            self.facts.images.insert(want.container.clone(), Box::new(fact));
        }
        for action in &plan.actions {
            self.note(node, format_args!("do {action:?}"));
            if action.replaces() {
                let key = action.key();
                self.doing.retain(|each| each.action.key() != key);
            }
            self.absorb(node, &Happening::Began(action));
            let took = match action {
                Action::StopContainer { grace, .. } => {
                    let most = (grace.as_millis() as u64).max(2_000);
                    dice.millis(50, most.max(100))
                }
                _ => dice.millis(20, 700),
            };
            self.doing.push(Doing {
                action: action.clone(),
                done_at: node.now + took,
                half_at: node.now + took / 2,
                made: None,
                fails: self.failing && dice.percent(10),
            });
        }
        self.last = Some(plan.clone());
        plan
    }

    /// Advances actions in the runtime; true when one finished.
    pub(super) fn advance(&mut self, node: &mut Node, dice: &mut Dice) -> bool {
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
        let (over, doing): (Vec<Doing>, Vec<Doing>) =
            self.doing.drain(..).partition(|each| each.done_at <= node.now);
        self.doing = doing;
        let ended = !over.is_empty();
        for each in over {
            let outcome = finish(&pod, node, dice, &each, !self.crashing);
            let key = each.action.key();
            self.note(node, format_args!("ended {key:?} {outcome:?}"));
            self.absorb(node, &Happening::Ended { key: key.clone(), outcome: outcome.clone() });
            if self.failing && dice.percent(10) {
                // A duplicate.
                self.absorb(node, &Happening::Ended { key, outcome });
            }
        }
        ended
    }

    pub(super) fn probe(&mut self, node: &Node, dice: &mut Dice) {
        let Some(plan) = &self.last else { return };
        for want in plan.wants.probes.clone() {
            let fails = if want.kind == ProbeKind::Liveness { 5 } else { 20 };
            let result = if self.crashing && dice.percent(fails) {
                ProbeResult::Failure("no".to_owned())
            } else {
                ProbeResult::Success
            };
            self.absorb(
                node,
                &Happening::Probe {
                    container: want.container,
                    container_id: want.container_id,
                    kind: want.kind,
                    result,
                },
            );
        }
    }

    /// The agent is killed. Actions in flight have taken effect, or half of it, or none.
    pub(super) fn die(&mut self, node: &mut Node, dice: &mut Dice) {
        self.note(node, "KILLED");
        let pod = Arc::clone(&self.desired.pod);
        let doing = std::mem::take(&mut self.doing);
        // Not written yet: then the container of the last start may have been created, no more.
        let unwritten = self.before_start.take().filter(|_| dice.percent(50));
        let begun_last = doing.len().saturating_sub(1);
        for (place, mut each) in doing.into_iter().enumerate() {
            let is_unwritten = unwritten.is_some() && place == begun_last;
            match dice.below(if is_unwritten { 2 } else { 3 }) {
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
                    let _ = finish(&pod, node, dice, &each, false);
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

    pub(super) fn wish(&mut self, node: &Node, wish: Wish) {
        self.note(node, format_args!("wish {wish:?}"));
        self.desired.wish = wish;
        self.absorb(node, &Happening::WishChanged);
    }
}

/// The effect of an action, and its outcome.
fn finish(
    pod: &pod_model::pod::Pod,
    node: &mut Node,
    dice: &mut Dice,
    each: &Doing,
    calm: bool,
) -> Outcome {
    let failed = || Err("it went wrong".to_owned());
    match &each.action {
        Action::StartContainer { name, .. } => {
            let Some(id) = each.made.clone().filter(|_| !each.fails) else {
                return Outcome::ContainerStarted(Err(StartFailure {
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
            let fate = node.fate(name, is_init, dice, calm);
            if node.start(&id, fate).is_err() {
                return Outcome::ContainerStarted(Err(StartFailure {
                    stage: StartStage::Start,
                    message: "cannot start".to_owned(),
                    id: Some(id),
                }));
            }
            let hook = crate::lineup::find(pod, name)
                .and_then(|(_, container)| container.lifecycle.as_ref())
                .is_some_and(|lifecycle| lifecycle.post_start.is_some());
            if hook && !calm && dice.percent(20) {
                return Outcome::ContainerStarted(Err(StartFailure {
                    stage: StartStage::PostStart,
                    message: "hook".to_owned(),
                    id: Some(id),
                }));
            }
            Outcome::ContainerStarted(Ok(id))
        }
        Action::StopContainer { id, .. } => {
            let result = if each.fails { failed() } else { Ok(()) };
            if !each.fails || dice.percent(50) {
                node.end(id, if dice.percent(50) { 0 } else { 143 });
            }
            Outcome::ContainerStopped { hook_failed: false, result }
        }
        Action::RunPreStop { .. } => {
            Outcome::ContainerStopped { hook_failed: each.fails, result: Ok(()) }
        }
        _ if each.fails => match each.action {
            Action::RunSandbox { .. } => Outcome::SandboxRun(Err("it went wrong".to_owned())),
            _ => Outcome::Done(failed()),
        },
        Action::RunSandbox { attempt } => {
            Outcome::SandboxRun(node.run_sandbox(*attempt, pod.spec.host_network))
        }
        Action::StopSandbox { id } => {
            node.stop_sandbox(id);
            Outcome::Done(Ok(()))
        }
        Action::RemoveSandbox { id } => {
            node.remove_sandbox(id);
            Outcome::Done(Ok(()))
        }
        Action::RemoveContainer { id, .. } => {
            node.remove(id);
            Outcome::Done(Ok(()))
        }
        Action::PreparePod | Action::CleanUpPod { .. } => Outcome::Done(Ok(())),
    }
}

/// Whether two containers of one name run.
pub(super) fn has_twins(node: &Node) -> bool {
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
