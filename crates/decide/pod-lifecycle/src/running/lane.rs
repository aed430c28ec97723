//! The order of starts: one container after the other, each attempted before the next.
//!
//! Rules: a container whose image is being pulled, or whose start is in flight, blocks those after
//! it; one in back-off, waiting for a retry or for an image that cannot be pulled does not.
//! (Containers that wait for an init container are not among the starts at all.)

use pod_model::pod::Container;
use ports::runtime_objects::{ContainerState, SandboxRecord};

use crate::action::{Action, ActionKey, ContainerKind};
use crate::back_off::Pace;
use crate::lineup;
use crate::plan::{Draft, ImageWant, Rank};
use crate::scene::Scene;
use crate::view::ImageState;

use super::{at, is_prepared};

/// Ephemeral containers that were never started; they are never restarted.
pub(crate) fn ephemeral_to_start(scene: &Scene<'_>) -> Vec<String> {
    scene
        .pod
        .spec
        .ephemeral_containers
        .iter()
        .map(|each| each.container.name.to_string())
        .filter(|name| {
            let latest = scene.lineup.latest(name);
            latest.is_none_or(|record| record.state == ContainerState::Created)
        })
        .collect()
}

/// Whether the ones after this one may be attempted.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Wait,
}

pub(crate) fn plan(
    scene: &Scene<'_>,
    draft: &mut Draft,
    sandbox: &SandboxRecord,
    starts: &[String],
) {
    want_images(scene, draft, starts);
    for name in starts {
        let Some((kind, container)) = lineup::find(scene.pod, name) else { continue };
        if step(scene, draft, sandbox, (kind, container)) == Next::Wait {
            return;
        }
    }
}

/// Requests the images of all containers to be started that are not held back. After a failed start
/// only when the retry is due: an image that is present now may be gone by then.
pub(crate) fn want_images(scene: &Scene<'_>, draft: &mut Draft, starts: &[String]) {
    for name in starts {
        let Some((_, container)) = lineup::find(scene.pod, name) else { continue };
        let runs = scene.lineup.latest(name).is_some_and(|record| scene.may_run(record));
        let waits = matches!(scene.pace(container), Pace::Wait { .. });
        if runs || waits || scene.is_starting(name) || scene.pauses_after_failure(name) {
            continue;
        }
        draft.wants.images.push(ImageWant {
            container: name.clone(),
            attempt: scene.next_attempt(name),
            image: container.image.to_string(),
            policy: container.image_pull_policy.clone(),
        });
        if matches!(scene.image_state(name), Some(ImageState::Present { .. })) {
            draft.notes.images_ready.push(name.clone());
        }
    }
}

fn step(
    scene: &Scene<'_>,
    draft: &mut Draft,
    sandbox: &SandboxRecord,
    (kind, container): (ContainerKind, &Container),
) -> Next {
    let name = &*container.name;
    let key = ActionKey::Container(name.to_owned());
    if scene.view.memory.is_busy(&key) {
        draft.wait(
            Rank::Passing,
            format!("container {name} is being started or stopped"),
            "nothing is to be done",
        );
        return Next::Wait;
    }
    if let Some(record) = scene.lineup.latest(name) {
        if scene.may_run(record) {
            // It is being stopped first.
            return Next::GoOn;
        }
        if record.state == ContainerState::Created {
            let (id, name) = (record.id.clone(), name.to_owned());
            if !draft.holds_back(scene, &key, &format!("removing container {name}")) {
                draft.wait(
                    Rank::Passing,
                    format!("container {name} was made but never started; it is removed first"),
                    "nothing is to be done",
                );
                draft.act(scene, Action::RemoveContainer { id, name, keep_logs: true });
            }
            return Next::Wait;
        }
    }
    if let Some(trouble) = scene.trouble(container) {
        if let Some(until) = trouble.until.filter(|until| *until > scene.view.now) {
            draft.wake(until);
        }
        let next = at(trouble.until);
        let why = format!("container {name} cannot start: {}: {}", trouble.reason, trouble.message);
        let blocked = trouble.until.is_some() || is_image_failure(scene, name);
        draft.notes.troubles.insert(name.to_owned(), trouble);
        draft.wait(Rank::Container, why, next);
        if blocked {
            return Next::GoOn;
        }
    }
    if !is_prepared(scene, draft) {
        return Next::Wait;
    }
    let Some(ImageState::Present { image_ref }) = scene.image_state(name) else {
        let why = format!("the image {} of container {name} is not there yet", container.image);
        draft.wait(Rank::Container, why, "it is being pulled");
        return Next::Wait;
    };
    if let Pace::Now(Some(back_off)) = scene.pace(container) {
        draft.notes.back_offs.insert(name.to_owned(), back_off);
    }
    draft.act(
        scene,
        Action::StartContainer {
            name: name.to_owned(),
            kind,
            attempt: scene.next_attempt(name),
            sandbox_id: sandbox.id.clone(),
            pod_ips: if scene.pod.spec.host_network { Vec::new() } else { sandbox.ips.clone() },
            image_ref: image_ref.clone(),
            target_id: target(scene, name),
        },
    );
    draft.wait(
        Rank::Passing,
        format!("container {name} is being started"),
        "nothing is to be done",
    );
    Next::Wait
}

fn is_image_failure(scene: &Scene<'_>, name: &str) -> bool {
    matches!(scene.image_state(name), Some(ImageState::Failed { .. }))
}

/// The container whose processes an ephemeral container is to see.
fn target(scene: &Scene<'_>, name: &str) -> Option<String> {
    let ephemeral = scene.pod.spec.ephemeral_containers.iter();
    let target = ephemeral
        .filter(|each| &*each.container.name == name)
        .map(|each| &*each.target_container_name)
        .find(|target| !target.is_empty())?;
    scene.lineup.latest(target).map(|record| record.id.clone())
}
