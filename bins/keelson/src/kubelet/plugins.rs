//! The adapters of the ports that plugins of the node need.

use node_agent::{DeviceDependencies, PluginDependencies};
use node_config::NodeConfig;
use node_config::feature_gates::Gate;
use plugin_sockets::{
    CsiSockets, DevicePluginSockets, DeviceRegistryDir, PluginDir, PodResourcesSocket,
    RegistrationSockets,
};
use std::path::Path;
use std::sync::Arc;

/// Call within tokio.
pub(super) fn plugin_dependencies(config: &NodeConfig) -> PluginDependencies {
    let root = Path::new(&config.flags().root_dir);
    PluginDependencies {
        dir: Box::new(PluginDir::new(&root.join("plugins_registry"))),
        registration: Arc::new(RegistrationSockets),
        csi: Arc::new(CsiSockets),
        devices: DeviceDependencies {
            port: Arc::new(DevicePluginSockets),
            dir: Arc::new(DeviceRegistryDir::new(&root.join("device-plugins"))),
            reports_health: config.gates().enabled(Gate::ResourceHealthStatus),
        },
        pod_resources: Arc::new(PodResourcesSocket::new(&root.join("pod-resources/kubelet.sock"))),
    }
}
