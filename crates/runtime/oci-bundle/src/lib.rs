//! Inputs of an OCI command-line runtime: config.json and process.json, from the same values that
//! our own container creation uses; CDI devices; seccomp profiles as documents.
//!
//! Rule: [`configuration`] and [`process`] are pure: all decisions were made before, and what OCI
//! cannot express is refused by name, never silently left out. Starts and mounts nothing.
//!
//! upstream: OCI runtime-spec config.md, config-linux.md

#[cfg(feature = "cdi")]
pub mod cdi;
mod configuration;
mod json;
#[cfg(feature = "seccomp")]
pub mod seccomp;

pub use configuration::{NamespacePaths, UnsupportedSpec, configuration, for_hooks, process};

/// The file's name in a bundle.
pub const CONFIGURATION: &str = "config.json";
