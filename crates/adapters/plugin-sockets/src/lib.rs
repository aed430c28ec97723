//! Plugins of the node over their unix sockets: the directory they appear in, calls, services.
//!
//! Rule: every call has a connection of its own and a deadline, and a message of at most 4 MiB, so
//! that a plugin that hangs or floods affects itself only. Decides nothing about what a plugin may
//! be or do.

mod call;
mod csi;
mod device_plugins;
mod device_registry;
mod dir_watch;
mod inotify;
mod pod_resources;
mod registration;
mod serve;

pub use csi::CsiSockets;
pub use device_plugins::DevicePluginSockets;
pub use device_registry::DeviceRegistryDir;
pub use dir_watch::PluginDir;
pub use pod_resources::PodResourcesSocket;
pub use registration::RegistrationSockets;
