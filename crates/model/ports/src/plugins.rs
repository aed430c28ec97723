//! Plugins of the node: where their sockets appear, and the calls to them.
//!
//! Rule: every call ends within the limit that its method names; an error is one sentence that names
//! the socket. What a plugin sends is limited in size here and judged by the caller. A watch is
//! level-triggered: each result is the complete current set.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::PortFuture;
use crate::runtime_objects::{Device, Mount};

/// Distinguishes a socket from a later one at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketIdentity {
    pub inode: u64,
    /// When it was created, in nanoseconds since the epoch.
    pub created: i64,
}

/// All that is in the directory of plugin sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginDirScan {
    /// By absolute path.
    pub sockets: BTreeMap<String, SocketIdentity>,
    /// Absolute paths of what is not a usable socket, each with the reason.
    pub ignored: BTreeMap<String, String>,
}

/// The directory in which plugins put their sockets.
pub trait PluginDirWatch: Send {
    /// The directory, for messages.
    fn dir(&self) -> String;
    /// The first call returns at once, later ones when something changed. An error is a directory
    /// that cannot be read; the watch goes on with the next call. May be dropped and called again.
    fn next(&mut self) -> PortFuture<'_, Result<PluginDirScan, String>>;
}

/// How a plugin introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginDescription {
    /// `CSIPlugin`, `DevicePlugin`, `DRAPlugin`.
    pub plugin_type: String,
    /// Of a CSI driver its name, of a device plugin its resource.
    pub name: String,
    /// The socket of its service; the socket in the directory where the plugin named none.
    pub endpoint: String,
    pub versions: Vec<String>,
}

/// A call to a plugin that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginCallError {
    #[error("cannot connect to {socket} within {seconds} s: {cause}")]
    Unreachable { socket: String, seconds: u64, cause: String },
    #[error("{call} at {socket}: no answer within {seconds} s")]
    TimedOut { call: &'static str, socket: String, seconds: u64 },
    #[error("{call} at {socket}: {code}: {message}")]
    Failed { call: &'static str, socket: String, code: String, message: String },
    #[error("{call} at {socket}: unusable answer: {cause}")]
    BadAnswer { call: &'static str, socket: String, cause: String },
}

pub type PluginFuture<'a, T> = PortFuture<'a, Result<T, PluginCallError>>;

/// The registration service of a plugin, at its socket.
pub trait PluginRegistration: Send + Sync {
    /// Connects within 10 s and asks within 1 s.
    fn introduction<'a>(&'a self, socket: &'a str) -> PluginFuture<'a, PluginDescription>;
    /// The result of its registration, within 5 s; an error's text if it is not registered.
    fn notify<'a>(&'a self, socket: &'a str, result: Result<(), &'a str>) -> PluginFuture<'a, ()>;
}

/// What a CSI driver reports of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNodeInfo {
    pub node_id: String,
    /// Zero for no limit.
    pub max_volumes: i64,
    pub topology: BTreeMap<String, String>,
}

/// CSI drivers' node services.
pub trait CsiDrivers: Send + Sync {
    /// Within 2 minutes.
    fn node_info<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, CsiNodeInfo>;
}

/// What a device plugin wants to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePluginOptions {
    pub pre_start_required: bool,
    pub preferred_allocation: bool,
}

/// A device as its plugin reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginDevice {
    pub id: String,
    pub healthy: bool,
    /// NUMA nodes; empty where the plugin names none.
    pub numa_nodes: Vec<i64>,
}

/// What a container needs to use its devices, as a device plugin answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSetup {
    pub env: BTreeMap<String, String>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub annotations: BTreeMap<String, String>,
    pub cdi_devices: Vec<String>,
}

/// The answer to an allocation, decoded, and as bytes for the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAllocation {
    pub setup: DeviceSetup,
    pub encoded: Vec<u8>,
}

/// The devices of one plugin as they change.
pub trait DeviceListing: Send {
    /// All devices; waits for the next change. An error is the end of the plugin.
    fn next(&mut self) -> PluginFuture<'_, Vec<PluginDevice>>;
}

