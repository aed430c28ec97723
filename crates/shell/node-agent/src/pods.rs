//! Desired pods, one worker for each, and what all workers share.

pub(crate) mod context;
mod facts;
mod saved;
pub(crate) mod supervisor;
mod turn;
mod worker;

pub use context::{CgroupSettings, PodPorts, PodSettings, ReservedCgroup};
pub(crate) use context::{NodeState, PodContext};
pub(crate) use saved::SavedMemories;
