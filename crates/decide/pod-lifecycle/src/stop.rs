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
use crate::lineup;
use crate::memory::{Ending, Stop};
use crate::plan::{Draft, Rank};
use crate::scene::Scene;
use crate::time::{between, plus, seconds};

/// A smaller difference of deadlines is processing time, not a shorter grace period.
const SAME_DEADLINE: Duration = Duration::from_secs(1);
/// When the runtime reported a container stopped that still runs, it is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The reference's minimum grace period, used where a pod sets none.
const SMALLEST_GRACE: i64 = 2;

/// The reason for a stop and its deadline.
pub(crate) struct Order {
    pub(crate) reason: KillReason,
    pub(crate) message: String,
    pub(crate) deadline: ApiTime,
}

/// Stops everything that runs, in order, all within the same grace period.
pub(crate) fn everything(scene: &Scene<'_>, draft: &mut Draft, ending: Ending) {
    for container in scene.lineup.everything() {
        let record = &container.record;
        if !scene.may_run(record) {
            give_up_hook(scene, draft, record);
            continue;
        }
        // One that was being stopped before gets no more time.
        let begun = begun_stop(scene, record).map_or(i64::MAX, |stop| stop.deadline);
        let deadline = ApiTime::from_nanos(ending.deadline.min(begun));
        let message = format!("Stopping container {}", record.name);
        let order = Order { reason: KillReason::PodEnds, message, deadline };
        let waits = is_waiting_for_its_turn(scene, &record.name);
        if waits && scene.view.now < deadline {
            draft.wake(deadline);
            run_hook(scene, draft, record, deadline);
        } else {
            one(scene, draft, record, &order);
        }
    }
}

/// Stops one container.
pub(crate) fn one(scene: &Scene<'_>, draft: &mut Draft, record: &ContainerRecord, order: &Order) {
    let name = &record.name;
    let now = scene.view.now;
    let left = between(now, order.deadline);
    let mut replaces = false;
    if let Some(flight) = scene.view.memory.is_busy_with_container(name) {
        // Later than a stop that begins now could be.
        let late = |length: Duration| {
            plus(flight.began_at, length) > plus(order.deadline.max(now), SAME_DEADLINE)
        };
        replaces = match &flight.action {
            Action::StopContainer { id, grace, .. } => *id == record.id && late(*grace),
            // The hook runs within the same grace period; only its end ends the wait for it.
            Action::RunPreStop { id, limit, .. } => {
                *id == record.id && (now >= order.deadline || late(*limit))
            }
            // A postStart hook must not keep alive a container that has to stop.
            Action::StartContainer { .. } => {
                record.state == ContainerState::Running && flight.started(record)
            }
            _ => false,
        };
        if !replaces {
            if now < order.deadline {
                draft.wake(order.deadline);
            }
            return;
        }
    }
    let key = ActionKey::Container(name.clone());
    if !replaces && draft.holds_back(scene, &key, &format!("stopping container {name}")) {
        return;
    }
    if let Some((id, at)) = scene.passing(name).and_then(|passing| passing.stop_done.as_ref())
        && *id == record.id
    {
        let again = plus(*at, ASK_AGAIN);
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
        pre_stop: has_hook_to_run(scene, record) && !left.is_zero(),
        reason: order.reason,
        message: order.message.clone(),
        replaces,
    };
    draft.act(scene, action);
}

/// Ends a start whose container has exited while its postStart hook still runs. Nothing is left to
/// be stopped: the stop is only issued because it replaces the start.
fn give_up_hook(scene: &Scene<'_>, draft: &mut Draft, record: &ContainerRecord) {
    let Some((_, container)) = lineup::find(scene.pod, &record.name) else { return };
    if record.state != ContainerState::Exited || !scene.is_in_post_start(container, record) {
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
    draft.act(scene, action);
}

/// The recorded stop of this container.
fn begun_stop<'a>(scene: &Scene<'a>, record: &ContainerRecord) -> Option<&'a Stop> {
    scene.memory(&record.name)?.stop.as_ref().filter(|stop| stop.id == record.id)
}

/// The preStop hook of a container whose turn has not come.
fn run_hook(scene: &Scene<'_>, draft: &mut Draft, record: &ContainerRecord, deadline: ApiTime) {
    if has_hook_to_run(scene, record) {
        let limit = between(scene.view.now, deadline);
        let (id, name) = (record.id.clone(), record.name.clone());
        draft.act(scene, Action::RunPreStop { id, name, limit });
    }
}

fn has_hook_to_run(scene: &Scene<'_>, record: &ContainerRecord) -> bool {
    let has_one = lineup::find(scene.pod, &record.name)
        .and_then(|(_, container)| container.lifecycle.as_deref())
        .is_some_and(|lifecycle| lifecycle.pre_stop.is_some());
    let done = begun_stop(scene, record).is_some_and(|stop| stop.hook_done);
    has_one && !done && record.state == ContainerState::Running
}

/// Whether a sidecar must wait for regular containers or for sidecars that come after it.
fn is_waiting_for_its_turn(scene: &Scene<'_>, name: &str) -> bool {
    let Some((ContainerKind::Sidecar, _)) = lineup::find(scene.pod, name) else { return false };
    let spec = &scene.pod.spec;
    let later = spec
        .init_containers
        .iter()
        .skip_while(|each| &*each.name != name)
        .skip(1)
        .filter(|each| each.is_restarted_always());
    let runs = |container: &Container| {
        scene.is_starting(&container.name)
            || scene.lineup.all(&container.name).iter().any(|each| scene.may_run(&each.record))
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
    scene: &Scene<'_>,
    record: &ContainerRecord,
    container: Option<&Container>,
    reason: KillReason,
) -> ApiTime {
    match begun_stop(scene, record) {
        Some(stop) => ApiTime::from_nanos(stop.deadline),
        None => plus(scene.view.now, seconds(grace_seconds(scene.pod, container, reason))),
    }
}
