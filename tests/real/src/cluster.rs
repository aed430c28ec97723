//! A whole cluster of one node: the control plane with its scheduler, containerd, and the agent (ours
//! or the reference) with the certificate and the rights of a node.
//!
//! Rule: the agent joins as on any cluster: the Node authorizer and NodeRestriction are on, and each
//! request that the API server forbids it is recorded. The tests are its users: they speak to the API
//! server only, and look at the runtime to see what really runs.

pub mod comparison;
pub mod interactive;
mod node;
mod node_runtime;
mod objects;
mod rest;
mod rights;

pub use node::{ClusterPrograms, JoinedNode, NEEDS, NODE};
pub use node_runtime::RuntimeKind;
pub use objects::{
    condition, container_state, container_status, is_ready, pod_object, restart_count, shell,
    waiting_reason,
};
pub use rest::{RestAnswer, RestClient};
pub use rights::NodeRequests;
