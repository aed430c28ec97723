//! Devices of device plugins: the table of them, and the tasks around it.
//!
//! Rule: the table is changed here only; a change that must outlive the agent marks the checkpoint,
//! and an allocation waits until it is on disk. Plugins are called from the tasks that need the
//! answer, never while the table is locked.

mod allocate;
mod checkpoint;
mod listings;
mod registrar;

use crate::metrics::Metrics;
use crate::pods::pod_workers::ActivePods;
use crate::task_tree::TaskTree;
use listings::ListingCommand;
use node_status::ResourceMap;
use node_status::object::DeviceResources;
use pod_model::pod::Pod;
use pod_model::pod::status::{ResourceHealth, ResourceStatus};
use pod_model::{Quantity, QuantityFormat};
use ports::local_plugins::LocalPlugin;
use ports::plugins::{
    DevicePluginDir, DevicePlugins, PluginDescription, ReportedDevices, ReportedPod,
};
use resource_allocation::DeviceTable;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::error;

/// Commands that may wait for the owner of the listings.
const COMMAND_CAPACITY: usize = 64;
const SERVE_RETRY_DELAY: Duration = Duration::from_secs(5);
const PLUGIN_TYPE: &str = "DevicePlugin";

/// A plugin that the directory of plugins holds, by its socket there.
struct HeldPlugin {
    description: PluginDescription,
    generation: u64,
}

/// The device plugins of this node and what containers have of them.
pub(crate) struct DeviceService {
    port: Arc<dyn DevicePlugins>,
    dir: Arc<dyn DevicePluginDir>,
    table: Mutex<DeviceTable>,
    began: Instant,
    held: Mutex<BTreeMap<String, HeldPlugin>>,
    /// Why the plugin of a resource is not there.
    errors: Mutex<BTreeMap<String, String>>,
    commands: mpsc::Sender<ListingCommand>,
    received_commands: tokio::sync::Mutex<mpsc::Receiver<ListingCommand>>,
    /// Whether the checkpoint was read.
    recovered: watch::Sender<bool>,
    checkpoint: checkpoint::CheckpointQueue,
    /// Counts changes of the Node's capacity and of devices' health.
    changes: watch::Sender<u64>,
    /// The resources of device plugins.
    resources: watch::Sender<Arc<BTreeSet<String>>>,
    metrics: Metrics,
    /// Gate `ResourceHealthStatus`.
    reports_health: bool,
}

/// The dependencies of device plugins.
pub struct DeviceDependencies {
    pub port: Arc<dyn DevicePlugins>,
    pub dir: Arc<dyn DevicePluginDir>,
    /// Whether the health of devices is in the status of their pods.
    pub reports_health: bool,
}

impl DeviceService {
    pub(super) fn new(
        dependencies: DeviceDependencies,
        metrics: Metrics,
        changes: watch::Sender<u64>,
    ) -> Self {
        let DeviceDependencies { port, dir, reports_health } = dependencies;
        let (commands, received_commands) = mpsc::channel(COMMAND_CAPACITY);
        Self {
            port,
            dir,
            table: Mutex::default(),
            began: Instant::now(),
            held: Mutex::default(),
            errors: Mutex::default(),
            commands,
            received_commands: tokio::sync::Mutex::new(received_commands),
            recovered: watch::Sender::new(false),
            checkpoint: checkpoint::CheckpointQueue::default(),
            changes,
            resources: watch::Sender::default(),
            metrics,
            reports_health,
        }
    }

    /// Starts the tasks.
    pub(super) fn start(
        self: &Arc<Self>,
        tree: &mut TaskTree,
        active: watch::Receiver<ActivePods>,
    ) {
        let service = self.clone();
        tree.start("device-listings", move || listings::run(service.clone(), active.clone()));
        let service = self.clone();
        tree.start("device-checkpoint", move || checkpoint::run(service.clone()));
        let service = self.clone();
        tree.start("device-plugins", move || serve(service.clone()));
    }

