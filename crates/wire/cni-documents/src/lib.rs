//! CNI configurations and results: what administrators and plugins write, parsed for a runtime.
//!
//! Pure: bytes in, values out. Input is validated as far as a runtime uses it, and an error says
//! what is wrong with it. Nothing here finds files or runs plugins.
//!
//! upstream: containernetworking/cni SPEC.md

mod configuration;
mod result;

pub use configuration::{NetworkConfigList, PluginConfig};
pub use result::{addresses_of, parse_result};

/// Why a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CniError(String);
