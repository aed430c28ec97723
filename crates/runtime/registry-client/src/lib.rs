//! Fetches images from registries, as a source of content for the image store.
//!
//! Rule: registries are untrusted: sizes and digests are checked by the store, and every response
//! is limited in size and time. Credentials go to their hosts and the token services of these,
//! never along a redirect to another host. It makes no decisions about images: the store follows
//! indexes and manifests and fetches content by digest.
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
pub use client::{HostSettings, Limits, RegistryClient, Resolved};
pub use error::{Error, Result};
#[cfg(feature = "connections")]
pub use login::{Login, RegistryCredentials};
#[cfg(feature = "connections")]
pub use source::RegistrySource;

#[cfg(all(test, feature = "connections"))]
mod tests;
