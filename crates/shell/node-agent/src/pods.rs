//! Desired pods, one worker for each, and what all workers share.

pub(crate) mod context;
mod facts;
pub(crate) mod pod_workers;
mod saved;
mod sync_timer;
mod tracked_pod;
mod worker;

pub use context::{CgroupSettings, PodPorts, PodSettings, ReservedCgroup};
pub(crate) use context::{NodeState, PodContext};
pub(crate) use saved::PodMemoryStore;
