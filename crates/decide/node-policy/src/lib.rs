//! Policies of the node, pure: facts and wishes in, verdicts out. Whether the agent may start on
//! this machine, whether a pod may run here, what of the dead goes, how logs are rotated; eviction
//! and the like are planned here.

pub mod admission;
pub mod garbage;
pub mod log_rotation;
mod start_up;

pub use start_up::{MachineFacts, Refusal, StartWishes, refusals};
