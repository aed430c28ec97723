//! The phase of a pod, from the states of its containers.
//!
//! Rules: waiting for a first start is Pending; something runs, or will be restarted, is Running;
//! all over is Succeeded or Failed. An init container that failed for good fails the pod. Sidecars
//! count as running while they run, but neither as succeeded nor as failed.
//!
//! upstream: kubelet_pods.go (getPhase)

use pod_model::pod::Container;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ContainerStatus, ContainerTerminated, PodStatus};

use crate::plan_context::PlanContext;
use crate::restart;
use crate::sandbox;
use crate::status_text::{RESTARTING_ALL, is_static};

#[derive(Debug, Default)]
struct ContainerCounts {
    initializing: usize,
    sidecars_pending: usize,
    init_failed: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
}

pub(super) fn of(plan_context: &PlanContext<'_>, status: &PodStatus, still: bool) -> PodPhase {
    let mut count = ContainerCounts::default();
    for container in &plan_context.pod.spec.init_containers {
        let Some(found) = status.container(&container.name) else { continue };
        if container.is_restarted_always() {
            count.sidecar(found);
        } else {
            count.init(plan_context, container, found);
        }
    }
    for container in &plan_context.pod.spec.containers {
        let Some(found) = status.container(&container.name) else { continue };
        count.regular(plan_context, container, found);
    }
    let begun = has_begun(plan_context);
    if count.init_failed > 0 {
        return PodPhase::Failed;
    }
    if count.initializing > 0 || (count.sidecars_pending > 0 && !begun) || count.waiting > 0 {
        return PodPhase::Pending;
    }
    if count.running > 0 {
        return PodPhase::Running;
    }
    if count.stopped == 0 {
        return PodPhase::Pending;
    }
    let over = (still && !is_static(plan_context.pod)) || count.stopped == count.stopped_for_good;
    match (over, count.stopped == count.succeeded) {
        (false, _) => PodPhase::Running,
        (true, true) => PodPhase::Succeeded,
        (true, false) => PodPhase::Failed,
    }
}

/// Whether a regular container was created in the current sandbox.
fn has_begun(plan_context: &PlanContext<'_>) -> bool {
    let Some(sandbox) = sandbox::active(plan_context.view.observed) else { return false };
    plan_context.pod.spec.containers.iter().any(|container| {
        plan_context
            .containers_by_name
            .all(&container.name)
            .iter()
            .any(|observed| observed.record.sandbox_id == sandbox.id)
    })
}

/// Whether a container that exited like this is not restarted.
fn is_for_good(
    plan_context: &PlanContext<'_>,
    container: &Container,
    ended: &ContainerTerminated,
) -> bool {
    let restarting = plan_context.settings.restart_all && &*ended.reason == RESTARTING_ALL;
    let latest = plan_context.containers_by_name.latest(&container.name);
    let is_replaced = !plan_context.over
        && latest.is_some_and(|record| plan_context.was_killed_to_restart(record));
    !restarting
        && !is_replaced
        && !restart::after_exit(
            container,
            &plan_context.pod.spec,
            ended.exit_code,
            plan_context.settings,
        )
}

impl ContainerCounts {
    fn init(
        &mut self,
        plan_context: &PlanContext<'_>,
        container: &Container,
        status: &ContainerStatus,
    ) {
        let ended = match (&status.state.waiting, &status.state.terminated) {
            (Some(_), _) => &status.last_state.terminated,
            (None, ended) => ended,
        };
        match ended {
            Some(ended) if ended.exit_code != 0 => {
                if is_for_good(plan_context, container, ended) {
                    self.init_failed += 1;
                }
            }
            Some(_) => {}
            None => self.initializing += 1,
        }
    }

    fn sidecar(&mut self, status: &ContainerStatus) {
        if status.state.running.is_some() {
            self.running += 1;
            if status.started != Some(true) {
                self.sidecars_pending += 1;
            }
        } else if status.state.waiting.is_some() && status.last_state.terminated.is_none() {
            self.waiting += 1;
        }
    }

    fn regular(
        &mut self,
        plan_context: &PlanContext<'_>,
        container: &Container,
        status: &ContainerStatus,
    ) {
        let (ended, now) = match (&status.state.terminated, &status.state.waiting) {
            (Some(ended), _) => (Some(ended), true),
            (None, Some(_)) => (status.last_state.terminated.as_ref(), false),
            (None, None) => {
                self.running += 1;
                return;
            }
        };
        match ended {
            // It never ran: its final status was made when the pod's end was complete.
            Some(ended)
                if plan_context.over
                    && ended.container_id.is_empty()
                    && status.last_state.terminated.is_none() =>
            {
                self.waiting += 1;
            }
            Some(ended) => {
                self.stopped += 1;
                self.stopped_for_good += usize::from(is_for_good(plan_context, container, ended));
                self.succeeded += usize::from(now && ended.exit_code == 0);
            }
            None => self.waiting += 1,
        }
    }
}
