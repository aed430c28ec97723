//! The statuses of a pod's containers: state, last state, counts, flags.
//!
//! Rules: the newest record gives the state and the one before it the last state; where a record is
//! gone the memory stands in, and a container that ran and vanished has exited with 137; a
//! container that should start and cannot is waiting, with the reason; one whose postStart hook has
//! not succeeded is reported as before its start.
//!
//! upstream: kubelet_pods.go (convertToAPIContainerStatuses), prober/prober_manager.go

use pod_model::pod::Container;
use pod_model::pod::container::RecursiveReadOnly;
use pod_model::pod::spec::ContainerList;
use pod_model::pod::status::{
    ContainerRunning, ContainerStateNow, ContainerStatus, ContainerUser, LinuxContainerUser,
    VolumeMountStatus,
};
use ports::runtime_objects::{ContainerRecord, ContainerState};

use crate::action::ContainerKind;
use crate::containers_by_name::{self, restart_count};
use crate::memory::{ContainerExit, ContainerMemory, Reported};
use crate::plan_context::PlanContext;
use crate::restart;
use crate::status_text::{
    CONTAINER_CREATING, LOST_AT_THE_END, LOST_WHILE_RUNNING, POD_INITIALIZING, PRESUMED_COMPLETED,
    RESTARTING_ALL, RESTARTING_ALL_MESSAGE, STATUS_UNKNOWN,
};
use crate::time::stamp;
use crate::view::ObservedContainer;

use super::{oom_kills, resources};

/// In the order of the specification.
pub(super) fn init(plan_context: &PlanContext<'_>) -> Vec<ContainerStatus> {
    let containers = &plan_context.pod.spec.init_containers;
    containers.iter().map(|container| one(plan_context, ContainerList::Init, container)).collect()
}

/// In the order of their names, as all but init containers are.
pub(super) fn regular(plan_context: &PlanContext<'_>) -> Vec<ContainerStatus> {
    let containers = plan_context.pod.spec.containers.iter();
    sorted(
        containers.map(|container| one(plan_context, ContainerList::Regular, container)).collect(),
    )
}

pub(super) fn ephemeral(plan_context: &PlanContext<'_>) -> Vec<ContainerStatus> {
    let containers = plan_context.pod.spec.ephemeral_containers.iter().map(|each| &each.container);
    sorted(
        containers
            .map(|container| one(plan_context, ContainerList::Ephemeral, container))
            .collect(),
    )
}

fn sorted(mut statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    statuses.sort_by(|one, other| one.name.cmp(&other.name));
    statuses
}

fn one(
    plan_context: &PlanContext<'_>,
    list: ContainerList,
    container: &Container,
) -> ContainerStatus {
    let mut records = plan_context.containers_by_name.all(&container.name);
    if let Some((newest, older)) = records.split_first()
        && plan_context.is_post_start_pending(container, &newest.record)
    {
        records = older;
    }
    let old = plan_context.memory(&container.name);
    let mut status = match records.first() {
        Some(newest) => observed(plan_context, newest, old),
        None => missing_in_runtime(plan_context, container, old),
    };
    if let Some(before) = records.get(1) {
        status.last_state = observed(plan_context, before, old).state;
    }
    status.name = container.name.clone();
    status.volume_mounts = mounts(plan_context, container);
    if let Some(newest) = records.first() {
        status.allocated_resources = container.resources.requests.clone();
        let actual = resources::of_container(container, &newest.record);
        status.resources = Some(Box::new(actual));
    }
    if list == ContainerList::Regular
        && let Some(resources) = plan_context.view.facts.allocated_resources.get(&*container.name)
    {
        status.allocated_resources_status.clone_from(resources);
    }
    waiting(plan_context, list, container, &mut status);
    flags(plan_context, list, container, &mut status);
    status
}

