//! A worker's requests to the services for its pod: images, volumes, probes, log links.
//!
//! Rules: a task is started once per requirement and runs until another requirement replaces it or
//! the pod is terminating. A task that panicked is reported and restarted after a delay. After a
//! container failed to start, its image is looked up again: it may have been removed.

use super::Worker;
use crate::actions::link_log;
use crate::clock::later;
use crate::images::{ImageRequest, ImageUpdate, ensure_image};
use crate::keyed_tasks::Panicked;
use crate::probes::DesiredProbes;
use crate::volumes::{self, VolumeUpdate};
use container_setup::log_paths;
use pod_lifecycle::{
    DesiredState, ImageState, PodPlan, RequiredImage, Requirements, VolumesState, sandbox_attempt,
};
use pod_model::pod::Pod;
use pod_model::pod::spec::ContainerList;
use ports::runtime_objects::ContainerState;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Delay before a task that panicked is restarted.
const PANIC_RETRY_DELAY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServiceTask {
    Image(String),
    Volumes,
    Devices,
    Links,
}

pub(super) async fn after_delay(delay: Duration, task: impl Future<Output = ()>) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    task.await;
}

impl Worker {
    pub(super) fn on_service_task_ended(
        &mut self,
        service_task: &ServiceTask,
        end: Result<(), Panicked>,
    ) {
        let Err(Panicked(why)) = end else { return };
        warn!(pod_uid = self.uid, task = ?service_task, panic = why, "A pod's task panicked");
        let why = format!("the agent's own task for it panicked: {why}");
        match service_task {
            ServiceTask::Image(container) => {
                let Some(required) = self.required_images.get(container).cloned() else { return };
                let retry_at = Some(later(self.context.clock.now(), PANIC_RETRY_DELAY));
                let reason = "ErrImagePull".to_owned();
                let state = ImageState::Failed { reason, message: why, retry_at };
                self.fact_store.set_image(container.clone(), required.attempt, state);
                self.start_image(&required, PANIC_RETRY_DELAY);
            }
            ServiceTask::Volumes => {
                self.fact_store.facts.volumes = VolumesState::Failed(why);
                self.start_volumes(PANIC_RETRY_DELAY);
            }
            ServiceTask::Devices => self.allocate_devices(PANIC_RETRY_DELAY),
            ServiceTask::Links => self.link_logs(PANIC_RETRY_DELAY),
        }
    }

    /// Links the logs of running containers: an earlier agent may have died before it did.
    pub(super) fn link_logs(&mut self, delay: Duration) {
        let all = self.observed.containers.iter().map(|each| &each.record);
        let running = all.filter(|record| record.state == ContainerState::Running);
        let links: Vec<(String, String)> = running
            .filter(|record| !record.log_path.is_empty())
            .map(|record| {
                let name = log_paths::link_name(self.pod(), &record.name, &record.id);
                (name, record.log_path.clone())
            })
            .collect();
        if links.is_empty() || self.desired.desired_state != DesiredState::Run {
            return;
        }
        let dirs = self.context.ports.dirs.clone();
        let task = async move {
            for (name, target) in links {
                link_log(&*dirs, &name, &target).await;
            }
        };
        let name = format!("links to logs of pod {}", self.uid);
        self.service_tasks.start(ServiceTask::Links, name, after_delay(delay, task));
    }

    pub(super) fn on_image_update(&mut self, update: ImageUpdate) {
        for event in self.fact_store.image(update) {
            self.emit_event(event);
        }
    }

    pub(super) fn on_volume_update(&mut self, update: VolumeUpdate) {
        if let Some(event) = self.fact_store.volume(update) {
            self.emit_event(event);
        }
    }

    /// The pod ends: no image is needed any more, and volumes only until their last use.
    pub(super) fn cancel_image_tasks(&mut self, plan: &PodPlan) {
        for container in std::mem::take(&mut self.required_images).into_keys() {
            self.service_tasks.abort(&ServiceTask::Image(container));
        }
        if !plan.requirements.volumes {
            self.service_tasks.abort(&ServiceTask::Volumes);
        }
        self.serve_probes(plan);
    }

