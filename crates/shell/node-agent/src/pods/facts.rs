//! The facts of one pod, assembled from the updates of services.
//!
//! Rule: a fact is the last update; nothing is guessed.

use super::worker::ExternalStatus;
use super::{NodeState, PodContext};
use crate::contents::HeldContent;
use crate::images::ImageUpdate;
use crate::volumes::{ReadyVolumes, VolumeState, VolumeUpdate, WantedVolumes};
use container_setup::log_paths;
use pod_lifecycle::{Admission, AttemptImage, ImageState, LifecycleFacts, PodEvent, VolumesState};
use pod_model::pod::Pod;
use ports::runtime_objects::ImageRecord;
use ports::{ContentKind, ContentName};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) struct PodFactStore {
    pub(super) facts: LifecycleFacts,
    pub(super) volumes: ReadyVolumes,
    /// By container: the record of the image that was present for its next start.
    found_images: BTreeMap<String, Arc<ImageRecord>>,
    /// Incremented when the pod's volumes change: updates for an earlier version are dropped.
    version: u64,
    /// The current pod, for the task of its volumes.
    pods: watch::Sender<Arc<Pod>>,
    /// What its containers and pulls read: kept for as long as the pod is here.
    held: Vec<HeldContent>,
}

impl PodFactStore {
    pub(super) async fn open(context: &PodContext, pod: &Arc<Pod>) -> Self {
        let facts = LifecycleFacts {
            volumes: match crate::volumes::names(pod) {
                none if none.is_empty() => VolumesState::Ready,
                names => VolumesState::Pending(names),
            },
            highest_log_numbers: highest_logs(context, pod).await,
            host_ips: context.host_ips(),
            ..LifecycleFacts::default()
        };
        Self {
            facts,
            volumes: ReadyVolumes::new(),
            found_images: BTreeMap::new(),
            version: 0,
            pods: watch::Sender::new(pod.clone()),
            held: hold_contents(context, pod),
        }
    }

    pub(super) fn node(&mut self, state: &NodeState) {
        self.facts.network_ready.clone_from(&state.network_ready);
        self.facts.runtime_ready.clone_from(&state.runtime_ready);
        self.facts.settings = state.lifecycle.clone();
    }

    pub(super) fn external(&mut self, external: &ExternalStatus) {
        self.facts.external_conditions.clone_from(&external.conditions);
        self.facts.external_end.clone_from(&external.end);
    }

    pub(super) fn admission(&mut self, admission: Admission) {
        self.facts.admission = admission;
    }

    pub(super) fn image(&mut self, update: ImageUpdate) -> Vec<PodEvent> {
        if let Some(state) = update.state {
            self.set_image(update.container.clone(), update.attempt, state);
        }
        if let Some(record) = update.found {
            self.found_images.insert(update.container, record);
        }
        update.events
    }

    /// For one start: the next one reads its image again.
    pub(super) fn take_found_image(&mut self, container: &str) -> Option<Arc<ImageRecord>> {
        let found = self.found_images.remove(container);
        if self.found_images.is_empty() {
            // An empty map would keep its capacity for as long as the pod runs.
            self.found_images = BTreeMap::new();
        }
        found
    }

    pub(super) fn forget_image(&mut self, container: &str) {
        self.facts.images.remove(container);
        self.found_images.remove(container);
    }

    pub(super) fn set_image(&mut self, container: String, attempt: u32, state: ImageState) {
        self.found_images.remove(&container);
        self.facts.images.insert(container, Box::new(AttemptImage { attempt, state }));
    }

    pub(super) fn volume(&mut self, update: VolumeUpdate) -> Option<PodEvent> {
        if update.version != self.version {
            return None;
        }
        match update.state {
            VolumeState::Ready(volumes) => {
                self.volumes = volumes;
                self.facts.volumes = VolumesState::Ready;
                None
            }
            VolumeState::Waiting(which) => {
                self.facts.volumes = VolumesState::Pending(which);
                None
            }
            VolumeState::Failed { message, event } => {
                self.facts.volumes = VolumesState::Failed(message);
                Some(event)
            }
            VolumeState::Event(event) => Some(event),
        }
    }

    /// After a change of the pod: unchanged volumes stay ready, the others are to be set up.
    /// Whether anything is different.
    pub(super) fn update_volumes(
        &mut self,
        before: &Pod,
        now: &Arc<Pod>,
        context: &PodContext,
    ) -> bool {
        let node = &context.settings.setup;
        self.pods.send_replace(now.clone());
        self.held = hold_contents(context, now);
        let same = crate::volumes::same(before, now, node);
        let mut missing = crate::volumes::names(now);
        if same.len() == crate::volumes::names(before).len() && same.len() == missing.len() {
            return false;
        }
        self.version += 1;
        self.volumes.retain(|name, _| same.contains(name));
        missing.retain(|name| !self.volumes.contains_key(name));
        self.facts.volumes = match missing {
            none if none.is_empty() => VolumesState::Ready,
            names => VolumesState::Pending(names),
        };
        true
    }

    pub(super) fn wanted_volumes(&self) -> WantedVolumes {
        WantedVolumes {
            version: self.version,
            pods: self.pods.subscribe(),
            ready: self.volumes.clone(),
        }
    }
}

/// Holds the objects that variables and pulls of the pod need.
fn hold_contents(context: &PodContext, pod: &Pod) -> Vec<HeldContent> {
    let mut names: BTreeSet<(ContentKind, String)> = BTreeSet::new();
    for (_, _, container) in pod.spec.all_containers() {
        names.extend(container_setup::contents::wanted(container));
    }
    let secrets = pod.spec.image_pull_secrets.iter().filter(|secret| !secret.name.is_empty());
    names.extend(secrets.map(|secret| (ContentKind::Secret, secret.name.to_string())));
    let namespace = &pod.metadata.namespace;
    let names = names.into_iter().map(|(kind, name)| {
        context.contents.hold(ContentName { kind, namespace: namespace.to_string(), name })
    });
    names.collect()
}

async fn highest_logs(context: &PodContext, pod: &Pod) -> BTreeMap<String, u32> {
    let mut highest = BTreeMap::new();
    let logs = &context.settings.setup.pod_logs_directory;
    for (_, _, container) in pod.spec.all_containers() {
        let dir = log_paths::container_directory(logs, pod, &container.name);
        // If it cannot be read it counts as zero: at worst an existing log is appended to.
        if let Ok(Some(number)) = context.ports.dirs.highest_log_number(&dir).await {
            highest.insert(container.name.to_string(), number);
        }
    }
    highest
}
