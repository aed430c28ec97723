//! A node without an API server, under the agent or under the reference kubelet, on one containerd.
//!
//! Rule: the agents are black boxes: manifests go into a folder, and what came of them is read from
//! the runtime's own records (when a container started, when it ended), so that looking does not
//! change what is seen.

pub mod agent;
pub mod bare;
pub mod measure;
pub mod proxy;
pub mod runtime;
