//! The conditions of a pod, each with its reason, and with a transition time that changes only with
//! its status.
//!
//! upstream: status/generate.go

use pod_model::pod::Container;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, ContainerStatus, PodCondition, PodStatus};
use ports::ApiTime;

use crate::plan_context::PlanContext;
use crate::restart;
use crate::sandbox::{self, SandboxDecision};
use crate::status_text::condition;
use crate::time::timestamp;

pub(super) fn all(plan_context: &PlanContext<'_>, status: &PodStatus) -> Vec<PodCondition> {
    let mut conditions = plan_context.view.facts.external_conditions.clone();
    let owned: Vec<ConditionDraft> = [
        disruption_target(plan_context),
        Some(ready_to_start(plan_context)),
        Some(initialized(plan_context, status)),
        Some(ready(plan_context, status)),
        Some(containers_ready(plan_context, status)),
        Some(ConditionDraft::met(condition::SCHEDULED)),
        all_restarting(plan_context, status),
    ]
    .into_iter()
    .flatten()
    .collect();
    for found in owned {
        conditions.retain(|each| &*each.kind != found.kind);
        conditions.push(found.write(plan_context));
    }
    conditions
}

struct ConditionDraft {
    kind: &'static str,
    met: bool,
    reason: String,
    message: String,
}

impl ConditionDraft {
    fn met(kind: &'static str) -> Self {
        Self { kind, met: true, reason: String::new(), message: String::new() }
    }

    fn not(kind: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self { kind, met: false, reason: reason.to_owned(), message: message.into() }
    }

    fn write(self, plan_context: &PlanContext<'_>) -> PodCondition {
        let since = match plan_context.view.memory.persisted.conditions.get(self.kind) {
            Some(known) if known.met == self.met => ApiTime::from_nanos(known.since),
            _ => plan_context.view.now,
        };
        PodCondition {
            kind: self.kind.into(),
            observed_generation: plan_context.pod.metadata.generation,
            status: if self.met { ConditionStatus::True } else { ConditionStatus::False },
            last_probe_time: None,
            last_transition_time: Some(timestamp(since)),
            reason: self.reason.into(),
            message: self.message.into(),
        }
    }
}

fn disruption_target(plan_context: &PlanContext<'_>) -> Option<ConditionDraft> {
    let persisted = plan_context.view.memory.persisted.terminal_status.as_ref();
    let persisted = persisted.and_then(|terminal_status| terminal_status.disruption.as_ref());
    let effects = persisted.or(plan_context.view.desired.disruption())?;
    Some(ConditionDraft {
        kind: condition::DISRUPTION_TARGET,
        met: true,
        reason: effects.reason.clone(),
        message: effects.message.clone(),
    })
}

fn ready_to_start(plan_context: &PlanContext<'_>) -> ConditionDraft {
    match sandbox::decide(plan_context.pod, plan_context.view.observed) {
        SandboxDecision::Keep(_) => ConditionDraft::met(condition::READY_TO_START),
        SandboxDecision::New { .. } => ConditionDraft::not(condition::READY_TO_START, "", ""),
    }
}

fn containers_ready(plan_context: &PlanContext<'_>, status: &PodStatus) -> ConditionDraft {
    let kind = condition::CONTAINERS_READY;
    match status.phase {
        PodPhase::Succeeded => return ConditionDraft::not(kind, "PodCompleted", ""),
        PodPhase::Failed => return ConditionDraft::not(kind, "PodFailed", ""),
        _ => {}
    }
    let spec = &plan_context.pod.spec;
    let sidecars = spec.init_containers.iter().filter(|each| each.is_restarted_always());
    let unready: Vec<&str> = sidecars
        .chain(&spec.containers)
        .filter(|each| !status.container(&each.name).is_some_and(|found| found.ready))
        .map(|each| &*each.name)
        .collect();
    if unready.is_empty() {
        return ConditionDraft::met(kind);
    }
    let message = format!("containers with unready status: {}", go_list(&unready));
    ConditionDraft::not(kind, "ContainersNotReady", message)
}

fn ready(plan_context: &PlanContext<'_>, status: &PodStatus) -> ConditionDraft {
    let kind = condition::READY;
    let containers = containers_ready(plan_context, status);
    if !containers.met {
        return ConditionDraft { kind, ..containers };
    }
    let problems: Vec<String> = plan_context
        .pod
        .spec
        .readiness_gates
        .iter()
        .filter_map(|gate| gate_problem(plan_context, &gate.condition_type))
        .collect();
    if problems.is_empty() {
        return ConditionDraft::met(kind);
    }
    ConditionDraft::not(kind, "ReadinessGatesNotReady", problems.join(", "))
}

fn gate_problem(plan_context: &PlanContext<'_>, gate: &str) -> Option<String> {
    let found = plan_context.view.facts.external_conditions.iter().find(|each| &*each.kind == gate);
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

fn initialized(plan_context: &PlanContext<'_>, status: &PodStatus) -> ConditionDraft {
    let kind = condition::INITIALIZED;
    if status.phase == PodPhase::Succeeded {
        return ConditionDraft { reason: "PodCompleted".to_owned(), ..ConditionDraft::met(kind) };
    }
    let has_begun =
        |each: &ContainerStatus| each.state.running.is_some() || each.state.terminated.is_some();
    if status.container_statuses.iter().any(has_begun) {
        return ConditionDraft::met(kind);
    }
    let is_done = |container: &Container| {
        status.container(&container.name).is_some_and(|found| {
            if container.is_restarted_always() { found.started == Some(true) } else { found.ready }
        })
    };
    let incomplete: Vec<&str> = plan_context
        .pod
        .spec
        .init_containers
        .iter()
        .filter(|container| !is_done(container))
        .map(|container| &*container.name)
        .collect();
    // An initialized pod stays so while all its containers are restarted.
    let was = plan_context.settings.restart_all
        && plan_context.view.memory.persisted.conditions.get(kind).is_some_and(|known| known.met);
    if incomplete.is_empty() || was {
        return ConditionDraft::met(kind);
    }
    let message = format!("containers with incomplete status: {}", go_list(&incomplete));
    ConditionDraft::not(kind, "ContainersNotInitialized", message)
}

fn all_restarting(plan_context: &PlanContext<'_>, status: &PodStatus) -> Option<ConditionDraft> {
    if !restart::could_restart_all(&plan_context.pod.spec, plan_context.settings) {
        return None;
    }
    let kind = condition::ALL_RESTARTING;
    Some(match status.phase {
        PodPhase::Succeeded => ConditionDraft::not(kind, "PodCompleted", ""),
        PodPhase::Failed => ConditionDraft::not(kind, "PodFailed", ""),
        _ if plan_context.restarts_all() && !plan_context.is_cleared() => ConditionDraft {
            kind,
            met: true,
            reason: "RestartAllContainersStarted".to_owned(),
            message: "container exited with restart policy rule".to_owned(),
        },
        _ => ConditionDraft::not(kind, "", ""),
    })
}

/// As Go prints a list of strings.
fn go_list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}
