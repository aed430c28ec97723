//! The plan: what to begin now, what to ask the node for, what to report, and when to look again.

use std::collections::BTreeMap;

use pod_model::pod::container::PullPolicy;
use pod_model::pod::status::PodStatus;
use ports::ApiTime;

use crate::action::{Action, ActionKey};
use crate::back_off::BackOff;
use crate::happening::ProbeKind;
use crate::memory::Ending;
use crate::scene::{Scene, Trouble};
use crate::time::sooner;
use crate::view::View;
use crate::{ending, probes, running, status, waiting};

/// What follows from a view.
#[derive(Debug, Clone, PartialEq)]
pub struct PodPlan {
    /// To begin now, all of them; no two have the same key.
    pub actions: Vec<Action>,
    pub wants: Wants,
    pub status: PodStatus,
    /// Plan again then, at the latest.
    pub wake_at: Option<ApiTime>,
    /// Why the pod is not where it should be; None only where it is.
    pub waiting_on: Option<Waiting>,
    pub stage: Stage,
    pub(crate) notes: Notes,
}

/// What the memory keeps of a plan, beside the status.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Notes {
    pub(crate) ending: Option<Ending>,
    pub(crate) clearing: Option<Ending>,
    /// The back-off to remember when the start of this container begins.
    pub(crate) back_offs: BTreeMap<String, BackOff>,
    /// The sandbox that is given up for a new one.
    pub(crate) sandbox_changed: Option<String>,
    /// Containers that wait, each with what for.
    pub(crate) troubles: BTreeMap<String, Trouble>,
    pub(crate) network_problem: Option<String>,
    pub(crate) volume_problem: Option<String>,
    pub(crate) images_ready: Vec<String>,
    /// Stopping takes much longer than the grace period.
    pub(crate) overdue: bool,
    pub(crate) admitted: bool,
}

/// What the pod asks of the node's services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    pub images: Vec<ImageWant>,
    /// Whether its volumes should be there (false: they may be taken down).
    pub volumes: bool,
    pub probes: Vec<ProbeWant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageWant {
    pub container: String,
    /// The restart count of the start that it is for: `Always` means once for each.
    pub attempt: u32,
    pub image: String,
    pub policy: PullPolicy,
}

/// A probe that should be running. Its specification is in the pod; see `ProbeKind::of`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeWant {
    pub container: String,
    pub container_id: String,
    pub kind: ProbeKind,
    pub started_at: ApiTime,
    /// Whether the first try may come later than it is due, so that those of a whole node do not come
    /// together when an agent begins. Not of a readiness that is not known: the pod is not ready
    /// until it is tried.
    pub can_wait: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// One sentence.
    pub why: String,
    /// What a person could do, or what will happen by itself.
    pub next_step: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It should run.
    Running,
    /// Its containers are being stopped.
    Ending,
    /// No container of it runs, and none will.
    Ended,
    /// Nothing is left to do. Where the wish is to end, the worker may go.
    Finished,
}

/// A plan in the making.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) actions: Vec<Action>,
    pub(crate) wants: Wants,
    pub(crate) wake_at: Option<ApiTime>,
    pub(crate) waits: Vec<(Rank, Waiting)>,
    pub(crate) notes: Notes,
    /// Nothing may be begun: the observation is too old, or there is no runtime.
    pub(crate) hands_off: bool,
}

/// Which of several reasons to wait is told: the first is what must go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Node,
    Pod,
    Container,
    Passing,
}

impl Draft {
    /// Begins an action, unless another of its key is in flight or was just begun.
    pub(crate) fn act(&mut self, scene: &Scene<'_>, action: Action) {
        let key = action.key();
        let busy = scene.view.memory.is_busy(&key) && !action.replaces();
        if !self.hands_off && !busy && !self.actions.iter().any(|each| each.key() == key) {
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
        self.waits.push((rank, Waiting { why: why.into(), next_step: next_step.into() }));
    }

    /// Whether the last try of this key failed so lately that it is not tried yet; wakes then.
    pub(crate) fn holds_back(&mut self, scene: &Scene<'_>, key: &ActionKey, what: &str) -> bool {
        let Some(failure) = scene.view.memory.failures.get(key) else { return false };
        if scene.view.now >= failure.retry_at {
            return false;
        }
        self.wake(failure.retry_at);
        let next = format!("it is tried again at {}", failure.retry_at.to_seconds_text());
        self.wait(Rank::Pod, format!("{what} failed: {}", failure.message), next);
        true
    }
}

/// What to do about the pod now.
pub fn plan(view: &View<'_>) -> PodPlan {
    let mut scene = Scene::new(view);
    let mut status = status::report(&scene);
    if status.is_terminal() && !scene.over {
        scene.over = true;
        status = status::report(&scene);
    }
    let mut draft = Draft::default();
    look_before_acting(&scene, &mut draft);
    let stage = if scene.over {
        ending::plan(&scene, &mut draft)
    } else {
        running::plan(&scene, &mut draft);
        Stage::Running
    };
    draft.wants.probes = probes::wanted(&scene, &status);
    // One that is past its deadline is over.
    if let Some(deadline) = scene.active_deadline().filter(|_| !scene.over) {
        draft.wake(deadline);
    }
    let waiting_on = waiting::tell(&scene, &status, &mut draft, stage);
    PodPlan {
        actions: draft.actions,
        wants: draft.wants,
        status,
        wake_at: draft.wake_at,
        waiting_on,
        stage,
        notes: draft.notes,
    }
}

/// Nothing is begun on an observation older than the last act, nor without a runtime.
fn look_before_acting(scene: &Scene<'_>, draft: &mut Draft) {
    let view = &scene.view;
    let as_of = view.observed.as_of;
    let looked = as_of > ApiTime::default();
    let fresh = looked && view.memory.last_end().is_none_or(|end| as_of > end);
    if let Err(problem) = &view.facts.runtime_ready {
        draft.hands_off = true;
        let why = format!("the container runtime cannot be used: {problem}");
        draft.wait(Rank::Node, why, "see that the runtime is up; the pod goes on by itself then");
    } else if !fresh {
        draft.hands_off = true;
        let why = "the runtime has not been looked at since the last step";
        draft.wait(Rank::Passing, why, "the agent is looking at it now");
    }
}