/// The status from the runtime's record.
fn observed(
    plan_context: &PlanContext<'_>,
    container: &ObservedContainer,
    old: Option<&ContainerMemory>,
) -> ContainerStatus {
    let record = &container.record;
    let id = format!("{}://{}", plan_context.settings.runtime_name, record.id);
    let mut count = restart_count(record);
    let mut last_exit = None;
    if let Some(old) = old {
        count = count.max(old.restart_count);
        last_exit = match &old.reported {
            Reported::Exited { exit, .. } if exit.container_id != id => Some(exit),
            _ => old.last_exit.as_ref(),
        };
    }
    let was_running = matches!(old.map(|old| &old.reported), Some(Reported::Running { .. }));
    let state = match record.state {
        ContainerState::Running => {
            // A start whose record was removed counts even where the runtime does not know it.
            if let Some(ContainerMemory {
                reported: Reported::Exited { .. }, restart_count, ..
            }) = old
                && *restart_count >= containers_by_name::restart_count(record)
            {
                count = restart_count.saturating_add(1);
            }
            ContainerStateNow {
                running: Some(ContainerRunning { started_at: stamp(record.started_at) }),
                ..ContainerStateNow::default()
            }
        }
        ContainerState::Exited => ended(&with_reported_exit(exit_of(container, &id), old)),
        ContainerState::Unknown if was_running => {
            count = old.map_or(count, |old| old.restart_count.saturating_add(1));
            let reason = if plan_context.restarts_all() { RESTARTING_ALL } else { STATUS_UNKNOWN };
            ended(&lost(reason, LOST_AT_THE_END))
        }
        ContainerState::Created | ContainerState::Unknown => {
            ContainerStateNow::is_waiting_for("", "")
        }
    };
    ContainerStatus {
        state,
        last_state: last_exit.map(ended).unwrap_or_default(),
        restart_count: i32::try_from(count).unwrap_or(i32::MAX),
        image: record.image.as_str().into(),
        image_id: record.image_ref.as_str().into(),
        container_id: id.into(),
        user: user(record),
        ..ContainerStatus::default()
    }
}

/// The status of a container that the runtime does not have.
fn missing_in_runtime(
    plan_context: &PlanContext<'_>,
    container: &Container,
    old: Option<&ContainerMemory>,
) -> ContainerStatus {
    let reason = if plan_context.pod.spec.init_containers.is_empty() {
        CONTAINER_CREATING
    } else {
        POD_INITIALIZING
    };
    let mut status = ContainerStatus {
        image: container.image.clone(),
        state: ContainerStateNow::is_waiting_for(reason, ""),
        ..ContainerStatus::default()
    };
    let Some(old) = old else { return status };
    let mut count = old.restart_count;
    status.last_state = old.last_exit.as_ref().map(ended).unwrap_or_default();
    match &old.reported {
        Reported::Nothing | Reported::Waiting => {}
        _ if plan_context.restarts_all() => {
            status.state =
                ContainerStateNow::is_waiting_for(RESTARTING_ALL, RESTARTING_ALL_MESSAGE);
            status.last_state = ended(&lost(RESTARTING_ALL, RESTARTING_ALL_MESSAGE));
            count = count.saturating_add(1);
        }
        Reported::Exited { exit, image, image_id } => {
            status.state = ended(exit);
            status.image = image.as_str().into();
            status.image_id = image_id.as_str().into();
            status.container_id = exit.container_id.as_str().into();
        }
        // It ran and is gone: that it exited is known, but not how.
        Reported::Running { .. } => {
            if !plan_context.over {
                count = count.saturating_add(1);
            }
            status.last_state = ended(&lost(STATUS_UNKNOWN, LOST_WHILE_RUNNING));
        }
    }
    status.restart_count = i32::try_from(count).unwrap_or(i32::MAX);
    status
}

/// A container that should start and does not is waiting, with the reason.
fn waiting(
    plan_context: &PlanContext<'_>,
    list: ContainerList,
    container: &Container,
    status: &mut ContainerStatus,
) {
    let latest = plan_context.containers_by_name.latest(&container.name);
    if list == ContainerList::Init {
        if latest.is_some_and(has_succeeded) {
            return;
        }
        let reconstructed = latest.is_none()
            && !container.is_restarted_always()
            && status.state.waiting.is_some()
            && plan_context.containers_by_name.has_regular(plan_context.pod);
        if reconstructed {
            let exit = ContainerExit {
                reason: "Completed".to_owned(),
                message: PRESUMED_COMPLETED.to_owned(),
                ..ContainerExit::default()
            };
            status.state = ended(&exit);
            return;
        }
    }
    if !plan_context.should_start(container) {
        return;
    }
    // An ephemeral container is never restarted.
    if list == ContainerList::Ephemeral && latest.is_some() {
        return;
    }
    let blocker = plan_context.start_blocker(container).map(|each| (each.reason, each.message));
    // The API server refuses a container that runs again after an exit that its policy calls final.
    let is_replaced = latest.is_some_and(|record| {
        plan_context.was_killed_to_restart(record)
            && !restart::after_exit(
                container,
                &plan_context.pod.spec,
                record.exit_code,
                plan_context.settings,
            )
    });
    let replaced = is_replaced.then(|| (CONTAINER_CREATING.to_owned(), String::new()));
    let Some((reason, message)) = blocker.or(replaced) else { return };
    if status.state.terminated.is_some() {
        status.last_state = std::mem::take(&mut status.state);
    }
    status.state = ContainerStateNow::is_waiting_for(&reason, &message);
}

