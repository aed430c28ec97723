//! What an OCI command-line runtime is given: config.json and process.json, from the same values
//! that our own container creation takes; the devices that CDI names; seccomp profiles as documents.
//!
//! Rule: [`configuration`] and [`process`] are pure: every choice was made before, and what OCI
//! cannot say is refused by name, never left out in silence. Starts nothing and mounts nothing.
//!
//! upstream: OCI runtime-spec config.md, config-linux.md

#[cfg(feature = "cdi")]
pub mod cdi;
mod configuration;
mod json;
#[cfg(feature = "seccomp")]
pub mod seccomp;

pub use configuration::{NamespacePaths, Unsuitable, configuration, for_hooks, process};

/// The file's name in a bundle.
pub const CONFIGURATION: &str = "config.json";
