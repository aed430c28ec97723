//! The plan: what to begin now, what to request from the node, what to report, and when to plan
//! again.

use std::collections::BTreeMap;

use pod_model::pod::container::PullPolicy;
use pod_model::pod::status::PodStatus;
use ports::ApiTime;

use crate::action::{Action, ActionKey};
use crate::back_off::RestartBackOff;
use crate::input::ProbeKind;
use crate::memory::Ending;
use crate::plan_context::{PlanContext, StartBlocker};
use crate::time::sooner;
use crate::view::PodView;
use crate::{probes, running, status, termination, waiting};

/// The plan for a view.
#[derive(Debug, Clone, PartialEq)]
pub struct PodPlan {
    /// Actions to begin now, all of them; no two have the same key.
    pub actions: Vec<Action>,
    pub requirements: Requirements,
    pub status: PodStatus,
    /// Plan again then, at the latest.
    pub wake_at: Option<ApiTime>,
    /// Why the pod has not reached its desired state; None only where it has.
    pub waiting_on: Option<WaitReason>,
    pub stage: PodStage,
    pub(crate) notes: Notes,
}

/// The parts of a plan that the memory keeps, besides the status.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Notes {
    pub(crate) termination: Option<Ending>,
    pub(crate) clearing: Option<Ending>,
    /// The back-off to remember when the start of this container begins.
    pub(crate) back_offs: BTreeMap<String, RestartBackOff>,
    /// The sandbox that a new one replaces.
    pub(crate) sandbox_changed: Option<String>,
    /// Containers that wait, each with the reason.
    pub(crate) start_blockers: BTreeMap<String, StartBlocker>,
    pub(crate) network_problem: Option<String>,
    pub(crate) volume_problem: Option<String>,
    pub(crate) images_ready: Vec<String>,
    /// Stopping takes much longer than the grace period.
    pub(crate) overdue: bool,
    pub(crate) admitted: bool,
}

/// What the pod requests from the node's services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    pub images: Vec<RequiredImage>,
    /// Whether its volumes should be mounted (false: they may be unmounted).
    pub volumes: bool,
    pub probes: Vec<RequiredProbe>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredImage {
    pub container: String,
    /// The restart count of the start that it is for: `Always` means once for each.
    pub attempt: u32,
    pub image: String,
    pub policy: PullPolicy,
}

/// A probe that should be running. Its specification is in the pod; see `ProbeKind::of`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredProbe {
    pub container: String,
    pub container_id: String,
    pub kind: ProbeKind,
    pub started_at: ApiTime,
    /// Whether the first attempt may be delayed, so that the probes of a whole node do not run
    /// together when an agent starts. Not for a readiness that is unknown: the pod is not ready
    /// until it is probed.
    pub can_wait: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitReason {
    /// One sentence.
    pub why: String,
    /// What an operator can do, or what the agent will do next.
    pub next_step: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodStage {
    /// It should run.
    Running,
    /// Its containers are being stopped.
    Ending,
    /// No container of it runs, and none will be started.
    Ended,
    /// Nothing is left to do. If the pod is to be terminated, the worker may exit.
    Finished,
}

/// A plan under construction.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) actions: Vec<Action>,
    pub(crate) requirements: Requirements,
    pub(crate) wake_at: Option<ApiTime>,
    pub(crate) waits: Vec<(Rank, WaitReason)>,
    pub(crate) notes: Notes,
    /// No action may begin: the observation is too old, or there is no runtime.
    pub(crate) blocked: bool,
}

/// Precedence among several reasons to wait: the first is what must be resolved first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Node,
    Pod,
    Container,
    Passing,
}

impl Draft {
    /// Begins an action, unless another of its key is in flight or was just begun.
    pub(crate) fn act(&mut self, plan_context: &PlanContext<'_>, action: Action) {
        let key = action.key();
        let busy = plan_context.view.memory.is_in_flight(&key) && !action.replaces();
        if !self.blocked && !busy && !self.actions.iter().any(|each| each.key() == key) {
            self.actions.push(action);
        }
    }

    pub(crate) fn wake(&mut self, at: ApiTime) {
        self.wake_at = sooner(self.wake_at, Some(at));
    }

    pub(crate) fn wait(
        &mut self,
        rank: Rank,
        why: impl Into<String>,
        next_step: impl Into<String>,
    ) {
        self.waits.push((rank, WaitReason { why: why.into(), next_step: next_step.into() }));
    }

    /// Whether the last attempt of this key failed so recently that it is not retried yet; sets the
    /// wake-up time then.
    pub(crate) fn is_backing_off(
        &mut self,
        plan_context: &PlanContext<'_>,
        key: &ActionKey,
        what: &str,
    ) -> bool {
        let Some(failure) = plan_context.view.memory.failures.get(key) else { return false };
        if plan_context.view.now >= failure.retry_at {
            return false;
        }
        self.wake(failure.retry_at);
        let next = format!("it is tried again at {}", failure.retry_at.to_seconds_text());
        self.wait(Rank::Pod, format!("{what} failed: {}", failure.message), next);
        true
    }
}

/// Plans the next actions for the pod.
pub fn plan(view: &PodView<'_>) -> PodPlan {
    let mut plan_context = PlanContext::new(view);
    let mut status = status::report(&plan_context);
    if status.is_terminal() && !plan_context.over {
        plan_context.over = true;
        status = status::report(&plan_context);
    }
    let mut draft = Draft::default();
    check_observation(&plan_context, &mut draft);
    let stage = if plan_context.over {
        termination::plan(&plan_context, &mut draft)
    } else {
        running::plan(&plan_context, &mut draft);
        PodStage::Running
    };
    draft.requirements.probes = probes::wanted(&plan_context, &status);
    // A pod past its active deadline terminates.
    if let Some(deadline) = plan_context.active_deadline().filter(|_| !plan_context.over) {
        draft.wake(deadline);
    }
    let waiting_on = waiting::explain(&plan_context, &status, &mut draft, stage);
    PodPlan {
        actions: draft.actions,
        requirements: draft.requirements,
        status,
        wake_at: draft.wake_at,
        waiting_on,
        stage,
        notes: draft.notes,
    }
}

/// No action begins on an observation older than the last action, nor without a runtime.
fn check_observation(plan_context: &PlanContext<'_>, draft: &mut Draft) {
    let view = &plan_context.view;
    let as_of = view.observed.as_of;
    let looked = as_of > ApiTime::default();
    let fresh = looked && view.memory.last_end().is_none_or(|end| as_of > end);
    if let Err(problem) = &view.facts.runtime_ready {
        draft.blocked = true;
        let why = format!("the container runtime cannot be used: {problem}");
        draft.wait(Rank::Node, why, "see that the runtime is up; the pod goes on by itself then");
    } else if !fresh {
        draft.blocked = true;
        let why = "the runtime has not been looked at since the last step";
        draft.wait(Rank::Passing, why, "the agent is looking at it now");
    }
}
