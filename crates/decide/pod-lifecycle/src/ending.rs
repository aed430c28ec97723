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
use crate::plan::{Draft, Rank, Stage};
use crate::scene::Scene;
use crate::stop;
use crate::time::{between, plus, seconds};
use crate::view::{EndCause, Wish};

#[cfg(test)]
mod tests;

/// How long another client of the runtime may take to finish its stop of a sandbox. The reference
/// relists its runtime once in this time.
const OTHERS_STOP: Duration = Duration::from_secs(1);

pub(crate) fn plan(scene: &Scene<'_>, draft: &mut Draft) -> Stage {
    let now = scene.view.now;
    let ending = advance(scene);
    draft.notes.ending = Some(ending);
    stop::everything(scene, draft, ending);
    if !scene.is_still() {
        let overdue_at = overdue_at(ending);
        draft.notes.overdue = now >= overdue_at;
        if !draft.notes.overdue {
            draft.wake(overdue_at);
        }
        let left = between(now, ApiTime::from_nanos(ending.deadline)).as_secs();
        let why = format!("its containers are being stopped, {left} s of grace are left");
        draft.wait(Rank::Pod, why, "a shorter grace period would end them sooner");
        return Stage::Ending;
    }
    if !stop_sandboxes(scene, draft) {
        draft.wait(Rank::Pod, "its sandbox is being stopped", "nothing is to be done");
        return Stage::Ending;
    }
    clean_up(scene, draft)
}

/// Stops all sandboxes that are not known to be stopped; true when none is left.
pub(crate) fn stop_sandboxes(scene: &Scene<'_>, draft: &mut Draft) -> bool {
    let memory = scene.view.memory;
    if memory.is_busy(&ActionKey::Sandbox) {
        return false;
    }
    let stopped = &memory.kept.stopped_sandboxes;
    let open = scene
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
        && scene.view.now < plus(lost, OTHERS_STOP)
    {
        draft.wake(plus(lost, OTHERS_STOP));
        return false;
    }
    // A sandbox that is ready after a stop was not stopped.
    if !draft.holds_back(scene, &ActionKey::Sandbox, "stopping its sandbox") {
        draft.act(scene, Action::StopSandbox { id: open.id.clone() });
    }
    false
}

fn clean_up(scene: &Scene<'_>, draft: &mut Draft) -> Stage {
    let is_asked = matches!(scene.view.desired.wish, Wish::End(_));
    let forget = scene.view.desired.is_wished_away();
    let cleaned = scene.view.memory.kept.cleaned;
    let clean = cleaned.is_some_and(|folders_too| folders_too || !forget);
    if !clean && !draft.holds_back(scene, &ActionKey::Pod, "cleaning up after the pod") {
        draft.act(scene, Action::CleanUpPod { forget });
        draft.wait(
            Rank::Pod,
            "its volumes, cgroup and folders are being removed",
            "nothing is to be done",
        );
    }
    let removed = !is_asked || remove_records(scene, draft, forget);
    if clean && removed { Stage::Finished } else { Stage::Ended }
}

/// Removes the runtime's records of the pod, once the final status has been reported; true when all
/// are gone.
fn remove_records(scene: &Scene<'_>, draft: &mut Draft, forget: bool) -> bool {
    let observed = scene.view.observed;
    if observed.containers.is_empty() && (observed.sandboxes.is_empty() || !forget) {
        return true;
    }
    if !scene.view.facts.final_status_heard {
        let why = "the API server has not heard its last status yet";
        draft.wait(Rank::Pod, why, "what is left of its containers goes as soon as it has");
        return false;
    }
    for container in scene.lineup.everything() {
        let (id, name) = (container.record.id.clone(), container.record.name.clone());
        let key = ActionKey::Container(name.clone());
        if !draft.holds_back(scene, &key, &format!("removing container {name}")) {
            draft.act(scene, Action::RemoveContainer { id, name, keep_logs: false });
        }
    }
    if observed.containers.is_empty()
        && let Some(sandbox) = observed.sandboxes.first()
        && !draft.holds_back(scene, &ActionKey::Sandbox, "removing its sandbox")
    {
        draft.act(scene, Action::RemoveSandbox { id: sandbox.id.clone() });
    }
    draft.wait(
        Rank::Pod,
        "what is left of it in the runtime is being removed",
        "nothing is to be done",
    );
    false
}

/// The current termination: begun now, or as before, or with a shorter grace period.
fn advance(scene: &Scene<'_>) -> Ending {
    let now = scene.view.now;
    let known = scene.view.memory.kept.ending;
    let grace_seconds = effective_grace(scene, known.map(|known| known.grace_seconds));
    let deadline = plus(now, seconds(grace_seconds)).nanos();
    match known {
        Some(known) => Ending { grace_seconds, deadline: known.deadline.min(deadline), ..known },
        None => Ending { since: now.nanos(), grace_seconds, deadline },
    }
}

/// upstream: pod_workers.go (calculateEffectiveGracePeriod)
fn effective_grace(scene: &Scene<'_>, known: Option<i64>) -> i64 {
    let asked = match &scene.view.desired.wish {
        Wish::End(end) => match end.cause {
            EndCause::Orphan => Some(end.grace_seconds.unwrap_or(1)),
            _ => end.grace_seconds,
        },
        Wish::Run => None,
    };
    let mut grace = known;
    for shorter in [scene.pod.metadata.deletion_grace_period_seconds, asked].into_iter().flatten() {
        grace = Some(grace.map_or(shorter, |grace| grace.min(shorter)));
    }
    grace.or(scene.pod.spec.termination_grace_period_seconds).unwrap_or(1).max(1)
}

/// When stopping counts as overdue.
fn overdue_at(ending: Ending) -> ApiTime {
    let grace = seconds(ending.grace_seconds);
    let most = (grace + grace / 2).max(Duration::from_secs(10));
    plus(ApiTime::from_nanos(ending.since), most)
}
