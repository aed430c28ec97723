//! Which regular containers must be started or stopped.

use ports::runtime_objects::{ContainerRecord, ContainerState};

use pod_model::pod::Container;

use crate::action::KillReason;
use crate::happening::ProbeKind;
use crate::lineup;
use crate::restart;
use crate::scene::Scene;

use super::{Kill, Needs};

/// The event message for a container whose postStart hook failed.
pub(crate) const FAILED_HOOK_MESSAGE: &str = "FailedPostStartHook";

pub(crate) fn needs(scene: &Scene<'_>) -> Needs {
    let mut needs = Needs::default();
    let mut some_go_on = false;
    for container in &scene.pod.spec.containers {
        let name = container.name.to_string();
        let Some(record) = scene.lineup.latest(&name) else {
            needs.starts.push(name);
            continue;
        };
        if record.state != ContainerState::Running {
            if scene.should_start(container) || scene.begins_again(container) {
                needs.starts.push(name.clone());
                if scene.may_run(record) {
                    needs.kills.push(unknown(record, "Container"));
                }
            }
            continue;
        }
        let Some((reason, mut message, restarts)) = fault(scene, container, record) else {
            some_go_on = true;
            continue;
        };
        if restarts {
            message.push_str(", will be restarted");
            needs.starts.push(name.clone());
        }
        needs.kills.push(Kill { name, id: record.id.clone(), reason, message });
    }
    // One that runs, or is about to be stopped, must exit before the pod counts as done.
    needs.finished = !some_go_on && needs.starts.is_empty();
    needs
}

/// Why a running container must be stopped, and whether it restarts.
fn fault(
    scene: &Scene<'_>,
    container: &Container,
    record: &ContainerRecord,
) -> Option<(KillReason, String, bool)> {
    let name = &container.name;
    let restarts = restart::after_kill(container, &scene.pod.spec, scene.settings);
    // First: the reference kills it before it examines anything else.
    if scene.failed_post_start(record) {
        let message = FAILED_HOOK_MESSAGE.to_owned();
        return Some((KillReason::FailedPostStartHook, message, restarts));
    }
    if lineup::has_changed(container, record) {
        return Some((KillReason::Changed, format!("Container {name} definition changed"), true));
    }
    match failed_probe(scene, record) {
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

pub(crate) fn failed_probe(scene: &Scene<'_>, record: &ContainerRecord) -> Option<ProbeKind> {
    let (id, kind) = scene.memory(&record.name)?.failed_probe.as_ref()?;
    (*id == record.id).then_some(*kind)
}

/// A container in an unknown state is stopped, so that there are never two.
pub(crate) fn unknown(record: &ContainerRecord, title: &str) -> Kill {
    Kill {
        name: record.name.clone(),
        id: record.id.clone(),
        reason: KillReason::StateUnknown,
        message: format!("{title} is in \"unknown\" state, try killing it before restart"),
    }
}
