//! What the agent writes of its own node, pure: the Node object at registration, what is reconciled on
//! one that exists, every status update with its events, the patch that carries it, the Lease, and
//! when a status is due.
//!
//! Rule: facts come in, objects and patches come out. A field owned by another component (a taint
//! of a controller, a condition of another agent, an address set by a cloud) is never in a patch.
//!
//! upstream: pkg/kubelet/kubelet_node_status.go, pkg/kubelet/nodestatus

pub mod addresses;
mod capacity;
mod conditions;
pub mod event_correlation;
pub mod lease;
pub mod object;
mod patch;
pub mod registration;
pub mod report_schedule;
pub mod runtime_errors;
pub mod update;

pub use object::{FullNodeStatus, NodeObject, NodeStatusEvent, ResourceMap};
pub use patch::status_patch;
