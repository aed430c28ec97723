//! A fake API server behind the cluster port: resource versions, preconditions, watches that break.
//!
//! Rule: no kinder than a real API server where it matters. A write that changes nothing makes no
//! new version; status and spec are written separately; writes are guarded by version and UID; a
//! pod with a grace period stays until its node finishes the deletion; a watch may be cut, silent
//! or expired. Each client has its own faults, so that a test can treat two controllers
//! differently. Runs on tokio's time.
//!
//! Does not: validate schemas, authenticate, or store events as objects.

mod client;
mod cluster;
mod faults;
mod feed;
mod hollow;
mod patching;
mod subresources;

pub use client::FakeClient;
pub use cluster::{ApiVerb, FakeCluster, LoggedRequest};
pub use faults::{ClientFaultSwitch, ClientFaults};
pub use hollow::HollowNodes;

#[cfg(test)]
mod tests;