    fn table(&self) -> MutexGuard<'_, DeviceTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_plugins(&self) -> MutexGuard<'_, BTreeMap<String, HeldPlugin>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_error(&self, resource: &str, error: Option<String>) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => errors.insert(resource.to_owned(), error),
            None => errors.remove(resource),
        };
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// After a change of the table: the checkpoint is written, and others look again.
    fn notify_change(&self) {
        let resources = self.table().device_resources();
        self.resources.send_if_modified(|known| {
            let changed = **known != resources;
            if changed {
                *known = Arc::new(resources);
            }
            changed
        });
        self.checkpoint.mark();
        self.changes.send_modify(|count| *count += 1);
    }

    /// Changes with the devices and their health.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The resources of device plugins, as they change.
    pub(crate) fn resources(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.resources.subscribe()
    }

    async fn wait_until_recovered(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.recovered.subscribe().wait_for(|is_recovered| *is_recovered).await;
    }

    /// For the Node's status.
    pub(super) fn node_resources(&self) -> DeviceResources {
        let counts = self.table().counts();
        let amounts = |counts: BTreeMap<String, usize>| -> ResourceMap {
            let amount = |count| i64::try_from(count).unwrap_or(i64::MAX);
            let amount = |count| Quantity::from_units(amount(count), QuantityFormat::DecimalSi);
            counts.into_iter().map(|(name, count)| (name, amount(count))).collect()
        };
        DeviceResources {
            capacity: amounts(counts.capacity),
            allocatable: amounts(counts.allocatable),
            removed: counts.removed.into_iter().collect(),
        }
    }

    /// The health of the pod's devices, by container, as its status has it.
    pub(crate) fn health_of(&self, uid: &str) -> BTreeMap<String, Vec<ResourceStatus>> {
        if !self.reports_health {
            return BTreeMap::new();
        }
        let reports = self.table().health_of(uid).into_iter();
        let statuses = reports.map(|(container, resources)| {
            let statuses = resources.into_iter().map(|report| {
                let devices = report.devices.into_iter().map(|device| ResourceHealth {
                    resource_id: device.id.into(),
                    health: if device.healthy { "Healthy" } else { "Unhealthy" }.into(),
                });
                ResourceStatus { name: report.resource.into(), resources: devices.collect() }
            });
            (container, statuses.collect())
        });
        statuses.collect()
    }

    pub(super) fn reported_pod(&self, pod: &Pod) -> ReportedPod {
        self.table().reported_pod(pod)
    }

    pub(super) fn reported_allocatable(&self) -> Vec<ReportedDevices> {
        self.table().reported_allocatable()
    }

    /// Nothing of the pod runs any more: others may have its devices.
    pub(crate) fn release(&self, uid: &str) {
        if self.table().release(uid) {
            self.notify_change();
        }
    }

    /// The plugins that registered themselves, for operators.
    pub(super) fn local_plugins(&self) -> Vec<LocalPlugin> {
        let held: BTreeSet<String> =
            self.held_plugins().values().map(|it| it.description.name.clone()).collect();
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let table = self.table();
        let own = table.plugins().filter(|(resource, _)| !held.contains(*resource));
        let local = own.map(|(resource, connection)| {
            let endpoint = connection.map(|it| it.endpoint.clone()).unwrap_or_default();
            let last_error = errors.get(resource).cloned().unwrap_or_default();
            let is_there = connection.is_some();
            LocalPlugin {
                socket: endpoint.clone(),
                plugin_type: PLUGIN_TYPE.to_owned(),
                name: resource.to_owned(),
                versions: vec![resource_allocation::registration::API_VERSION.to_owned()],
                endpoint,
                state: if is_there { "registered" } else { "disconnected" }.to_owned(),
                last_error,
                next_step: if is_there { "" } else { NEXT_STEP }.to_owned(),
                next_try: 0,
            }
        });
        local.collect()
    }
}

const NEXT_STEP: &str = "check that the plugin runs and registers again; its devices are not given \
                         to new pods meanwhile";

/// Serves the socket at which plugins register themselves, for ever.
async fn serve(service: Arc<DeviceService>) {
    // Before it is known which pods have which devices, a plugin's list says nothing of what is free.
    service.wait_until_recovered().await;
    let registrar = Arc::new(registrar::Registrar { service: service.clone() });
    loop {
        let why = service.dir.serve(registrar.clone()).await;
        error!(
            dir = service.dir.dir(),
            err = why,
            retry_in_seconds = SERVE_RETRY_DELAY.as_secs(),
            "Device plugins cannot register themselves"
        );
        tokio::time::sleep(SERVE_RETRY_DELAY).await;
    }
}
