//! A worker's requests to the services for its pod: images, volumes, probes, log links.
//!
//! Rules: a task is started once per want and runs until another want replaces it or the pod ends.
//! A task that panicked is reported and restarted after a delay. After a failed start the image is
//! looked up again: it may be what is missing.

use super::Worker;
use crate::actions::link_log;
use crate::branch::Panicked;
use crate::clock::later;
use crate::images::{ImageNews, ImageRequest, obtain};
use crate::probes::ProbeOrder;
use crate::volumes::{self, VolumeNews};
use container_setup::log_paths;
use pod_lifecycle::{ImageState, ImageWant, PodPlan, VolumesFact, Wants, Wish, sandbox_attempt};
use pod_model::pod::Pod;
use pod_model::pod::spec::ContainerList;
use ports::runtime_objects::ContainerState;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Delay before a task that panicked is restarted.
const AFTER_PANIC: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    Image(String),
    Volumes,
    Links,
}

async fn after(pause: Duration, task: impl Future<Output = ()>) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    task.await;
}

impl Worker {
    pub(super) fn chore_ended(&mut self, chore: &Chore, end: Result<(), Panicked>) {
        let Err(Panicked(why)) = end else { return };
        warn!(pod_uid = self.uid, chore = ?chore, panic = why, "A pod's task panicked");
        let why = format!("the agent's own task for it panicked: {why}");
        match chore {
            Chore::Image(container) => {
                let Some(want) = self.image_wants.get(container).cloned() else { return };
                let retry_at = Some(later(self.context.clock.now(), AFTER_PANIC));
                let reason = "ErrImagePull".to_owned();
                let state = ImageState::Failed { reason, message: why, retry_at };
                self.book.set_image(container.clone(), want.attempt, state);
                self.begin_image(&want, AFTER_PANIC);
            }
            Chore::Volumes => {
                self.book.facts.volumes = VolumesFact::Failed(why);
                self.begin_volumes(AFTER_PANIC);
            }
            Chore::Links => self.link_logs(AFTER_PANIC),
        }
    }

    /// Links the logs of running containers: an earlier agent may have died before it did.
    pub(super) fn link_logs(&mut self, pause: Duration) {
        let all = self.observed.containers.iter().map(|each| &each.record);
        let running = all.filter(|record| record.state == ContainerState::Running);
        let links: Vec<(String, String)> = running
            .filter(|record| !record.log_path.is_empty())
            .map(|record| {
                let name = log_paths::link_name(self.pod(), &record.name, &record.id);
                (name, record.log_path.clone())
            })
            .collect();
        if links.is_empty() || self.desired.wish != Wish::Run {
            return;
        }
        let folders = self.context.ports.folders.clone();
        let task = async move {
            for (name, target) in links {
                link_log(&*folders, &name, &target).await;
            }
        };
        let name = format!("links to logs of pod {}", self.uid);
        self.chores.start(Chore::Links, name, after(pause, task));
    }

    pub(super) fn heard_of_image(&mut self, news: ImageNews) {
        for event in self.book.image(news) {
            self.tell_event(event);
        }
    }

    pub(super) fn heard_of_volumes(&mut self, news: VolumeNews) {
        if let Some(event) = self.book.volume(news) {
            self.tell_event(event);
        }
    }

    /// The pod ends: no image is needed any more, and volumes only until their last use.
    pub(super) fn give_up_wants(&mut self, plan: &PodPlan) {
        for container in std::mem::take(&mut self.image_wants).into_keys() {
            self.chores.abort(&Chore::Image(container));
        }
        if !plan.wants.volumes {
            self.chores.abort(&Chore::Volumes);
        }
        self.serve_probes(plan);
    }

    /// Starts what the plan requires of the services.
    pub(super) fn serve(&mut self, plan: &PodPlan) {
        let wants: &Wants = &plan.wants;
        self.serve_images(&wants.images);
        let is_ready = self.book.facts.volumes == VolumesFact::Ready;
        if !wants.volumes {
            self.chores.abort(&Chore::Volumes);
        } else if !is_ready && !self.chores.contains(&Chore::Volumes) {
            self.begin_volumes(Duration::ZERO);
        }
        self.serve_probes(plan);
    }

    /// Another version of the pod may have other volumes. Dropped volumes stay on disk until the
    /// pod ends: an older container may still use them.
    pub(super) fn follow_volumes(&mut self, before: &Pod) {
        let node = &self.context.settings.setup;
        if self.book.follow_volumes(before, &self.desired.pod, node) {
            self.chores.abort(&Chore::Volumes);
        }
    }

    fn begin_volumes(&mut self, pause: Duration) {
        let driver = self.context.ports.volumes.clone();
        let wanted = self.book.wanted_volumes(self.pod(), &self.context.settings.setup);
        let task = volumes::set_up(driver, wanted, self.news.clone());
        let name = format!("volumes of pod {}", self.uid);
        self.chores.start(Chore::Volumes, name, after(pause, task));
    }

    /// upstream: pkg/kubelet/prober/prober.go: the address is the one in the pod's status.
    fn serve_probes(&self, plan: &PodPlan) {
        self.context.probes.set(&ProbeOrder {
            pod: self.pod(),
            wants: &plan.wants.probes,
            pod_ip: Some(&*plan.status.pod_ip).filter(|ip| !ip.is_empty()),
            now: self.context.clock.now(),
            news: &self.news,
            is_ending: matches!(self.desired.wish, Wish::End(_)),
        });
    }

    fn serve_images(&mut self, wants: &[ImageWant]) {
        // A want that is missing from one plan (while a relist is due) is not cancelled: its task
        // goes on until another want replaces it or the pod ends.
        for want in wants {
            if self.image_wants.get(&want.container).is_some_and(|known| **known == *want) {
                continue;
            }
            self.image_wants.insert(want.container.clone(), Box::new(want.clone()));
            self.begin_image(want, Duration::ZERO);
        }
    }

    fn begin_image(&mut self, want: &ImageWant, pause: Duration) {
        let attempt = sandbox_attempt(self.pod(), &self.observed);
        let request = image_request(&self.desired.pod, attempt, want);
        let task = obtain(self.context.images.clone(), request, self.news.clone());
        let name = format!("image of {} of pod {}", want.container, self.uid);
        self.chores.start(Chore::Image(want.container.clone()), name, after(pause, task));
    }

    /// After a failed start. The image may have been removed since it was looked up: the next start
    /// looks it up again, as the kubelet does for every start.
    pub(super) fn forget_image(&mut self, container: &str) {
        self.image_wants.remove(container);
        self.chores.abort(&Chore::Image(container.to_owned()));
        self.book.forget_image(container);
    }
}

fn image_request(pod: &Arc<Pod>, sandbox_attempt: u32, want: &ImageWant) -> ImageRequest {
    let list = pod.spec.all_containers().find(|(_, _, each)| *each.name == *want.container);
    let list = list.map_or(ContainerList::Regular, |(list, _, _)| list);
    ImageRequest {
        pod: pod.clone(),
        sandbox_attempt,
        container: want.container.clone(),
        field_path: format!("spec.{}{{{}}}", list.field(), want.container),
        image: want.image.clone(),
        policy: want.policy.clone(),
        handler: String::new(),
        // A static pod may refer to no secret, and there are no other pods yet.
        own_logins: Vec::new(),
        attempt: want.attempt,
    }
}
