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
use crate::happening::ProbeKind;
use crate::lineup;
use crate::restart;
use crate::scene::Scene;

use super::regular::{FAILED_HOOK_MESSAGE, failed_probe, unknown};
use super::{Kill, Needs};

pub(crate) fn needs(scene: &Scene<'_>) -> Needs {
    let containers = &scene.pod.spec.init_containers;
    let mut needs = Needs { initialized: containers.is_empty(), ..Needs::default() };
    if containers.is_empty() {
        return needs;
    }
    let begun = has_begun(scene);
    needs.initialized = begun;
    let mut past = begun;
    for (at, container) in containers.iter().enumerate().rev() {
        let sidecar = container.is_restarted_always();
        let Some(record) = scene.lineup.latest(&container.name) else {
            if past && sidecar {
                needs.starts.push(container.name.to_string());
            }
            continue;
        };
        if past && !sidecar {
            continue;
        }
        let next = containers.get(at + 1);
        let done = if sidecar {
            examine_sidecar(scene, container, record, &mut needs)
        } else {
            examine_init(scene, container, record, &mut needs)
        };
        if needs.finished {
            needs.starts.clear();
            return needs;
        }
        if done {
            match next {
                None => needs.initialized = true,
                Some(next) if !past => needs.starts.push(next.name.to_string()),
                Some(_) => {}
            }
        }
        past = true;
    }
    if !past {
        needs.starts.extend(containers.first().map(|first| first.name.to_string()));
    }
    // They were found in reverse order.
    needs.starts.reverse();
    needs
}

/// A regular container that was created, or runs, shows that initialization is over. One that has
/// exited does not: it may be from the sandbox before.
fn has_begun(scene: &Scene<'_>) -> bool {
    scene.pod.spec.containers.iter().any(|container| {
        scene.lineup.latest(&container.name).is_some_and(|record| {
            matches!(record.state, ContainerState::Created | ContainerState::Running)
        })
    })
}

/// An ordinary init container; true when it has completed.
fn examine_init(
    scene: &Scene<'_>,
    container: &Container,
    record: &ContainerRecord,
    needs: &mut Needs,
) -> bool {
    let restarts = match record.state {
        ContainerState::Running => return false,
        ContainerState::Created => true,
        ContainerState::Exited if record.exit_code == 0 => return true,
        ContainerState::Exited => {
            restart::after_exit(container, &scene.pod.spec, record.exit_code, scene.settings)
        }
        ContainerState::Unknown => restart::after_kill(container, &scene.pod.spec, scene.settings),
    };
    if !restarts {
        needs.finished = true;
        return false;
    }
    if scene.may_run(record) {
        needs.kills.push(unknown(record, "Init container"));
    }
    needs.starts.push(container.name.to_string());
    false
}

/// A sidecar; true when it has started, so that the next may.
fn examine_sidecar(
    scene: &Scene<'_>,
    container: &Container,
    record: &ContainerRecord,
    needs: &mut Needs,
) -> bool {
    let name = container.name.to_string();
    match record.state {
        ContainerState::Created | ContainerState::Exited => {
            needs.starts.push(name);
            return false;
        }
        ContainerState::Unknown => {
            if scene.may_run(record) {
                needs.kills.push(unknown(record, "Init container"));
            }
            needs.starts.push(name);
            return false;
        }
        ContainerState::Running => {}
    }
    let probe = failed_probe(scene, record);
    let started = scene.has_started(container, record);
    let fault = if scene.failed_post_start(record) {
        Some((KillReason::FailedPostStartHook, FAILED_HOOK_MESSAGE.to_owned()))
    } else if probe == Some(ProbeKind::Startup) {
        Some((KillReason::StartupProbe, format!("Init container {name} failed startup probe")))
    } else if !started {
        None
    } else if lineup::has_changed(container, record) {
        Some((KillReason::Changed, format!("Init container {name} definition changed")))
    } else if probe == Some(ProbeKind::Liveness) {
        Some((KillReason::LivenessProbe, format!("Init container {name} failed liveness probe")))
    } else {
        None
    };
    if let Some((reason, message)) = fault {
        needs.kills.push(Kill { name: name.clone(), id: record.id.clone(), reason, message });
        needs.starts.push(name);
    }
    started && probe != Some(ProbeKind::Startup)
}
