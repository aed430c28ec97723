//! Why the pod has not reached its desired state, in one sentence, and what comes next.
//!
//! Rule: no silent wait. Where nothing else was recorded, the reason is what the first unready
//! container lacks.

use pod_model::pod::Container;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, PodStatus};
use ports::runtime_objects::ContainerState;

use crate::action::Action;
use crate::plan::{Draft, Rank, Stage, Waiting};
use crate::scene::Scene;
use crate::words::condition;

pub(crate) fn tell(
    scene: &Scene<'_>,
    status: &PodStatus,
    draft: &mut Draft,
    stage: Stage,
) -> Option<Waiting> {
    let ready = status
        .condition(condition::READY)
        .is_some_and(|ready| ready.status == ConditionStatus::True);
    draft.waits.sort_by_key(|(rank, _)| *rank);
    let noted = draft.waits.iter().find(|(rank, _)| !(ready && *rank == Rank::Passing));
    if let Some((_, waiting)) = noted {
        return Some(waiting.clone());
    }
    match stage {
        Stage::Running if ready => None,
        Stage::Running => Some(unready(scene, status)),
        _ if scene.view.desired.is_wished_away() || status.phase != PodPhase::Failed => None,
        _ => {
            let why = format!("it has failed: {}", failure(status));
            Some(say(why, "look at its logs, then delete it or its manifest and make it again"))
        }
    }
}

fn say(why: impl Into<String>, next_step: impl Into<String>) -> Waiting {
    Waiting { why: why.into(), next_step: next_step.into() }
}

fn failure(status: &PodStatus) -> String {
    if !status.reason.is_empty() {
        return format!("{}: {}", status.reason, status.message);
    }
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    for each in all {
        if let Some(ended) = each.state.terminated.as_ref().filter(|ended| ended.exit_code != 0) {
            let (code, reason) = (ended.exit_code, &ended.reason);
            return format!("container {} exited with {code} ({reason})", each.name);
        }
    }
    "its containers ended without success".to_owned()
}

fn unready(scene: &Scene<'_>, status: &PodStatus) -> Waiting {
    if let Some(flight) = scene.view.memory.in_flight.values().next() {
        return say(in_progress(&flight.action), "nothing is to be done");
    }
    for container in scene.own_containers() {
        if let Some(waiting) = lacking(scene, container) {
            return waiting;
        }
    }
    let gates = status.condition(condition::READY).map_or("", |ready| &*ready.message);
    say(format!("its readiness gates are not met: {gates}"), "their controllers must set them")
}

/// What a container lacks to be ready.
fn lacking(scene: &Scene<'_>, container: &Container) -> Option<Waiting> {
    let name = &container.name;
    let record = scene.lineup.latest(name)?;
    let sidecar = container.is_restarted_always();
    let is_init = scene.pod.spec.init_containers.iter().any(|each| each.name == *name);
    match record.state {
        ContainerState::Running if is_init && !sidecar => {
            Some(say(format!("init container {name} is still running"), "it has to end by itself"))
        }
        ContainerState::Running if !scene.has_started(container, record) => Some(say(
            format!("the startup probe of container {name} has not succeeded yet"),
            "see what the probe asks of it",
        )),
        ContainerState::Running if !scene.is_ready(container, record) => Some(say(
            format!("the readiness probe of container {name} has not succeeded yet"),
            "see what the probe asks of it",
        )),
        ContainerState::Running => None,
        _ if is_init && !sidecar => None,
        // One that should start has recorded its reason already.
        _ => {
            let code = record.exit_code;
            let why = format!("container {name} exited with {code} and is not started again");
            Some(say(why, "its restart policy says so; the others go on"))
        }
    }
}

fn in_progress(action: &Action) -> String {
    match action {
        Action::PreparePod => "its cgroup and folders are being made".to_owned(),
        Action::RunSandbox { .. } => "its sandbox is being made".to_owned(),
        Action::StopSandbox { .. } | Action::RemoveSandbox { .. } => {
            "its old sandbox is being removed".to_owned()
        }
        Action::StartContainer { name, .. } => format!("container {name} is being started"),
        Action::RunPreStop { name, .. } => format!("the preStop hook of container {name} runs"),
        Action::StopContainer { name, .. } => format!("container {name} is being stopped"),
        Action::RemoveContainer { name, .. } => format!("an old container {name} is being removed"),
        Action::CleanUpPod { .. } => "it is being cleaned up".to_owned(),
    }
}
