//! Why the pod has not reached its desired state, in one sentence, and what comes next.
//!
//! Rule: no silent wait. Where nothing else was recorded, the reason is what the first unready
//! container lacks.

use pod_model::pod::Container;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, PodStatus};
use ports::runtime_objects::ContainerState;

use crate::action::Action;
use crate::plan::{Draft, PodStage, Rank, WaitReason};
use crate::plan_context::PlanContext;
use crate::status_text::condition;

pub(crate) fn explain(
    plan_context: &PlanContext<'_>,
    status: &PodStatus,
    draft: &mut Draft,
    stage: PodStage,
) -> Option<WaitReason> {
    let ready = status
        .condition(condition::READY)
        .is_some_and(|ready| ready.status == ConditionStatus::True);
    draft.waits.sort_by_key(|(rank, _)| *rank);
    let noted = draft.waits.iter().find(|(rank, _)| !(ready && *rank == Rank::Passing));
    if let Some((_, waiting)) = noted {
        return Some(waiting.clone());
    }
    match stage {
        PodStage::Running if ready => None,
        PodStage::Running => Some(unready(plan_context, status)),
        _ if plan_context.view.desired.is_removal_requested()
            || status.phase != PodPhase::Failed =>
        {
            None
        }
        _ => {
            let why = format!("it has failed: {}", failure(status));
            Some(wait_reason(
                why,
                "look at its logs, then delete it or its manifest and make it again",
            ))
        }
    }
}

fn wait_reason(why: impl Into<String>, next_step: impl Into<String>) -> WaitReason {
    WaitReason { why: why.into(), next_step: next_step.into() }
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

fn unready(plan_context: &PlanContext<'_>, status: &PodStatus) -> WaitReason {
    if let Some(flight) = plan_context.view.memory.in_flight.values().next() {
        return wait_reason(in_progress(&flight.action), "nothing is to be done");
    }
    for container in plan_context.own_containers() {
        if let Some(waiting) = missing_readiness(plan_context, container) {
            return waiting;
        }
    }
    let gates = status.condition(condition::READY).map_or("", |ready| &*ready.message);
    wait_reason(
        format!("its readiness gates are not met: {gates}"),
        "their controllers must set them",
    )
}

/// What a container lacks to be ready.
fn missing_readiness(plan_context: &PlanContext<'_>, container: &Container) -> Option<WaitReason> {
    let name = &container.name;
    let record = plan_context.containers_by_name.latest(name)?;
    let sidecar = container.is_restarted_always();
    let is_init = plan_context.pod.spec.init_containers.iter().any(|each| each.name == *name);
    match record.state {
        ContainerState::Running if is_init && !sidecar => Some(wait_reason(
            format!("init container {name} is still running"),
            "it has to end by itself",
        )),
        ContainerState::Running if !plan_context.has_started(container, record) => {
            Some(wait_reason(
                format!("the startup probe of container {name} has not succeeded yet"),
                "see what the probe asks of it",
            ))
        }
        ContainerState::Running if !plan_context.is_ready(container, record) => Some(wait_reason(
            format!("the readiness probe of container {name} has not succeeded yet"),
            "see what the probe asks of it",
        )),
        ContainerState::Running => None,
        _ if is_init && !sidecar => None,
        // One that should start has recorded its reason already.
        _ => {
            let code = record.exit_code;
            let why = format!("container {name} exited with {code} and is not started again");
            Some(wait_reason(why, "its restart policy says so; the others go on"))
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