    /// Starts what the plan requires of the services.
    pub(super) fn start_required_services(&mut self, plan: &PodPlan) {
        let requirements: &Requirements = &plan.requirements;
        self.serve_images(&requirements.images);
        let is_ready = self.fact_store.facts.volumes == VolumesState::Ready;
        if !requirements.volumes {
            self.service_tasks.abort(&ServiceTask::Volumes);
        } else if (!is_ready || volumes::are_updated(self.pod()))
            && !self.service_tasks.contains(&ServiceTask::Volumes)
        {
            self.start_volumes(Duration::ZERO);
        }
        self.serve_probes(plan);
    }

    /// Another version of the pod may have other volumes. Dropped volumes stay on disk until the
    /// pod ends: an older container may still use them.
    pub(super) fn update_volumes(&mut self, before: &Pod) {
        if self.fact_store.update_volumes(before, &self.desired.pod, &self.context) {
            self.service_tasks.abort(&ServiceTask::Volumes);
        }
    }

    fn start_volumes(&mut self, delay: Duration) {
        let wanted = self.fact_store.wanted_volumes();
        let task = volumes::maintain(self.context.clone(), wanted, self.worker_events.clone());
        let name = format!("volumes of pod {}", self.uid);
        self.service_tasks.start(ServiceTask::Volumes, name, after_delay(delay, task));
    }

    /// upstream: pkg/kubelet/prober/prober.go: the address is the one in the pod's status.
    fn serve_probes(&self, plan: &PodPlan) {
        self.context.probes.set(&DesiredProbes {
            pod: self.pod(),
            requirements: &plan.requirements.probes,
            pod_ip: Some(&*plan.status.pod_ip).filter(|ip| !ip.is_empty()),
            now: self.context.clock.now(),
            worker_events: &self.worker_events,
            is_ending: matches!(self.desired.desired_state, DesiredState::End(_)),
        });
    }

    fn serve_images(&mut self, requirements: &[RequiredImage]) {
        // A requirement that is missing from one plan (while a relist is due) is not cancelled: its
        // task goes on until another requirement replaces it or the pod is terminating.
        for required in requirements {
            if self
                .required_images
                .get(&required.container)
                .is_some_and(|known| **known == *required)
            {
                continue;
            }
            self.required_images.insert(required.container.clone(), Box::new(required.clone()));
            self.start_image(required, Duration::ZERO);
        }
    }

    fn start_image(&mut self, required: &RequiredImage, delay: Duration) {
        let attempt = sandbox_attempt(self.pod(), &self.observed);
        let request = image_request(&self.desired.pod, attempt, required);
        let task = ensure_image(self.context.images.clone(), request, self.worker_events.clone());
        let name = format!("image of {} of pod {}", required.container, self.uid);
        self.service_tasks.start(
            ServiceTask::Image(required.container.clone()),
            name,
            after_delay(delay, task),
        );
    }

    /// After a failed start. The image may have been removed since it was looked up: the next start
    /// looks it up again, as the kubelet does for every start.
    pub(super) fn forget_image(&mut self, container: &str) {
        self.required_images.remove(container);
        self.service_tasks.abort(&ServiceTask::Image(container.to_owned()));
        self.fact_store.forget_image(container);
    }
}

fn image_request(pod: &Arc<Pod>, sandbox_attempt: u32, required: &RequiredImage) -> ImageRequest {
    let found = pod.spec.all_containers().find(|(_, _, each)| *each.name == *required.container);
    let list = found.map_or(ContainerList::Regular, |(list, _, _)| list);
    let container = found.map(|(_, _, container)| container);
    ImageRequest {
        pod: pod.clone(),
        sandbox_attempt,
        container: required.container.clone(),
        field_path: Some(format!("spec.{}{{{}}}", list.field(), required.container)),
        image: required.image.clone(),
        policy: required.policy.clone(),
        handler: String::new(),
        volume_images: container
            .map(|container| volumes::image_volumes(pod, container))
            .unwrap_or_default(),
        attempt: required.attempt,
    }
}
