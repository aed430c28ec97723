//! The conditions of a pod, each with its reason, and with a transition time that changes only with
//! its status.
//!
//! upstream: status/generate.go

use pod_model::pod::Container;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, ContainerStatus, PodCondition, PodStatus};
use ports::ApiTime;

use crate::restart;
use crate::sandbox::{self, SandboxNeed};
use crate::scene::Scene;
use crate::time::timestamp;
use crate::words::condition;

pub(super) fn all(scene: &Scene<'_>, status: &PodStatus) -> Vec<PodCondition> {
    let mut conditions = scene.view.facts.foreign_conditions.clone();
    let owned: Vec<Found> = [
        disruption_target(scene),
        Some(ready_to_start(scene)),
        Some(initialized(scene, status)),
        Some(ready(scene, status)),
        Some(containers_ready(scene, status)),
        Some(Found::met(condition::SCHEDULED)),
        all_restarting(scene, status),
    ]
    .into_iter()
    .flatten()
    .collect();
    for found in owned {
        conditions.retain(|each| &*each.kind != found.kind);
        conditions.push(found.write(scene));
    }
    conditions
}

struct Found {
    kind: &'static str,
    met: bool,
    reason: String,
    message: String,
}

impl Found {
    fn met(kind: &'static str) -> Self {
        Self { kind, met: true, reason: String::new(), message: String::new() }
    }

    fn not(kind: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self { kind, met: false, reason: reason.to_owned(), message: message.into() }
    }

    fn write(self, scene: &Scene<'_>) -> PodCondition {
        let since = match scene.view.memory.kept.conditions.get(self.kind) {
            Some(known) if known.met == self.met => ApiTime::from_nanos(known.since),
            _ => scene.view.now,
        };
        PodCondition {
            kind: self.kind.into(),
            observed_generation: scene.pod.metadata.generation,
            status: if self.met { ConditionStatus::True } else { ConditionStatus::False },
            last_probe_time: None,
            last_transition_time: Some(timestamp(since)),
            reason: self.reason.into(),
            message: self.message.into(),
        }
    }
}

fn disruption_target(scene: &Scene<'_>) -> Option<Found> {
    let kept = scene.view.memory.kept.verdict.as_ref();
    let kept = kept.and_then(|verdict| verdict.disruption.as_ref());
    let told = kept.or(scene.view.desired.disruption())?;
    Some(Found {
        kind: condition::DISRUPTION_TARGET,
        met: true,
        reason: told.reason.clone(),
        message: told.message.clone(),
    })
}

fn ready_to_start(scene: &Scene<'_>) -> Found {
    match sandbox::need(scene.pod, scene.view.observed) {
        SandboxNeed::Keep(_) => Found::met(condition::READY_TO_START),
        SandboxNeed::New { .. } => Found::not(condition::READY_TO_START, "", ""),
    }
}

fn containers_ready(scene: &Scene<'_>, status: &PodStatus) -> Found {
    let kind = condition::CONTAINERS_READY;
    match status.phase {
        PodPhase::Succeeded => return Found::not(kind, "PodCompleted", ""),
        PodPhase::Failed => return Found::not(kind, "PodFailed", ""),
        _ => {}
    }
    let spec = &scene.pod.spec;
    let sidecars = spec.init_containers.iter().filter(|each| each.is_restarted_always());
    let unready: Vec<&str> = sidecars
        .chain(&spec.containers)
        .filter(|each| !status.container(&each.name).is_some_and(|found| found.ready))
        .map(|each| &*each.name)
        .collect();
    if unready.is_empty() {
        return Found::met(kind);
    }
    let message = format!("containers with unready status: {}", go_list(&unready));
    Found::not(kind, "ContainersNotReady", message)
}

fn ready(scene: &Scene<'_>, status: &PodStatus) -> Found {
    let kind = condition::READY;
    let containers = containers_ready(scene, status);
    if !containers.met {
        return Found { kind, ..containers };
    }
    let problems: Vec<String> = scene
        .pod
        .spec
        .readiness_gates
        .iter()
        .filter_map(|gate| gate_problem(scene, &gate.condition_type))
        .collect();
    if problems.is_empty() {
        return Found::met(kind);
    }
    Found::not(kind, "ReadinessGatesNotReady", problems.join(", "))
}

fn gate_problem(scene: &Scene<'_>, gate: &str) -> Option<String> {
    let found = scene.view.facts.foreign_conditions.iter().find(|each| &*each.kind == gate);
    match found {
        None => {
            Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist."))
        }
        Some(found) if found.status == ConditionStatus::True => None,
        Some(found) => Some(format!(
            "the status of pod readiness gate {gate:?} is not \"True\", but {}",
            found.status
        )),
    }
}

fn initialized(scene: &Scene<'_>, status: &PodStatus) -> Found {
    let kind = condition::INITIALIZED;
    if status.phase == PodPhase::Succeeded {
        return Found { reason: "PodCompleted".to_owned(), ..Found::met(kind) };
    }
    let has_begun =
        |each: &ContainerStatus| each.state.running.is_some() || each.state.terminated.is_some();
    if status.container_statuses.iter().any(has_begun) {
        return Found::met(kind);
    }
    let is_done = |container: &Container| {
        status.container(&container.name).is_some_and(|found| {
            if container.is_restarted_always() { found.started == Some(true) } else { found.ready }
        })
    };
    let incomplete: Vec<&str> = scene
        .pod
        .spec
        .init_containers
        .iter()
        .filter(|container| !is_done(container))
        .map(|container| &*container.name)
        .collect();
    // An initialized pod stays so while all its containers are restarted.
    let was = scene.settings.restart_all
        && scene.view.memory.kept.conditions.get(kind).is_some_and(|known| known.met);
    if incomplete.is_empty() || was {
        return Found::met(kind);
    }
    let message = format!("containers with incomplete status: {}", go_list(&incomplete));
    Found::not(kind, "ContainersNotInitialized", message)
}

fn all_restarting(scene: &Scene<'_>, status: &PodStatus) -> Option<Found> {
    if !restart::could_restart_all(&scene.pod.spec, scene.settings) {
        return None;
    }
    let kind = condition::ALL_RESTARTING;
    Some(match status.phase {
        PodPhase::Succeeded => Found::not(kind, "PodCompleted", ""),
        PodPhase::Failed => Found::not(kind, "PodFailed", ""),
        _ if scene.restarts_all() && !scene.is_cleared() => Found {
            kind,
            met: true,
            reason: "RestartAllContainersStarted".to_owned(),
            message: "container exited with restart policy rule".to_owned(),
        },
        _ => Found::not(kind, "", ""),
    })
}

/// As Go prints a list of strings.
fn go_list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}
