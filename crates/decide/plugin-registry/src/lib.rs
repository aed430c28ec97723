//! Registration of plugins, as a state machine: sockets and results in, steps out.
//!
//! Rule: no call, no clock: the shell runs the step that an action names and reports its result
//! with the time. A socket has at most one step in flight, so a plugin that hangs delays only
//! itself. At rest the registered plugins are those whose sockets exist, whatever happened before.
//!
//! [`machine`] is the table for one socket, [`registry`] the set of them; [`csi_version`] and
//! [`csi_node`] are what CSI drivers need beside.
//!
//! upstream: pkg/kubelet/pluginmanager

pub mod csi_node;
pub mod csi_version;
pub mod machine;
pub mod registry;

pub use machine::{PluginPhase, RegistrationStep, StepOutcome};
pub use registry::{PluginRegistry, RegisteredPlugin, RegistryAction};
