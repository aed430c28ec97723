//! Calls of device plugins.
//!
//! Rule: a listing is one connection that lasts; all other calls are short. The answer to an
//! allocation is kept as bytes too, since the checkpoint holds it in that form.
//!
//! upstream: pkg/kubelet/cm/devicemanager/endpoint.go

use std::time::Duration;

use plugin_wire::MESSAGE_SIZE_LIMIT;
use plugin_wire::device_plugin as wire;
use plugin_wire::device_plugin::device_plugin_client::DevicePluginClient;
use ports::plugins::{
    DeviceAllocation, DeviceListing, DevicePluginOptions, DevicePlugins, DeviceSetup, PluginDevice,
    PluginFuture, PreferredDevices,
};
use ports::runtime_objects::{Device, Mount};
use prost::Message as _;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::call::SocketCall;

const OPTIONS_LIMIT: Duration = Duration::from_secs(10);
/// The reference waits for ever; a plugin that takes longer fails the pod.
const ALLOCATE_LIMIT: Duration = Duration::from_secs(60);
const PREFERRED_LIMIT: Duration = Duration::from_secs(60);
const PRE_START_LIMIT: Duration = Duration::from_secs(30);
const LISTING_LIMIT: Duration = Duration::from_secs(10);
const HEALTHY: &str = "Healthy";

/// Calls device plugins by their sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DevicePluginSockets;

fn client(channel: Channel) -> DevicePluginClient<Channel> {
    DevicePluginClient::new(channel).max_decoding_message_size(MESSAGE_SIZE_LIMIT)
}

impl DevicePlugins for DevicePluginSockets {
    fn options<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, DevicePluginOptions> {
        Box::pin(async move {
            let name = "GetDevicePluginOptions";
            let call = SocketCall { name, socket: endpoint, limit: OPTIONS_LIMIT };
            let send = |channel, request| async move {
                client(channel).get_device_plugin_options(request).await
            };
            let options = call.make(wire::Empty {}, send).await?;
            Ok(DevicePluginOptions {
                pre_start_required: options.pre_start_required,
                preferred_allocation: options.get_preferred_allocation_available,
            })
        })
    }

    fn listing<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, Box<dyn DeviceListing>> {
        Box::pin(async move {
            let call = SocketCall { name: "ListAndWatch", socket: endpoint, limit: LISTING_LIMIT };
            // No timeout in the request: the stream lasts.
            let channel = crate::call::connect(endpoint).await?;
            let mut client = client(channel);
            let opened = Box::pin(client.list_and_watch(wire::Empty {}));
            let stream = match tokio::time::timeout(LISTING_LIMIT, opened).await {
                Ok(Ok(response)) => response.into_inner(),
                Ok(Err(status)) => return Err(call.failed(&status)),
                Err(_) => return Err(call.timed_out()),
            };
            let listing = SocketListing { stream, socket: endpoint.to_owned() };
            Ok(Box::new(listing) as Box<dyn DeviceListing>)
        })
    }

    fn allocate<'a>(
        &'a self,
        endpoint: &'a str,
        devices: &'a [String],
    ) -> PluginFuture<'a, DeviceAllocation> {
        Box::pin(async move {
            let call = SocketCall { name: "Allocate", socket: endpoint, limit: ALLOCATE_LIMIT };
            let send = |channel, request| async move { client(channel).allocate(request).await };
            let request = wire::ContainerAllocateRequest { devices_ids: devices.to_vec() };
            let request = wire::AllocateRequest { container_requests: vec![request] };
            let answer = call.make(request, send).await?;
            let container = answer.container_responses.into_iter().next();
            let container =
                container.ok_or_else(|| call.bad_answer("no container in it".to_owned()))?;
            let encoded = container.encode_to_vec();
            Ok(DeviceAllocation { setup: setup_of(container), encoded })
        })
    }

    fn preferred<'a>(
        &'a self,
        endpoint: &'a str,
        request: &'a PreferredDevices,
    ) -> PluginFuture<'a, Vec<String>> {
        Box::pin(async move {
            let name = "GetPreferredAllocation";
            let call = SocketCall { name, socket: endpoint, limit: PREFERRED_LIMIT };
            let send = |channel, request| async move {
                client(channel).get_preferred_allocation(request).await
            };
            let container = wire::ContainerPreferredAllocationRequest {
                available_device_i_ds: request.available.clone(),
                must_include_device_i_ds: request.must_include.clone(),
                allocation_size: i32::try_from(request.size).unwrap_or(i32::MAX),
            };
            let message = wire::PreferredAllocationRequest { container_requests: vec![container] };
            let answer = call.make(message, send).await?;
            let container = answer.container_responses.into_iter().next().unwrap_or_default();
            Ok(container.device_i_ds)
        })
    }

    fn pre_start<'a>(&'a self, endpoint: &'a str, devices: &'a [String]) -> PluginFuture<'a, ()> {
        Box::pin(async move {
            let name = "PreStartContainer";
            let call = SocketCall { name, socket: endpoint, limit: PRE_START_LIMIT };
            let send = |channel, request| async move {
                client(channel).pre_start_container(request).await
            };
            let request = wire::PreStartContainerRequest { devices_ids: devices.to_vec() };
            call.make(request, send).await.map(drop)
        })
    }

    fn decode(&self, encoded: &[u8]) -> Result<DeviceSetup, String> {
        let decoded = wire::ContainerAllocateResponse::decode(encoded);
        decoded.map(setup_of).map_err(|error| error.to_string())
    }
}

fn setup_of(answer: wire::ContainerAllocateResponse) -> DeviceSetup {
    let mounts = answer.mounts.into_iter().map(|mount| Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        readonly: mount.read_only,
        ..Mount::default()
    });
    let devices = answer.devices.into_iter().map(|device| Device {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    });
    DeviceSetup {
        env: answer.envs,
        mounts: mounts.collect(),
        devices: devices.collect(),
        annotations: answer.annotations,
        cdi_devices: answer.cdi_devices.into_iter().map(|device| device.name).collect(),
    }
}

/// The stream of one plugin's lists.
struct SocketListing {
    stream: Streaming<wire::ListAndWatchResponse>,
    socket: String,
}

impl DeviceListing for SocketListing {
    fn next(&mut self) -> PluginFuture<'_, Vec<PluginDevice>> {
        Box::pin(async move {
            let message = self.stream.message().await;
            let call =
                SocketCall { name: "ListAndWatch", socket: &self.socket, limit: LISTING_LIMIT };
            match message {
                Ok(Some(list)) => Ok(list.devices.into_iter().map(device_of).collect()),
                Ok(None) => Err(call.bad_answer("the plugin ended its list".to_owned())),
                Err(status) => Err(call.failed(&status)),
            }
        })
    }
}

fn device_of(device: wire::Device) -> PluginDevice {
    let nodes = device.topology.unwrap_or_default().nodes;
    PluginDevice {
        id: device.id,
        healthy: device.health == HEALTHY,
        numa_nodes: nodes.into_iter().map(|node| node.id).collect(),
    }
}
