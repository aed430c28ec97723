//! Gathers the inputs of the node's status: the machine, the runtime, its images.
//!
//! Rule: reads only what other tasks publish or what the kernel answers at once; images are listed
//! again after half a minute. A part that cannot be read is absent, the others are present.

use crate::observed::ObservedPods;
use crate::plugins::NodePlugins;
use crate::pods::{NodeState, PodPorts};
use crate::runtime_watch::RuntimeView;
use node_status::addresses::HostAddressSources;
use node_status::object::{
    ImageSummary, MachineResources, NodeFeatures, NodePressure, NodeStatusInputs, RuntimeHandler,
    RuntimeHandlerFeatures,
};
use node_status::runtime_errors::{
    ObservedRuntimeCondition, ObservedRuntimeConditions, RuntimeObservation, runtime_errors,
};
use ports::container_runtime::{RuntimeConditionKind, RuntimeStatus};
use ports::runtime_objects::{HandlerFeatures, ImageRecord};
use ports::{MachineFacts, MachineInfo};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ClusterSettings;

const IMAGES_TTL: Duration = Duration::from_secs(30);
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
const PLUGIN_CHANGE_PAUSE: Duration = Duration::from_secs(1);

/// Where the facts come from.
pub(super) struct FactSources {
    pub(super) machine: Arc<dyn MachineInfo>,
    pub(super) ports: PodPorts,
    pub(super) view: watch::Receiver<RuntimeView>,
    pub(super) state: watch::Receiver<NodeState>,
    pub(super) observed: ObservedPods,
    pub(super) plugins: Option<NodePlugins>,
}

pub(super) struct FactsReader {
    sources: FactSources,
    cache: Mutex<FactsCache>,
}

#[derive(Default)]
struct FactsCache {
    /// The runtime's last answer: its status and its version.
    last_answer: Option<(RuntimeStatus, String)>,
    /// When it last answered that it is ready.
    last_ready: Option<Instant>,
    images: Option<(Instant, Vec<ImageSummary>)>,
}

impl FactsReader {
    pub(super) fn new(sources: FactSources) -> Self {
        Self { sources, cache: Mutex::default() }
    }

    /// Completes when the runtime's pods have been listed once.
    pub(super) async fn wait_until_listed(&self) {
        let mut inventory = self.sources.observed.inventory();
        if inventory.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Both change when the runtime's own report does.
    pub(super) fn changes(&self) -> (watch::Receiver<RuntimeView>, watch::Receiver<NodeState>) {
        (self.sources.view.clone(), self.sources.state.clone())
    }

    pub(super) fn plugin_changes(&self) -> PluginChanges {
        let changes = self.sources.plugins.as_ref().map(NodePlugins::changes);
        PluginChanges { changes, next: Instant::now() }
    }

    /// Why the node is not ready, in the reference's order.
    fn errors(&self, seen: &RuntimeObservation) -> Vec<String> {
        let mut errors = runtime_errors(seen);
        errors.extend(self.sources.plugins.as_ref().and_then(NodePlugins::csi_node_error));
        errors
    }

    pub(super) async fn read(&self, settings: &ClusterSettings) -> NodeStatusInputs {
        let machine = self.sources.machine.read().await;
        let images = self.images().await;
        let view = self.sources.view.borrow().clone();
        let (seen, runtime_version) = self.runtime(&view);
        let (handlers, strict_supplemental_groups, runtime_name) = {
            let state = self.sources.state.borrow();
            let name = state.lifecycle.runtime_name.clone();
            (state.handlers.clone(), state.strict_supplemental_groups, name)
        };
        let found = machine.unwrap_or_default();
        let is_read = found.cpus > 0;
        NodeStatusInputs {
            ephemeral_storage: found.ephemeral_storage,
            reservation: settings.reservation.clone(),
            addresses: HostAddressSources {
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
            runtime_features: strict_supplemental_groups
                .map(|strict| NodeFeatures { supplemental_groups_policy: strict }),
            pressure: NodePressure::default(),
            errors: self.errors(&seen),
            // Volumes are not attached or mounted for other nodes yet.
            volumes_in_use: Some(Vec::new()),
            declared_features: settings.declared_features.clone(),
            devices: self
                .sources
                .plugins
                .as_ref()
                .map(NodePlugins::node_resources)
                .unwrap_or_default(),
            machine: is_read.then(|| machine_of(found)),
            ..NodeStatusInputs::default()
        }
    }

    /// What is known of the runtime, and its version.
    fn runtime(&self, view: &RuntimeView) -> (RuntimeObservation, Option<String>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let RuntimeView::Responding { version, status } = view {
            cache.last_answer = Some((status.clone(), version.runtime_version.clone()));
            let ready = status.condition(&RuntimeConditionKind::RuntimeReady);
            if ready.is_some_and(|condition| condition.met) {
                cache.last_ready = Some(Instant::now());
            }
        }
        let condition = |status: &RuntimeStatus, kind| {
            let found = status.condition(&kind)?;
            Some(ObservedRuntimeCondition {
                met: found.met,
                text: format!(
                    "{kind}={} reason:{} message:{}",
                    found.met, found.reason, found.message
                ),
            })
        };
        let conditions = cache.last_answer.as_ref().map(|(status, _)| ObservedRuntimeConditions {
            ready: condition(status, RuntimeConditionKind::RuntimeReady),
            network: condition(status, RuntimeConditionKind::NetworkReady),
        });
        let seen = RuntimeObservation {
            ready_ago: cache.last_ready.map(|at| at.elapsed()),
            conditions,
            relist: self.sources.observed.relist_health(),
        };
        (seen, cache.last_answer.as_ref().map(|(_, version)| version.clone()))
    }

    async fn images(&self) -> Option<Vec<ImageSummary>> {
        let cache = |this: &Self| {
            let cache = this.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.images.clone()
        };
        let known = cache(self);
        if let Some((at, images)) = &known
            && at.elapsed() < IMAGES_TTL
        {
            return Some(images.clone());
        }
        let listed =
            tokio::time::timeout(LISTING_TIMEOUT, self.sources.ports.runtime.images()).await;
        let Ok(Ok(records)) = listed else { return known.map(|(_, images)| images) };
        let images: Vec<ImageSummary> = records.iter().map(image_of).collect();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.images = Some((Instant::now(), images.clone()));
        Some(images)
    }
}

/// Changes of the status by plugins. The first one counts at once; a plugin that changes its mind
/// a hundred times a second causes no more than one look a second.
pub(super) struct PluginChanges {
    changes: Option<watch::Receiver<u64>>,
    next: Instant,
}

impl PluginChanges {
    /// Waits for the next change; for ever where there are no plugins. May be dropped and called
    /// again.
    pub(super) async fn changed(&mut self) {
        let Some(changes) = &mut self.changes else { return std::future::pending().await };
        tokio::time::sleep_until(self.next).await;
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.next = Instant::now() + PLUGIN_CHANGE_PAUSE;
    }
}

fn image_of(record: &ImageRecord) -> ImageSummary {
    ImageSummary {
        id: record.id.clone(),
        digests: record.repo_digests.clone(),
        tags: record.repo_tags.clone(),
        size_bytes: i64::try_from(record.size).unwrap_or(i64::MAX),
    }
}

fn machine_of(found: MachineFacts) -> MachineResources {
    MachineResources {
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
