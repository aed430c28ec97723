//! A node without an API server, under the agent or under the reference kubelet, on one containerd.
//!
//! Rule: the agents are black boxes: manifests go into a directory, and results are read from the
//! runtime's own records (when a container started, when it exited), so that observing does not
//! change the measurements.

pub mod agent;
pub mod bare;
pub mod measure;
pub mod proxy;
pub mod runtime;
