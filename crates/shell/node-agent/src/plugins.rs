//! Plugins of the node: their registration, and the handlers of each type.
//!
//! Rule: one task owns the registry. Every step for a plugin is a task of its own with a deadline,
//! so that a plugin that hangs delays only itself, and handlers do not wait for each other. Nothing
//! about registrations is saved: after a restart of the agent everything is registered again.

mod csi;
mod handler;
mod registration;
mod view;

use crate::clock::AgentClock;
use crate::task_tree::TaskTree;
use csi::CsiRegistration;
use handler::PluginHandler;
use ports::local_plugins::LocalPlugins;
use ports::plugins::{CsiDrivers, PluginDirWatch, PluginRegistration};
use ports::{ClusterApi, MetricFamily, MetricSource};
use registration::PluginRegistrations;
use std::sync::Arc;
use tokio::sync::watch;

/// The dependencies of plugins.
pub struct PluginDependencies {
    pub dir: Box<dyn PluginDirWatch>,
    pub registration: Arc<dyn PluginRegistration>,
    pub csi: Arc<dyn CsiDrivers>,
}

/// What plugins take from the rest of the agent.
pub(crate) struct PluginInputs {
    pub(crate) clock: AgentClock,
    pub(crate) node_name: String,
    /// None for a standalone node.
    pub(crate) api: Option<Arc<dyn ClusterApi>>,
}

/// The node's plugins, for the rest of the agent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct NodePlugins {
    changes: watch::Sender<u64>,
    registrations: Arc<PluginRegistrations>,
    csi: Arc<CsiRegistration>,
}

impl NodePlugins {
    /// Starts the tasks.
    pub(crate) fn start(
        tree: &mut TaskTree,
        dependencies: PluginDependencies,
        inputs: PluginInputs,
    ) -> Self {
        let PluginDependencies { dir, registration, csi } = dependencies;
        let PluginInputs { clock, node_name, api } = inputs;
        let changes = watch::Sender::new(0);
        let csi = Arc::new(CsiRegistration::new(csi, api, &node_name, changes.clone()));
        let handlers: Vec<Arc<dyn PluginHandler>> = vec![csi.clone()];
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
        Self { changes, registrations, csi }
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
        self.registrations.view()
    }
}

impl MetricSource for NodePlugins {
    fn families(&self) -> Vec<MetricFamily> {
        vec![view::total_plugins(&self.registrations.view())]
    }
}
