//! Fetches images from registries, as a source of content for the image store.
//!
//! Rule: nothing that a registry says is believed: sizes and digests are checked by the store, and
//! every answer has a limit in bytes and in time. Credentials go to the hosts that they are for
//! and their token services, never along a redirect to another host. It decides nothing
//! about images: the store follows indexes and manifests and asks here for content by digest.
//!
//! upstream: OCI distribution-spec

pub mod address;
pub mod challenge;
#[cfg(feature = "connections")]
mod client;
#[cfg(feature = "connections")]
mod connection;
mod error;
#[cfg(feature = "connections")]
mod login;
#[cfg(feature = "connections")]
mod source;
#[cfg(feature = "connections")]
mod tokens;

#[cfg(feature = "connections")]
pub use client::{Client, HostSettings, Limits, Resolved};
pub use error::{Error, Result};
#[cfg(feature = "connections")]
pub use login::{Credentials, Login};
#[cfg(feature = "connections")]
pub use source::RegistrySource;

#[cfg(all(test, feature = "connections"))]
mod tests;
