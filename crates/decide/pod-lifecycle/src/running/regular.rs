//! Which regular containers must be started or stopped.

use ports::runtime_objects::{ContainerRecord, ContainerState};

use pod_model::pod::Container;

use crate::action::KillReason;
use crate::containers_by_name;
use crate::input::ProbeKind;
use crate::plan_context::PlanContext;
use crate::restart;

use super::{ContainerActions, ContainerKill};

/// The event message for a container whose postStart hook failed.
pub(crate) const FAILED_HOOK_MESSAGE: &str = "FailedPostStartHook";

pub(crate) fn container_actions(plan_context: &PlanContext<'_>) -> ContainerActions {
    let mut container_actions = ContainerActions::default();
    let mut some_go_on = false;
    for container in &plan_context.pod.spec.containers {
        let name = container.name.to_string();
        let Some(record) = plan_context.containers_by_name.latest(&name) else {
            container_actions.starts.push(name);
            continue;
        };
        if record.state != ContainerState::Running {
            if plan_context.should_start(container)
                || plan_context.restarts_in_new_sandbox(container)
            {
                container_actions.starts.push(name.clone());
                if plan_context.may_be_running(record) {
                    container_actions.kills.push(unknown(record, "Container"));
                }
            }
            continue;
        }
        let Some((reason, mut message, restarts)) = fault(plan_context, container, record) else {
            some_go_on = true;
            continue;
        };
        if restarts {
            message.push_str(", will be restarted");
            container_actions.starts.push(name.clone());
        }
        container_actions.kills.push(ContainerKill {
            name,
            id: record.id.clone(),
            reason,
            message,
        });
    }
    // One that runs, or is about to be stopped, must exit before the pod counts as done.
    container_actions.finished = !some_go_on && container_actions.starts.is_empty();
    container_actions
}

/// Why a running container must be stopped, and whether it restarts.
fn fault(
    plan_context: &PlanContext<'_>,
    container: &Container,
    record: &ContainerRecord,
) -> Option<(KillReason, String, bool)> {
    let name = &container.name;
    let restarts = restart::after_kill(container, &plan_context.pod.spec, plan_context.settings);
    // First: the reference kills it before it examines anything else.
    if plan_context.failed_post_start(record) {
        let message = FAILED_HOOK_MESSAGE.to_owned();
        return Some((KillReason::FailedPostStartHook, message, restarts));
    }
    if containers_by_name::has_changed(container, record) {
        return Some((KillReason::Changed, format!("Container {name} definition changed"), true));
    }
    match failed_probe(plan_context, record) {
        Some(ProbeKind::Liveness) => {
            let message = format!("Container {name} failed liveness probe");
            return Some((KillReason::LivenessProbe, message, restarts));
        }
        Some(ProbeKind::Startup) => {
            let message = format!("Container {name} failed startup probe");
            return Some((KillReason::StartupProbe, message, restarts));
        }
        _ => {}
    }
    None
}

pub(crate) fn failed_probe(
    plan_context: &PlanContext<'_>,
    record: &ContainerRecord,
) -> Option<ProbeKind> {
    let (id, kind) = plan_context.memory(&record.name)?.failed_probe.as_ref()?;
    (*id == record.id).then_some(*kind)
}

/// A container in an unknown state is stopped, so that there are never two.
pub(crate) fn unknown(record: &ContainerRecord, title: &str) -> ContainerKill {
    ContainerKill {
        name: record.name.clone(),
        id: record.id.clone(),
        reason: KillReason::StateUnknown,
        message: format!("{title} is in \"unknown\" state, try killing it before restart"),
    }
}
