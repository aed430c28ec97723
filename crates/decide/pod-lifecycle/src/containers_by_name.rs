//! The containers of a pod in the runtime, in order, by name.
//!
//! Reads labels and annotations that the reference writes too, so that its containers are
//! understood as well as ours.

use std::collections::BTreeMap;

use pod_model::pod::spec::ContainerList;
use pod_model::pod::{Container, Pod, container_hash};
use ports::runtime_objects::{ContainerRecord, ContainerState};

use crate::action::ContainerKind;
use crate::view::{ObservedContainer, ObservedPod};

pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub(crate) const HASH: &str = "io.kubernetes.container.hash";

/// The observed containers of a pod, indexed by name.
#[derive(Debug)]
pub(crate) struct ContainersByName<'a> {
    by_name: BTreeMap<&'a str, Vec<&'a ObservedContainer>>,
}

impl<'a> ContainersByName<'a> {
    pub(crate) fn new(observed: &'a ObservedPod) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&ObservedContainer>> = BTreeMap::new();
        for container in &observed.containers {
            by_name.entry(&container.record.name).or_default().push(container);
        }
        for containers in by_name.values_mut() {
            containers.sort_by(|one, other| {
                // By attempt first: after a clock is set back the newer one looks older.
                let age = |it: &ObservedContainer| {
                    (restart_count(&it.record), it.record.created_at, it.record.attempt)
                };
                age(other).cmp(&age(one)).then_with(|| other.record.id.cmp(&one.record.id))
            });
        }
        Self { by_name }
    }

    /// Newest first.
    pub(crate) fn all(&self, name: &str) -> &[&'a ObservedContainer] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn latest(&self, name: &str) -> Option<&'a ContainerRecord> {
        self.all(name).first().map(|container| &container.record)
    }

    /// Those that have exited, newest first.
    pub(crate) fn exited(&self, name: &str) -> impl Iterator<Item = &'a ContainerRecord> {
        self.all(name)
            .iter()
            .map(|container| &container.record)
            .filter(|record| record.state == ContainerState::Exited)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.by_name.keys().copied()
    }

    pub(crate) fn everything(&self) -> impl Iterator<Item = &'a ObservedContainer> {
        self.by_name.values().flatten().copied()
    }

    /// Whether a regular container was ever created: then all init containers have completed.
    pub(crate) fn has_regular(&self, pod: &Pod) -> bool {
        pod.spec.containers.iter().any(|container| {
            self.latest(&container.name)
                .is_some_and(|record| record.state != ContainerState::Unknown)
        })
    }
}

/// The container of a name in the specification, and its kind.
pub(crate) fn find<'a>(pod: &'a Pod, name: &str) -> Option<(ContainerKind, &'a Container)> {
    let (list, _, container) =
        pod.spec.all_containers().find(|(_, _, container)| &*container.name == name)?;
    Some((kind(list, container), container))
}

pub(crate) fn kind(list: ContainerList, container: &Container) -> ContainerKind {
    match list {
        ContainerList::Init if container.is_restarted_always() => ContainerKind::Sidecar,
        ContainerList::Init => ContainerKind::Init,
        ContainerList::Regular => ContainerKind::Regular,
        ContainerList::Ephemeral => ContainerKind::Ephemeral,
    }
}

/// Its restart count, as its creator recorded it.
pub(crate) fn restart_count(record: &ContainerRecord) -> u32 {
    record
        .annotations
        .get(RESTART_COUNT)
        .and_then(|text| text.parse().ok())
        .unwrap_or(record.attempt)
}

/// Whether the specification is no longer the one that the container was created from. A container
/// without that annotation counts as unchanged: it is not restarted for its absence.
pub(crate) fn has_changed(container: &Container, record: &ContainerRecord) -> bool {
    record
        .annotations
        .get(HASH)
        .and_then(|text| u32::from_str_radix(text, 16).ok())
        .is_some_and(|hash| hash != container_hash(container))
}
