//! Termination of a pod: containers stop, then the sandbox, then everything is cleaned up.
//!
//! Rules: nothing is started; the grace period only shrinks and time already spent stays spent,
//! even if the agent was killed meanwhile; container records are removed only after the final
//! status has been reported; a pod that ended by itself keeps its records and directories until it
//! is no longer desired.
//!
//! upstream: pod_workers.go, kubelet.go (SyncTerminatingPod, SyncTerminatedPod)

use std::time::Duration;

use ports::ApiTime;

use crate::action::{Action, ActionKey};
use crate::memory::Ending;
use crate::plan::{Draft, PodStage, Rank};
use crate::plan_context::PlanContext;
use crate::stop;
use crate::time::{between, plus, seconds};
use crate::view::{DesiredState, TerminationCause};

#[cfg(test)]
mod tests;

/// How long another client of the runtime may take to finish its stop of a sandbox. The reference
/// relists its runtime once in this time.
const OTHER_CLIENT_STOP_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn plan(plan_context: &PlanContext<'_>, draft: &mut Draft) -> PodStage {
    let now = plan_context.view.now;
    let termination = advance(plan_context);
    draft.notes.termination = Some(termination);
    stop::everything(plan_context, draft, termination);
    if !plan_context.is_stopped() {
        let overdue_at = overdue_at(termination);
        draft.notes.overdue = now >= overdue_at;
        if !draft.notes.overdue {
            draft.wake(overdue_at);
        }
        let left = between(now, ApiTime::from_nanos(termination.deadline)).as_secs();
        let why = format!("its containers are being stopped, {left} s of grace are left");
        draft.wait(Rank::Pod, why, "a shorter grace period would end them sooner");
        return PodStage::Ending;
    }
    if !stop_sandboxes(plan_context, draft) {
        draft.wait(Rank::Pod, "its sandbox is being stopped", "nothing is to be done");
        return PodStage::Ending;
    }
    clean_up(plan_context, draft)
}

/// Stops all sandboxes that are not known to be stopped; true when none is left.
pub(crate) fn stop_sandboxes(plan_context: &PlanContext<'_>, draft: &mut Draft) -> bool {
    let memory = plan_context.view.memory;
    if memory.is_in_flight(&ActionKey::Sandbox) {
        return false;
    }
    let stopped = &memory.persisted.stopped_sandboxes;
    let open = plan_context
        .view
        .observed
        .sandboxes
        .iter()
        .find(|sandbox| sandbox.ready || !stopped.contains(&sandbox.id));
    let Some(open) = open else { return true };
    // The sandbox stopped by itself, or another client stopped it: that client may still be tearing
    // down its network, and two concurrent stops interfere.
    if let Some(lost) = memory.lost_at(&open.id)
        && !open.ready
        && plan_context.view.now < plus(lost, OTHER_CLIENT_STOP_TIMEOUT)
    {
        draft.wake(plus(lost, OTHER_CLIENT_STOP_TIMEOUT));
        return false;
    }
    // A sandbox that is ready after a stop was not stopped.
    if !draft.is_backing_off(plan_context, &ActionKey::Sandbox, "stopping its sandbox") {
        draft.act(plan_context, Action::StopSandbox { id: open.id.clone() });
    }
    false
}

fn clean_up(plan_context: &PlanContext<'_>, draft: &mut Draft) -> PodStage {
    let is_asked = matches!(plan_context.view.desired.desired_state, DesiredState::End(_));
    let forget = plan_context.view.desired.is_removal_requested();
    let cleaned = plan_context.view.memory.persisted.cleaned;
    let clean = cleaned.is_some_and(|dirs_too| dirs_too || !forget);
    if !clean && !draft.is_backing_off(plan_context, &ActionKey::Pod, "cleaning up after the pod") {
        draft.act(plan_context, Action::CleanUpPod { forget });
        draft.wait(
            Rank::Pod,
            "its volumes, cgroup and folders are being removed",
            "nothing is to be done",
        );
    }
    let removed = !is_asked || remove_records(plan_context, draft, forget);
    if clean && removed { PodStage::Finished } else { PodStage::Ended }
}

/// Removes the runtime's records of the pod, once the final status has been reported; true when all
/// are gone.
fn remove_records(plan_context: &PlanContext<'_>, draft: &mut Draft, forget: bool) -> bool {
    let observed = plan_context.view.observed;
    if observed.containers.is_empty() && (observed.sandboxes.is_empty() || !forget) {
        return true;
    }
    if !plan_context.view.facts.final_status_reported {
        let why = "the API server has not heard its last status yet";
        draft.wait(Rank::Pod, why, "what is left of its containers goes as soon as it has");
        return false;
    }
    for container in plan_context.containers_by_name.everything() {
        let (id, name) = (container.record.id.clone(), container.record.name.clone());
        let key = ActionKey::Container(name.clone());
        if !draft.is_backing_off(plan_context, &key, &format!("removing container {name}")) {
            draft.act(plan_context, Action::RemoveContainer { id, name, keep_logs: false });
        }
    }
    if observed.containers.is_empty()
        && let Some(sandbox) = observed.sandboxes.first()
        && !draft.is_backing_off(plan_context, &ActionKey::Sandbox, "removing its sandbox")
    {
        draft.act(plan_context, Action::RemoveSandbox { id: sandbox.id.clone() });
    }
    draft.wait(
        Rank::Pod,
        "what is left of it in the runtime is being removed",
        "nothing is to be done",
    );
    false
}

/// The current termination: begun now, or as before, or with a shorter grace period.
fn advance(plan_context: &PlanContext<'_>) -> Ending {
    let now = plan_context.view.now;
    let known = plan_context.view.memory.persisted.termination;
    let grace_seconds = effective_grace(plan_context, known.map(|known| known.grace_seconds));
    let deadline = plus(now, seconds(grace_seconds)).nanos();
    match known {
        Some(known) => Ending { grace_seconds, deadline: known.deadline.min(deadline), ..known },
        None => Ending { since: now.nanos(), grace_seconds, deadline },
    }
}

/// upstream: pod_workers.go (calculateEffectiveGracePeriod)
fn effective_grace(plan_context: &PlanContext<'_>, known: Option<i64>) -> i64 {
    let asked = match &plan_context.view.desired.desired_state {
        DesiredState::End(end) => match end.cause {
            TerminationCause::Orphan => Some(end.grace_seconds.unwrap_or(1)),
            _ => end.grace_seconds,
        },
        DesiredState::Run => None,
    };
    let mut grace = known;
    for shorter in
        [plan_context.pod.metadata.deletion_grace_period_seconds, asked].into_iter().flatten()
    {
        grace = Some(grace.map_or(shorter, |grace| grace.min(shorter)));
    }
    grace.or(plan_context.pod.spec.termination_grace_period_seconds).unwrap_or(1).max(1)
}

/// When stopping counts as overdue.
fn overdue_at(termination: Ending) -> ApiTime {
    let grace = seconds(termination.grace_seconds);
    let most = (grace + grace / 2).max(Duration::from_secs(10));
    plus(ApiTime::from_nanos(termination.since), most)
}
