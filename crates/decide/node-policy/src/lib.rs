//! Policies of the node, pure: facts and wishes in, verdicts out. Whether the agent may start on
//! this machine, whether a pod may run here, what of the dead goes, how logs are rotated, which
//! users a pod gets for itself, which logins of the node's an image gets and which program knows them, whose pod may use an image that
//! is here already; eviction and the like are planned here.

pub mod admission;
pub mod credential_providers;
pub mod garbage;
pub mod image_access;
pub mod log_rotation;
pub mod registry_logins;
mod start_up;
pub mod user_ranges;

pub use start_up::{MachineFacts, Refusal, StartWishes, refusals};
