//! Gathers the inputs of the node's status: the machine, the runtime, its images.
//!
//! Rule: reads only what other tasks publish or what the kernel answers at once; images are listed
//! again after half a minute. A part that cannot be read is absent, the others are present.

use crate::pods::{NodeState, PodPorts};
use crate::runtime_watch::RuntimeView;
use node_status::addresses::AddressFacts;
use node_status::object::{
    ImageFact, Machine, NodeFacts, NodeFeatures, Pressure, RuntimeHandler, RuntimeHandlerFeatures,
};
use node_status::runtime_errors::{RuntimeSeen, SeenCondition, runtime_errors};
use ports::container_runtime::{RuntimeConditionKind, RuntimeStatus};
use ports::runtime_objects::{HandlerFeatures, ImageRecord};
use ports::{MachineFacts, MachineInfo};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ClusterSettings;

const IMAGES_STAY: Duration = Duration::from_secs(30);
const LONGEST_LISTING: Duration = Duration::from_secs(10);

pub(super) struct FactsReader {
    machine: Arc<dyn MachineInfo>,
    ports: PodPorts,
    view: watch::Receiver<RuntimeView>,
    state: watch::Receiver<NodeState>,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    /// When the runtime last answered, and its answer.
    answered: Option<(Instant, RuntimeStatus, String, String)>,
    images: Option<(Instant, Vec<ImageFact>)>,
}

impl FactsReader {
    pub(super) fn new(
        machine: Arc<dyn MachineInfo>,
        ports: PodPorts,
        view: watch::Receiver<RuntimeView>,
        state: watch::Receiver<NodeState>,
    ) -> Self {
        Self { machine, ports, view, state, remembered: Mutex::default() }
    }

    /// Both change when the runtime's own report does.
    pub(super) fn changes(&self) -> (watch::Receiver<RuntimeView>, watch::Receiver<NodeState>) {
        (self.view.clone(), self.state.clone())
    }

    pub(super) async fn read(&self, settings: &ClusterSettings) -> NodeFacts {
        let machine = self.machine.read().await;
        let images = self.images().await;
        let view = self.view.borrow().clone();
        let (seen, runtime_version) = self.runtime(&view);
        let (handlers, strict_groups, runtime_name) = {
            let state = self.state.borrow();
            let name = state.lifecycle.runtime_name.clone();
            (state.handlers.clone(), state.strict_groups, name)
        };
        let found = machine.unwrap_or_default();
        let is_read = found.cpus > 0;
        NodeFacts {
            ephemeral_storage: found.ephemeral_storage,
            reservation: settings.reservation.clone(),
            addresses: AddressFacts {
                node_ips: settings.node_ips.clone(),
                of_host: found.addresses.clone(),
                by_name: found.by_name.clone(),
                default_v4: found.default_v4,
                default_v6: found.default_v6,
            },
            kernel_version: found.kernel_version.clone(),
            os_image: found.os_image.clone(),
            runtime_name,
            runtime_version,
            images,
            runtime_handlers: sorted(&handlers),
            runtime_features: strict_groups
                .map(|strict| NodeFeatures { supplemental_groups_policy: strict }),
            pressure: Pressure::default(),
            errors: runtime_errors(&seen),
            // Volumes are not attached or mounted for other nodes yet.
            volumes_in_use: Some(Vec::new()),
            declared_features: settings.declared_features.clone(),
            machine: is_read.then(|| machine_of(found)),
            ..NodeFacts::default()
        }
    }

    /// The runtime's last answer, its age, and the runtime's version.
    fn runtime(&self, view: &RuntimeView) -> (RuntimeSeen, Option<String>) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if let RuntimeView::Answering { version, status } = view {
            remembered.answered = Some((
                Instant::now(),
                status.clone(),
                version.runtime_name.clone(),
                version.runtime_version.clone(),
            ));
        }
        let Some((at, status, _, version)) = &remembered.answered else {
            return (RuntimeSeen::default(), None);
        };
        let condition = |kind| {
            let found = status.condition(&kind)?;
            Some(SeenCondition {
                met: found.met,
                text: format!(
                    "{kind}={} reason:{} message:{}",
                    found.met, found.reason, found.message
                ),
            })
        };
        let seen = RuntimeSeen {
            answered_ago: Some(at.elapsed()),
            ready: condition(RuntimeConditionKind::RuntimeReady),
            network: condition(RuntimeConditionKind::NetworkReady),
        };
        (seen, Some(version.clone()))
    }

    async fn images(&self) -> Option<Vec<ImageFact>> {
        let remembered = |this: &Self| {
            let remembered = this.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            remembered.images.clone()
        };
        let known = remembered(self);
        if let Some((at, images)) = &known
            && at.elapsed() < IMAGES_STAY
        {
            return Some(images.clone());
        }
        let listed = tokio::time::timeout(LONGEST_LISTING, self.ports.runtime.images()).await;
        let Ok(Ok(records)) = listed else { return known.map(|(_, images)| images) };
        let images: Vec<ImageFact> = records.iter().map(image_of).collect();
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.images = Some((Instant::now(), images.clone()));
        Some(images)
    }
}

fn image_of(record: &ImageRecord) -> ImageFact {
    ImageFact {
        id: record.id.clone(),
        digests: record.repo_digests.clone(),
        tags: record.repo_tags.clone(),
        size_bytes: i64::try_from(record.size).unwrap_or(i64::MAX),
    }
}

fn machine_of(found: MachineFacts) -> Machine {
    Machine {
        cpus: found.cpus,
        memory: found.memory,
        huge_pages: found.huge_pages,
        swap: found.swap,
        machine_id: found.machine_id,
        system_uuid: found.system_uuid,
        boot_id: found.boot_id,
    }
}

/// Sorted, so that the same handlers in another order are no change.
fn sorted(handlers: &[HandlerFeatures]) -> Vec<RuntimeHandler> {
    let mut sorted: Vec<RuntimeHandler> = handlers
        .iter()
        .map(|handler| RuntimeHandler {
            name: handler.name.clone(),
            features: RuntimeHandlerFeatures {
                recursive_read_only_mounts: handler.recursive_read_only_mounts,
                user_namespaces: handler.user_namespaces,
            },
        })
        .collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    sorted
}
