//! Policies of the node, pure: facts and wishes in, verdicts out. Whether the agent may start on
//! this machine, whether a pod may run here, what of the dead goes, how logs are rotated, which
//! logins of the node's an image gets; eviction and the like are planned here.

pub mod admission;
pub mod garbage;
pub mod log_rotation;
pub mod registry_logins;
mod start_up;

pub use start_up::{MachineFacts, Refusal, StartWishes, refusals};
