//! A fake API server behind the cluster port: versions, guarded writes, watches that break.
//!
//! Rule: no kinder than the real one where it matters. A write that changes nothing makes no new
//! version; status and spec are written apart; versions and unique ids guard; a pod with a grace
//! period stays until its node lets go of it; a watch may be cut, deaf or expired. Each client has
//! faults of its own, so that two controllers can be treated differently. Runs on tokio's time.
//!
//! Does not: check schemas, authenticate, or keep events as objects.

mod client;
mod cluster;
mod faults;
mod feed;
mod hollow;
mod patching;

pub use client::FakeClient;
pub use cluster::{FakeCluster, Logged, Verb};
pub use faults::{FaultSwitch, Faults};
pub use hollow::HollowNodes;

#[cfg(test)]
mod tests;