/// Device plugins' services.
pub trait DevicePlugins: Send + Sync {
    /// Connects within 10 s; the answer within 10 s.
    fn options<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, DevicePluginOptions>;
    /// Connects within 10 s; the listing lasts.
    fn listing<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, Box<dyn DeviceListing>>;
    /// For one container, within a minute.
    fn allocate<'a>(
        &'a self,
        endpoint: &'a str,
        devices: &'a [String],
    ) -> PluginFuture<'a, DeviceAllocation>;
    /// The devices that the plugin prefers, within a minute.
    fn preferred<'a>(
        &'a self,
        endpoint: &'a str,
        request: &'a PreferredDevices,
    ) -> PluginFuture<'a, Vec<String>>;
    /// Within 30 s.
    fn pre_start<'a>(&'a self, endpoint: &'a str, devices: &'a [String]) -> PluginFuture<'a, ()>;
    /// Decodes [`DeviceAllocation::encoded`].
    fn decode(&self, encoded: &[u8]) -> Result<DeviceSetup, String>;
}

/// A question for the devices that a plugin prefers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreferredDevices {
    pub available: Vec<String>,
    pub must_include: Vec<String>,
    pub size: usize,
}

/// A device plugin that registers itself at the agent's own socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRegistrationRequest {
    pub version: String,
    /// A file name in the directory of device plugins.
    pub endpoint: String,
    pub resource: String,
}

/// Receives device plugins that register themselves.
pub trait DeviceRegistrar: Send + Sync {
    /// An error is the text that the plugin gets.
    fn register(&self, request: DeviceRegistrationRequest) -> PortFuture<'_, Result<(), String>>;
}

/// The agent's socket for device plugins, and the files beside it.
pub trait DevicePluginDir: Send + Sync {
    /// The directory, for messages and for plugins' endpoints.
    fn dir(&self) -> String;
    /// Removes the sockets of earlier times, creates the socket and serves. Returns only with an
    /// error; also when its socket has been removed by another process.
    fn serve(&self, registrar: Arc<dyn DeviceRegistrar>) -> PortFuture<'_, String>;
    /// The checkpoint's bytes; None where there is none.
    fn read_checkpoint(&self) -> PortFuture<'_, Result<Option<Vec<u8>>, String>>;
    /// Replaces the checkpoint; durable when it returns.
    fn write_checkpoint(&self, bytes: Vec<u8>) -> PortFuture<'_, Result<(), String>>;
}

/// Devices of one resource, on the same NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportedDevices {
    pub resource: String,
    pub ids: Vec<String>,
    pub numa_nodes: Vec<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedContainer {
    pub name: String,
    /// A restartable init container, which the first version of the API does not know.
    pub sidecar: bool,
    pub devices: Vec<ReportedDevices>,
}

/// A pod with the resources that were allocated to its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedPod {
    pub namespace: String,
    pub name: String,
    pub containers: Vec<ReportedContainer>,
}

/// A request of the pod resources API, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodResourcesRequest {
    List,
    /// Of the first version of the API.
    AlphaList,
    Allocatable,
    Get {
        found: bool,
    },
}

/// Answers the pod resources API.
pub trait PodResourcesApi: Send + Sync {
    /// Counts a request that is answered.
    fn count(&self, request: PodResourcesRequest);
    /// The active pods.
    fn pods(&self) -> Vec<ReportedPod>;
    /// The healthy devices.
    fn allocatable(&self) -> Vec<ReportedDevices>;
    fn pod(&self, namespace: &str, name: &str) -> Option<ReportedPod>;
}

/// Serves the pod resources API.
pub trait PodResourcesEndpoint: Send + Sync {
    /// The listen address, for messages.
    fn address(&self) -> String;
    /// Serves until dropped. Returns only with an error.
    fn serve(&self, api: Arc<dyn PodResourcesApi>) -> PortFuture<'_, String>;
}
