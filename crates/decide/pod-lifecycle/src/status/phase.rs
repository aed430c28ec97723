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

use crate::restart;
use crate::sandbox;
use crate::scene::Scene;
use crate::words::{RESTARTING_ALL, is_static};

#[derive(Debug, Default)]
struct Count {
    initializing: usize,
    sidecars_pending: usize,
    init_failed: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
}

pub(super) fn of(scene: &Scene<'_>, status: &PodStatus, still: bool) -> PodPhase {
    let mut count = Count::default();
    for container in &scene.pod.spec.init_containers {
        let Some(found) = status.container(&container.name) else { continue };
        if container.is_restarted_always() {
            count.sidecar(found);
        } else {
            count.init(scene, container, found);
        }
    }
    for container in &scene.pod.spec.containers {
        let Some(found) = status.container(&container.name) else { continue };
        count.regular(scene, container, found);
    }
    let begun = has_begun(scene);
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
    let over = (still && !is_static(scene.pod)) || count.stopped == count.stopped_for_good;
    match (over, count.stopped == count.succeeded) {
        (false, _) => PodPhase::Running,
        (true, true) => PodPhase::Succeeded,
        (true, false) => PodPhase::Failed,
    }
}

/// Whether a regular container was created in the current sandbox.
fn has_begun(scene: &Scene<'_>) -> bool {
    let Some(sandbox) = sandbox::active(scene.view.observed) else { return false };
    scene.pod.spec.containers.iter().any(|container| {
        scene
            .lineup
            .all(&container.name)
            .iter()
            .any(|observed| observed.record.sandbox_id == sandbox.id)
    })
}

/// Whether a container that exited like this is not restarted.
fn is_for_good(scene: &Scene<'_>, container: &Container, ended: &ContainerTerminated) -> bool {
    let restarting = scene.settings.restart_all && &*ended.reason == RESTARTING_ALL;
    !restarting && !restart::after_exit(container, &scene.pod.spec, ended.exit_code, scene.settings)
}

impl Count {
    fn init(&mut self, scene: &Scene<'_>, container: &Container, status: &ContainerStatus) {
        let ended = match (&status.state.waiting, &status.state.terminated) {
            (Some(_), _) => &status.last_state.terminated,
            (None, ended) => ended,
        };
        match ended {
            Some(ended) if ended.exit_code != 0 => {
                if is_for_good(scene, container, ended) {
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

    fn regular(&mut self, scene: &Scene<'_>, container: &Container, status: &ContainerStatus) {
        let (ended, now) = match (&status.state.terminated, &status.state.waiting) {
            (Some(ended), _) => (Some(ended), true),
            (None, Some(_)) => (status.last_state.terminated.as_ref(), false),
            (None, None) => {
                self.running += 1;
                return;
            }
        };
        match ended {
            Some(ended) => {
                self.stopped += 1;
                self.stopped_for_good += usize::from(is_for_good(scene, container, ended));
                self.succeeded += usize::from(now && ended.exit_code == 0);
            }
            None => self.waiting += 1,
        }
    }
}
