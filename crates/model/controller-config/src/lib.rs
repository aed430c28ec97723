//! Flags named as kube-controller-manager's, and a file of its configuration, become one validated
//! `NodeControllerConfig`.
//!
//! Pure: bytes and arguments in, values and findings out. The rule it keeps: what upstream rejects
//! is rejected, with all reasons at once, each naming the flag (or file and field), the value and
//! what was expected; what upstream accepts for controllers that do not run here is checked for its
//! form, accepted, and reported as a warning, so that a unit file keeps working. A flag overrides
//! the file. Upstream itself reads no file; ours is its `KubeControllerManagerConfiguration`
//! v1alpha1.

mod command_line;
mod config;
mod controllers;
mod file;
mod settings;
mod table;
mod usage;
mod validation;

#[cfg(test)]
mod tests;

pub use command_line::{ControllerCommandLine, parse};
pub use config::{
    ApiConnection, CloudSource, Delegation, LeaderElection, LifecycleSettings,
    LoadedControllerConfig, LogSettings, MinTlsVersion, ModuleLevel, NodeControllerConfig,
    PodRanges, SecureServing, load,
};
pub use controllers::RunningControllers;
pub use node_config::SourceFile;
pub use usage::usage;

/// The release of Kubernetes whose flags these are.
pub const KUBERNETES_VERSION: &str = node_config::flags::KUBERNETES_VERSION;
