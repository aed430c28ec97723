//! Policies of the node, pure: facts and settings in, decisions out. Whether the agent may start on
//! this machine, pod admission, garbage collection, log rotation, user namespace ranges, registry
//! credentials of the node and of credential plugins, and access to present images; eviction and
//! the like are planned here.

pub mod admission;
pub mod credential_providers;
pub mod garbage;
pub mod image_access;
pub mod log_rotation;
pub mod registry_logins;
mod startup_checks;
pub mod user_namespace_ranges;

pub use startup_checks::{StartupError, StartupFacts, StartupRequirements, startup_errors};
