//! Progress of initialization: which init container comes next, which sidecars must be restarted or
//! stopped.
//!
//! Rules: containers are examined from the last to the first, since records of earlier ones may be
//! gone; the newest with a record shows the progress, everything before it is done; one after the
//! other, a sidecar counts as done once it has started. A regular container that runs or was
//! created shows that initialization is over.
//!
//! upstream: kuberuntime_container.go (computeInitContainerActions)

use pod_model::pod::Container;
use ports::runtime_objects::{ContainerRecord, ContainerState};

use crate::action::KillReason;
use crate::containers_by_name;
use crate::input::ProbeKind;
use crate::plan_context::PlanContext;
use crate::restart;

use super::regular::{FAILED_HOOK_MESSAGE, failed_probe, unknown};
use super::{ContainerActions, ContainerKill};

pub(crate) fn container_actions(plan_context: &PlanContext<'_>) -> ContainerActions {
    let containers = &plan_context.pod.spec.init_containers;
    let mut container_actions =
        ContainerActions { initialized: containers.is_empty(), ..ContainerActions::default() };
    if containers.is_empty() {
        return container_actions;
    }
    let begun = has_begun(plan_context);
    container_actions.initialized = begun;
    let mut past = begun;
    for (at, container) in containers.iter().enumerate().rev() {
        let sidecar = container.is_restarted_always();
        let Some(record) = plan_context.containers_by_name.latest(&container.name) else {
            if past && sidecar {
                container_actions.starts.push(container.name.to_string());
            }
            continue;
        };
        if past && !sidecar {
            continue;
        }
        let next = containers.get(at + 1);
        let done = if sidecar {
            examine_sidecar(plan_context, container, record, &mut container_actions)
        } else {
            examine_init(plan_context, container, record, &mut container_actions)
        };
        if container_actions.finished {
            container_actions.starts.clear();
            return container_actions;
        }
        if done {
            match next {
                None => container_actions.initialized = true,
                Some(next) if !past => container_actions.starts.push(next.name.to_string()),
                Some(_) => {}
            }
        }
        past = true;
    }
    if !past {
        container_actions.starts.extend(containers.first().map(|first| first.name.to_string()));
    }
    // They were found in reverse order.
    container_actions.starts.reverse();
    container_actions
}

/// A regular container that was created, or runs, shows that initialization is over. One that has
/// exited does not: it may be from the sandbox before.
fn has_begun(plan_context: &PlanContext<'_>) -> bool {
    plan_context.pod.spec.containers.iter().any(|container| {
        plan_context.containers_by_name.latest(&container.name).is_some_and(|record| {
            matches!(record.state, ContainerState::Created | ContainerState::Running)
        })
    })
}

/// An ordinary init container; true when it has completed.
fn examine_init(
    plan_context: &PlanContext<'_>,
    container: &Container,
    record: &ContainerRecord,
    container_actions: &mut ContainerActions,
) -> bool {
    let restarts = match record.state {
        ContainerState::Running => return false,
        ContainerState::Created => true,
        ContainerState::Exited if record.exit_code == 0 => return true,
        ContainerState::Exited => restart::after_exit(
            container,
            &plan_context.pod.spec,
            record.exit_code,
            plan_context.settings,
        ),
        ContainerState::Unknown => {
            restart::after_kill(container, &plan_context.pod.spec, plan_context.settings)
        }
    };
    if !restarts {
        container_actions.finished = true;
        return false;
    }
    if plan_context.may_be_running(record) {
        container_actions.kills.push(unknown(record, "Init container"));
    }
    container_actions.starts.push(container.name.to_string());
    false
}

/// A sidecar; true when it has started, so that the next may.
fn examine_sidecar(
    plan_context: &PlanContext<'_>,
    container: &Container,
    record: &ContainerRecord,
    container_actions: &mut ContainerActions,
) -> bool {
    let name = container.name.to_string();
    match record.state {
        ContainerState::Created | ContainerState::Exited => {
            container_actions.starts.push(name);
            return false;
        }
        ContainerState::Unknown => {
            if plan_context.may_be_running(record) {
                container_actions.kills.push(unknown(record, "Init container"));
            }
            container_actions.starts.push(name);
            return false;
        }
        ContainerState::Running => {}
    }
    let probe = failed_probe(plan_context, record);
    let started = plan_context.has_started(container, record);
    let fault = if plan_context.failed_post_start(record) {
        Some((KillReason::FailedPostStartHook, FAILED_HOOK_MESSAGE.to_owned()))
    } else if probe == Some(ProbeKind::Startup) {
        Some((KillReason::StartupProbe, format!("Init container {name} failed startup probe")))
    } else if !started {
        None
    } else if containers_by_name::has_changed(container, record) {
        Some((KillReason::Changed, format!("Init container {name} definition changed")))
    } else if probe == Some(ProbeKind::Liveness) {
        Some((KillReason::LivenessProbe, format!("Init container {name} failed liveness probe")))
    } else {
        None
    };
    if let Some((reason, message)) = fault {
        container_actions.kills.push(ContainerKill {
            name: name.clone(),
            id: record.id.clone(),
            reason,
            message,
        });
        container_actions.starts.push(name);
    }
    started && probe != Some(ProbeKind::Startup)
}