/// Started and ready.
fn flags(
    plan_context: &PlanContext<'_>,
    list: ContainerList,
    container: &Container,
    status: &mut ContainerStatus,
) {
    if list == ContainerList::Ephemeral {
        return;
    }
    let latest = plan_context.containers_by_name.latest(&container.name);
    let started = latest.is_some_and(|record| plan_context.has_started(container, record));
    status.started = Some(started);
    status.ready = match containers_by_name::kind(list, container) {
        ContainerKind::Init => {
            status.state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0)
        }
        _ => latest.is_some_and(|record| plan_context.is_ready(container, record)),
    };
}

pub(crate) fn has_succeeded(record: &ContainerRecord) -> bool {
    record.state == ContainerState::Exited && record.exit_code == 0
}

fn ended(exit: &ContainerExit) -> ContainerStateNow {
    ContainerStateNow {
        terminated: Some(Box::new(exit.to_status())),
        ..ContainerStateNow::default()
    }
}

fn lost(reason: &str, message: &str) -> ContainerExit {
    ContainerExit {
        code: 137,
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..ContainerExit::default()
    }
}

/// A reported exit stays as reported, even when the file with its termination message is gone.
fn with_reported_exit(exit: ContainerExit, old: Option<&ContainerMemory>) -> ContainerExit {
    let Some(old) = old else { return exit };
    let reported = match &old.reported {
        Reported::Exited { exit, .. } => Some(exit),
        _ => None,
    };
    let effects = reported
        .into_iter()
        .chain(&old.last_exit)
        .find(|effects| effects.container_id == exit.container_id && effects.code == exit.code);
    match effects {
        Some(effects) if effects.message.len() > exit.message.len() => effects.clone(),
        _ => exit,
    }
}

fn exit_of(container: &ObservedContainer, id: &str) -> ContainerExit {
    let record = &container.record;
    let mut parts: Vec<String> = Vec::new();
    let messages = [Some(&record.message), container.termination_message.as_ref()];
    parts.extend(messages.into_iter().flatten().filter(|text| !text.is_empty()).cloned());
    let (reason, of_memory) = oom_kills::oom_reason_and_message(record, &container.oom_kills);
    parts.extend(of_memory);
    ContainerExit {
        code: record.exit_code,
        reason,
        message: parts.join(": "),
        started_at: stamp(record.started_at).map(|at| at.0),
        finished_at: stamp(record.finished_at).map(|at| at.0),
        container_id: id.to_owned(),
    }
}

fn user(record: &ContainerRecord) -> Option<Box<ContainerUser>> {
    let user = record.user.as_ref()?;
    Some(Box::new(ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: user.supplemental_groups.clone(),
        }),
    }))
}

fn mounts(plan_context: &PlanContext<'_>, container: &Container) -> Vec<VolumeMountStatus> {
    let handler = crate::sandbox::newest(plan_context.view.observed)
        .map_or("", |sandbox| sandbox.runtime_handler.as_str());
    let able = plan_context.settings.recursive_read_only.get(handler).copied().unwrap_or(false);
    let recursive = |desired_state: Option<&RecursiveReadOnly>| match desired_state {
        Some(RecursiveReadOnly::Enabled) => true,
        Some(RecursiveReadOnly::IfPossible) => able,
        _ => false,
    };
    container
        .volume_mounts
        .iter()
        .map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            recursive_read_only: mount.read_only.then(|| {
                match recursive(mount.recursive_read_only.as_ref()) {
                    true => RecursiveReadOnly::Enabled,
                    false => RecursiveReadOnly::Disabled,
                }
            }),
        })
        .collect()
}
