//! The order of starts: one container after the other, each attempted before the next.
//!
//! Rules: a container whose image is being pulled, or whose start is in flight, blocks those after
//! it; one in back-off, waiting for a retry or for an image that cannot be pulled does not.
//! (Containers that wait for an init container are not among the starts at all.)

use pod_model::pod::Container;
use ports::runtime_objects::{ContainerState, SandboxRecord};

use crate::action::{Action, ActionKey, ContainerKind};
use crate::back_off::StartTiming;
use crate::containers_by_name;
use crate::plan::{Draft, Rank, RequiredImage};
use crate::plan_context::PlanContext;
use crate::view::ImageState;

use super::{at, is_prepared};

/// Ephemeral containers that were never started; they are never restarted.
pub(crate) fn ephemeral_to_start(plan_context: &PlanContext<'_>) -> Vec<String> {
    plan_context
        .pod
        .spec
        .ephemeral_containers
        .iter()
        .map(|each| each.container.name.to_string())
        .filter(|name| {
            let latest = plan_context.containers_by_name.latest(name);
            latest.is_none_or(|record| record.state == ContainerState::Created)
        })
        .collect()
}

/// Whether the ones after this one may be attempted.
#[derive(PartialEq, Eq)]
enum StartFlow {
    Continue,
    Wait,
}

pub(crate) fn plan(
    plan_context: &PlanContext<'_>,
    draft: &mut Draft,
    sandbox: &SandboxRecord,
    starts: &[String],
) {
    require_images(plan_context, draft, starts);
    for name in starts {
        let Some((kind, container)) = containers_by_name::find(plan_context.pod, name) else {
            continue;
        };
        if step(plan_context, draft, sandbox, kind, container) == StartFlow::Wait {
            return;
        }
    }
}

/// Requests the images of all containers to be started that are not held back. After a failed start
/// only when the retry is due: an image that is present now may be gone by then.
pub(crate) fn require_images(plan_context: &PlanContext<'_>, draft: &mut Draft, starts: &[String]) {
    for name in starts {
        let Some((_, container)) = containers_by_name::find(plan_context.pod, name) else {
            continue;
        };
        let runs = plan_context
            .containers_by_name
            .latest(name)
            .is_some_and(|record| plan_context.may_be_running(record));
        let waits = matches!(plan_context.start_timing(container), StartTiming::Wait { .. });
        if runs || waits || plan_context.is_starting(name) || plan_context.is_waiting_to_retry(name)
        {
            continue;
        }
        draft.requirements.images.push(RequiredImage {
            container: name.clone(),
            attempt: plan_context.next_attempt(name),
            image: container.image.to_string(),
            policy: container.image_pull_policy.clone(),
        });
        if matches!(plan_context.image_state(name), Some(ImageState::Present { .. })) {
            draft.notes.images_ready.push(name.clone());
        }
    }
}

fn step(
    plan_context: &PlanContext<'_>,
    draft: &mut Draft,
    sandbox: &SandboxRecord,
    kind: ContainerKind,
    container: &Container,
) -> StartFlow {
    let name = &*container.name;
    let key = ActionKey::Container(name.to_owned());
    if plan_context.view.memory.is_in_flight(&key) {
        draft.wait(
            Rank::Passing,
            format!("container {name} is being started or stopped"),
            "nothing is to be done",
        );
        return StartFlow::Wait;
    }
    if let Some(record) = plan_context.containers_by_name.latest(name) {
        if plan_context.may_be_running(record) {
            // It is being stopped first.
            return StartFlow::Continue;
        }
        if record.state == ContainerState::Created {
            let (id, name) = (record.id.clone(), name.to_owned());
            if !draft.is_backing_off(plan_context, &key, &format!("removing container {name}")) {
                draft.wait(
                    Rank::Passing,
                    format!("container {name} was made but never started; it is removed first"),
                    "nothing is to be done",
                );
                draft.act(plan_context, Action::RemoveContainer { id, name, keep_logs: true });
            }
            return StartFlow::Wait;
        }
    }
    if let Some(start_blocker) = plan_context.start_blocker(container) {
        if let Some(until) = start_blocker.until.filter(|until| *until > plan_context.view.now) {
            draft.wake(until);
        }
        let next = at(start_blocker.until);
        let why = format!(
            "container {name} cannot start: {}: {}",
            start_blocker.reason, start_blocker.message
        );
        let blocked = start_blocker.until.is_some() || is_image_failure(plan_context, name);
        draft.notes.start_blockers.insert(name.to_owned(), start_blocker);
        draft.wait(Rank::Container, why, next);
        if blocked {
            return StartFlow::Continue;
        }
    }
    if !is_prepared(plan_context, draft) {
        return StartFlow::Wait;
    }
    let Some(ImageState::Present { image_ref }) = plan_context.image_state(name) else {
        let why = format!("the image {} of container {name} is not there yet", container.image);
        draft.wait(Rank::Container, why, "it is being pulled");
        return StartFlow::Wait;
    };
    if let StartTiming::Now(Some(back_off)) = plan_context.start_timing(container) {
        draft.notes.back_offs.insert(name.to_owned(), back_off);
    }
    draft.act(
        plan_context,
        Action::StartContainer {
            name: name.to_owned(),
            kind,
            attempt: plan_context.next_attempt(name),
            sandbox_id: sandbox.id.clone(),
            pod_ips: if plan_context.pod.spec.host_network {
                Vec::new()
            } else {
                sandbox.ips.clone()
            },
            image_ref: image_ref.clone(),
            target_id: target(plan_context, name),
        },
    );
    draft.wait(
        Rank::Passing,
        format!("container {name} is being started"),
        "nothing is to be done",
    );
    StartFlow::Wait
}

fn is_image_failure(plan_context: &PlanContext<'_>, name: &str) -> bool {
    matches!(plan_context.image_state(name), Some(ImageState::Failed { .. }))
}

/// The container whose processes an ephemeral container is to see.
fn target(plan_context: &PlanContext<'_>, name: &str) -> Option<String> {
    let ephemeral = plan_context.pod.spec.ephemeral_containers.iter();
    let target = ephemeral
        .filter(|each| &*each.container.name == name)
        .map(|each| &*each.target_container_name)
        .find(|target| !target.is_empty())?;
    plan_context.containers_by_name.latest(target).map(|record| record.id.clone())
}
