//! Plugins of the node: their registration, and the handlers of each type.
//!
//! Rule: one task owns the registry. Every step for a plugin is a task of its own with a deadline,
//! so that a plugin that hangs delays only itself, and handlers do not wait for each other. Nothing
//! about registrations is saved: after a restart of the agent everything is registered again.

mod csi;
mod devices;
mod handler;
mod pod_resources;
mod registration;
mod view;

use crate::admission::Admissions;
use crate::clock::AgentClock;
use crate::metrics::Metrics;
use crate::pods::pod_workers::ActivePods;
use crate::task_tree::TaskTree;
use csi::CsiRegistration;
pub use devices::DeviceDependencies;
pub(crate) use devices::DeviceService;
use handler::PluginHandler;
use node_status::object::DeviceResources;
use pod_resources::PodResources;
use ports::local_plugins::LocalPlugins;
use ports::plugins::{CsiDrivers, PluginDirWatch, PluginRegistration, PodResourcesEndpoint};
use ports::{ClusterApi, MetricFamily, MetricSource};
use registration::PluginRegistrations;
use std::sync::Arc;
use tokio::sync::watch;

/// The dependencies of plugins.
pub struct PluginDependencies {
    pub dir: Box<dyn PluginDirWatch>,
    pub registration: Arc<dyn PluginRegistration>,
    pub csi: Arc<dyn CsiDrivers>,
    pub devices: DeviceDependencies,
    pub pod_resources: Arc<dyn PodResourcesEndpoint>,
}

/// What plugins take from the rest of the agent.
pub(crate) struct PluginInputs {
    pub(crate) clock: AgentClock,
    pub(crate) node_name: String,
    /// None for a standalone node.
    pub(crate) api: Option<Arc<dyn ClusterApi>>,
    pub(crate) metrics: Metrics,
}

/// The node's plugins, for the rest of the agent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct NodePlugins {
    changes: watch::Sender<u64>,
    registrations: Arc<PluginRegistrations>,
    csi: Arc<CsiRegistration>,
    devices: Arc<DeviceService>,
    pod_resources: Arc<dyn PodResourcesEndpoint>,
}

impl NodePlugins {
    /// Starts the tasks. `active`: the pods that are here.
    pub(crate) fn start(
        tree: &mut TaskTree,
        dependencies: PluginDependencies,
        inputs: PluginInputs,
        active: &watch::Receiver<ActivePods>,
    ) -> Self {
        let PluginDependencies { dir, registration, csi, devices, pod_resources } = dependencies;
        let PluginInputs { clock, node_name, api, metrics } = inputs;
        let changes = watch::Sender::new(0);
        let csi = Arc::new(CsiRegistration::new(csi, api, &node_name, changes.clone()));
        let devices = DeviceService::new(devices, metrics, changes.clone());
        let devices = Arc::new(devices);
        devices.start(tree, active.clone());
        let handlers: Vec<Arc<dyn PluginHandler>> = vec![csi.clone(), devices.clone()];
        let registrations = PluginRegistrations::new(dir, registration, handlers, clock);
        let registrations = Arc::new(registrations);
        let owner = registrations.clone();
        tree.start("plugins", move || registration::run(owner.clone()));
        if csi.has_cluster() {
            let initialized = csi.clone();
            tree.start("csi-node", move || csi::initialize_csi_node(initialized.clone()));
            let updated = csi.clone();
            tree.start("csi-limits", move || csi::update_limits(updated.clone()));
        }
        Self { changes, registrations, csi, devices, pod_resources }
    }

    /// Changes when something for the Node's status does.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Why the node is not ready for volumes of CSI drivers, while it is not: its CSINode has not
    /// been initialized. Belongs into the Ready condition.
    pub(crate) fn csi_node_error(&self) -> Option<String> {
        self.csi.initialization_error()
    }

    /// For operators.
    pub(crate) fn list(&self) -> LocalPlugins {
        let mut plugins = self.registrations.view();
        plugins.plugins.extend(self.devices.local_plugins());
        plugins
    }

    /// Devices for containers.
    pub(crate) fn devices(&self) -> &Arc<DeviceService> {
        &self.devices
    }

    /// Devices for the Node's status.
    pub(crate) fn node_resources(&self) -> DeviceResources {
        self.devices.node_resources()
    }

    /// Serves the pod resources API.
    pub(crate) fn serve_pod_resources(&self, tree: &mut TaskTree, admissions: &Admissions) {
        let (devices, admissions) = (self.devices.clone(), admissions.clone());
        let metrics = self.devices.metrics().clone();
        let api = Arc::new(PodResources { devices, admissions, metrics });
        let endpoint = self.pod_resources.clone();
        tree.start("pod-resources", move || pod_resources::serve(endpoint.clone(), api.clone()));
    }
}

impl MetricSource for NodePlugins {
    fn families(&self) -> Vec<MetricFamily> {
        vec![view::total_plugins(&self.registrations.view())]
    }
}
