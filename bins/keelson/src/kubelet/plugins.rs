//! The adapters of the ports that plugins of the node need.

use node_agent::PluginDependencies;
use plugin_sockets::{CsiSockets, PluginDir, RegistrationSockets};
use std::path::Path;
use std::sync::Arc;

/// Call within tokio.
pub(super) fn plugin_dependencies(root: &Path) -> PluginDependencies {
    PluginDependencies {
        dir: Box::new(PluginDir::new(&root.join("plugins_registry"))),
        registration: Arc::new(RegistrationSockets),
        csi: Arc::new(CsiSockets),
    }
}
