//! Calls of CSI drivers' node services, as far as registration needs them.

use std::time::Duration;

use plugin_wire::MESSAGE_SIZE_LIMIT;
use plugin_wire::csi::NodeGetInfoRequest;
use plugin_wire::csi::node_client::NodeClient;
use ports::plugins::{CsiDrivers, CsiNodeInfo, PluginFuture};

use crate::call::SocketCall;

// upstream: pkg/volume/csi/csi_plugin.go (csiTimeout)
const NODE_INFO_LIMIT: Duration = Duration::from_secs(120);

/// Calls drivers by their sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsiSockets;

impl CsiDrivers for CsiSockets {
    fn node_info<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, CsiNodeInfo> {
        Box::pin(async move {
            let call = SocketCall { name: "NodeGetInfo", socket: endpoint, limit: NODE_INFO_LIMIT };
            let send = |channel, request| async move {
                let client = NodeClient::new(channel);
                client.max_decoding_message_size(MESSAGE_SIZE_LIMIT).node_get_info(request).await
            };
            let info = call.make(NodeGetInfoRequest {}, send).await?;
            Ok(CsiNodeInfo {
                node_id: info.node_id,
                max_volumes: info.max_volumes_per_node,
                topology: info.accessible_topology.unwrap_or_default().segments,
            })
        })
    }
}
