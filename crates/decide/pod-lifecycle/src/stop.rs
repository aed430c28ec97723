//! How containers are stopped: in which order, with which grace period.
//!
//! Rules: regular containers at once; a sidecar when all regular ones and the sidecars after it are
//! gone, or when the grace period is over, while its preStop hook begins with the others'; all
//! share one grace period; it only shrinks, and a shorter one replaces a stop in flight; a
//! postStart hook is not waited for.
//!
//! upstream: kuberuntime_container.go (killContainer), kuberuntime_termination_order.go

use std::time::Duration;

use pod_model::pod::{Container, Pod};
use ports::ApiTime;
use ports::runtime_objects::{ContainerRecord, ContainerState};

use crate::action::{Action, ActionKey, ContainerKind, KillReason};
use crate::containers_by_name;
use crate::memory::{ContainerStop, Ending};
use crate::plan::{Draft, Rank};
use crate::plan_context::PlanContext;
use crate::time::{between, plus, seconds};

/// A smaller difference of deadlines is processing time, not a shorter grace period.
const SAME_DEADLINE: Duration = Duration::from_secs(1);
/// When the runtime reported a container stopped that still runs, it is asked again after this.
const REPEAT_STOP_AFTER: Duration = Duration::from_secs(10);

/// The reference's minimum grace period, used where a pod sets none.
const SMALLEST_GRACE: i64 = 2;

/// The reason for a stop and its deadline.
pub(crate) struct ContainerStopRequest {
    pub(crate) reason: KillReason,
    pub(crate) message: String,
    pub(crate) deadline: ApiTime,
}

/// Stops everything that runs, in order, all within the same grace period.
pub(crate) fn everything(plan_context: &PlanContext<'_>, draft: &mut Draft, termination: Ending) {
    for container in plan_context.containers_by_name.everything() {
        let record = &container.record;
        if !plan_context.may_be_running(record) {
            abort_post_start(plan_context, draft, record);
            continue;
        }
        // One that was being stopped before gets no more time.
        let begun = recorded_stop(plan_context, record).map_or(i64::MAX, |stop| stop.deadline);
        let deadline = ApiTime::from_nanos(termination.deadline.min(begun));
        let message = format!("Stopping container {}", record.name);
        let stop_request = ContainerStopRequest { reason: KillReason::PodEnds, message, deadline };
        let waits = is_waiting_for_its_turn(plan_context, &record.name);
        if waits && plan_context.view.now < deadline {
            draft.wake(deadline);
            run_hook(plan_context, draft, record, deadline);
        } else {
            one(plan_context, draft, record, &stop_request);
        }
    }
}

/// Stops one container.
pub(crate) fn one(
    plan_context: &PlanContext<'_>,
    draft: &mut Draft,
    record: &ContainerRecord,
    stop_request: &ContainerStopRequest,
) {
    let name = &record.name;
    let now = plan_context.view.now;
    let left = between(now, stop_request.deadline);
    let mut replaces = false;
    if let Some(flight) = plan_context.view.memory.container_in_flight(name) {
        // Later than a stop that begins now could be.
        let late = |length: Duration| {
            plus(flight.began_at, length) > plus(stop_request.deadline.max(now), SAME_DEADLINE)
        };
        replaces = match &flight.action {
            Action::StopContainer { id, grace, .. } => *id == record.id && late(*grace),
            // The hook runs within the same grace period; only its end ends the wait for it.
            Action::RunPreStop { id, limit, .. } => {
                *id == record.id && (now >= stop_request.deadline || late(*limit))
            }
            // A postStart hook must not keep alive a container that has to stop.
            Action::StartContainer { .. } => {
                record.state == ContainerState::Running && flight.started(record)
            }
            _ => false,
        };
        if !replaces {
            if now < stop_request.deadline {
                draft.wake(stop_request.deadline);
            }
            return;
        }
    }
    let key = ActionKey::Container(name.clone());
    if !replaces && draft.is_backing_off(plan_context, &key, &format!("stopping container {name}"))
    {
        return;
    }
    if let Some((id, at)) =
        plan_context.transient(name).and_then(|transient| transient.stop_done.as_ref())
        && *id == record.id
    {
        let again = plus(*at, REPEAT_STOP_AFTER);
        if now < again {
            draft.wake(again);
            let why =
                format!("container {name} still runs after the runtime said it had stopped it");
            draft.wait(Rank::Container, why, "the runtime is asked again in a few seconds");
            return;
        }
    }
    let action = Action::StopContainer {
        id: record.id.clone(),
        name: name.clone(),
        grace: left,
        pre_stop: has_hook_to_run(plan_context, record) && !left.is_zero(),
        reason: stop_request.reason,
        message: stop_request.message.clone(),
        replaces,
    };
    draft.act(plan_context, action);
}

