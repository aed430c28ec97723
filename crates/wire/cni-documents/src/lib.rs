//! CNI configurations and results: what administrators and plugins write, read for a runtime.
//!
//! Pure: bytes in, values out. What others wrote is checked as far as a runtime uses it, and a
//! refusal says what is wrong with it. Nothing here finds files or runs plugins.
//!
//! upstream: containernetworking/cni SPEC.md

mod configuration;
mod result;

pub use configuration::{Configuration, Entry};
pub use result::{addresses_of, read_result};

/// Why a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CniError(String);