/// Ends a start whose container has exited while its postStart hook still runs. Nothing is left to
/// be stopped: the stop is only issued because it replaces the start.
fn abort_post_start(plan_context: &PlanContext<'_>, draft: &mut Draft, record: &ContainerRecord) {
    let Some((_, container)) = containers_by_name::find(plan_context.pod, &record.name) else {
        return;
    };
    if record.state != ContainerState::Exited || !plan_context.is_in_post_start(container, record) {
        return;
    }
    let action = Action::StopContainer {
        id: record.id.clone(),
        name: record.name.clone(),
        grace: Duration::ZERO,
        pre_stop: false,
        reason: KillReason::PodEnds,
        message: String::new(),
        replaces: true,
    };
    draft.act(plan_context, action);
}

/// The recorded stop of this container.
fn recorded_stop<'a>(
    plan_context: &PlanContext<'a>,
    record: &ContainerRecord,
) -> Option<&'a ContainerStop> {
    plan_context.memory(&record.name)?.stop.as_ref().filter(|stop| stop.id == record.id)
}

/// The preStop hook of a container whose turn has not come.
fn run_hook(
    plan_context: &PlanContext<'_>,
    draft: &mut Draft,
    record: &ContainerRecord,
    deadline: ApiTime,
) {
    if has_hook_to_run(plan_context, record) {
        let limit = between(plan_context.view.now, deadline);
        let (id, name) = (record.id.clone(), record.name.clone());
        draft.act(plan_context, Action::RunPreStop { id, name, limit });
    }
}

fn has_hook_to_run(plan_context: &PlanContext<'_>, record: &ContainerRecord) -> bool {
    let has_one = containers_by_name::find(plan_context.pod, &record.name)
        .and_then(|(_, container)| container.lifecycle.as_deref())
        .is_some_and(|lifecycle| lifecycle.pre_stop.is_some());
    let done = recorded_stop(plan_context, record).is_some_and(|stop| stop.hook_done);
    has_one && !done && record.state == ContainerState::Running
}

/// Whether a sidecar must wait for regular containers or for sidecars that come after it.
fn is_waiting_for_its_turn(plan_context: &PlanContext<'_>, name: &str) -> bool {
    let Some((ContainerKind::Sidecar, _)) = containers_by_name::find(plan_context.pod, name) else {
        return false;
    };
    let spec = &plan_context.pod.spec;
    let later = spec
        .init_containers
        .iter()
        .skip_while(|each| &*each.name != name)
        .skip(1)
        .filter(|each| each.is_restarted_always());
    let runs = |container: &Container| {
        plan_context.is_starting(&container.name)
            || plan_context
                .containers_by_name
                .all(&container.name)
                .iter()
                .any(|each| plan_context.may_be_running(&each.record))
    };
    spec.containers.iter().chain(later).any(runs)
}

/// The seconds that a container has to stop for this reason, by the pod's specification.
pub(crate) fn grace_seconds(pod: &Pod, container: Option<&Container>, reason: KillReason) -> i64 {
    if let Some(given) = pod.metadata.deletion_grace_period_seconds {
        return given;
    }
    let Some(of_pod) = pod.spec.termination_grace_period_seconds else { return SMALLEST_GRACE };
    let probe = container.and_then(|container| match reason {
        KillReason::LivenessProbe => container.liveness_probe.as_deref(),
        KillReason::StartupProbe => container.startup_probe.as_deref(),
        _ => None,
    });
    probe.and_then(|probe| probe.termination_grace_period_seconds).unwrap_or(of_pod)
}

/// The deadline of a single container for this reason, counted from when its stop began.
pub(crate) fn deadline(
    plan_context: &PlanContext<'_>,
    record: &ContainerRecord,
    container: Option<&Container>,
    reason: KillReason,
) -> ApiTime {
    match recorded_stop(plan_context, record) {
        Some(stop) => ApiTime::from_nanos(stop.deadline),
        None => {
            plus(plan_context.view.now, seconds(grace_seconds(plan_context.pod, container, reason)))
        }
    }
}
